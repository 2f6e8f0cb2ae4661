//! Files that lie, through the command: exit code 2, one sentence that names the place, nothing written.

use crate::trueup::{Scratch, argument, stories, tiny, trueup};
use std::fs;
use std::path::Path;

#[test]
fn a_gguf_file_cut_anywhere_is_refused() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "whole.gguf");
    let bytes = fs::read(&model).expect("it was just written");
    let cut = scratch.path("cut.gguf");
    let target = scratch.path("target.gguf");
    for length in [0, 3, 4, 7, 8, 20, 24, 100, 5_000, 20_000, 24_000, 26_000, 30_000, bytes.len() - 1] {
        fs::write(&cut, &bytes[..length]).expect("a file");
        for call in [&["inspect", &cut][..], &["run", &cut, "-p", "x"], &["quantize", &cut, &target, "-b", "4"]] {
            trueup(call).refuses(&["cut.gguf"]);
        }
    }
    assert_eq!(scratch.names(), ["cut.gguf", "whole.gguf"]);
}

#[test]
fn a_gguf_file_with_a_flipped_byte_is_refused_or_read_and_never_a_bug() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("qwen2"), "whole.gguf");
    let bytes = fs::read(&model).expect("it was just written");
    let lie = scratch.path("lie.gguf");
    for place in (0..bytes.len().min(4_000)).step_by(97) {
        let mut bytes = bytes.clone();
        bytes[place] ^= 0xff;
        fs::write(&lie, bytes).expect("a file");
        let told = trueup(&["inspect", &lie, "--json"]);
        assert!([0, 2].contains(&told.code) && !told.stderr.contains("bug"), "byte {place}: {told:?}");
    }
}

#[test]
fn a_safetensors_file_cut_anywhere_is_refused() {
    let scratch = Scratch::new();
    let folder = scratch.copy(&tiny("llama2"), "model");
    let file = folder.join("model.safetensors");
    let bytes = fs::read(&file).expect("a copy");
    for length in [0, 7, 8, 500, 2_000, 10_000, bytes.len() - 1] {
        fs::write(&file, &bytes[..length]).expect("a file");
        trueup(&["convert", &argument(&folder), &scratch.path("x.gguf")]).refuses(&["model.safetensors"]);
    }
    let mut longer = bytes.clone();
    longer.push(0);
    fs::write(&file, longer).expect("a file");
    trueup(&["convert", &argument(&folder), &scratch.path("x.gguf")]).refuses(&["model.safetensors"]);
    assert_eq!(scratch.names(), ["model"]);
}

#[test]
fn a_safetensors_file_that_shows_no_failure_is_refused() {
    let scratch = Scratch::new();
    let folder = scratch.copy(&tiny("llama2"), "model");
    let file = argument(&folder.join("model.safetensors"));
    trueup(&["repro", &file]).refuses(&["model.safetensors", "trueup.repro", "--repro-dir"]);
}

#[test]
fn a_missing_shard_is_named() {
    let scratch = Scratch::new();
    let folder = scratch.copy(&tiny("llama2"), "model");
    let shard = "model-00001-of-00002.safetensors";
    fs::rename(folder.join("model.safetensors"), folder.join(shard)).expect("a copy");
    let index = format!(
        r#"{{"weight_map": {{"model.norm.weight": "{shard}", "lm_head.weight": "model-00002-of-00002.safetensors"}}}}"#
    );
    fs::write(folder.join("model.safetensors.index.json"), index).expect("a file");
    trueup(&["convert", &argument(&folder), &scratch.path("x.gguf")]).refuses(&["model-00002-of-00002.safetensors"]);
    assert_eq!(scratch.names(), ["model"]);
}

#[test]
fn all_faults_of_tensors_are_listed_at_once() {
    let scratch = Scratch::new();
    let folder = scratch.copy(&tiny("llama2"), "model");
    let file = folder.join("model.safetensors");
    let changes = [
        ("\"model.norm.weight\"", "\"model.nrom.weight\""),
        ("\"model.layers.1.mlp.up_proj.weight\"", "\"model.layers.1.mlp.pu_proj.weight\""),
        (
            "\"model.layers.0.mlp.gate_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[96,64]",
            "\"model.layers.0.mlp.gate_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[64,96]",
        ),
    ];
    for (from, to) in changes {
        replace(&file, from, to);
    }
    trueup(&["convert", &argument(&folder), &scratch.path("x.gguf")]).refuses(&[
        "model.nrom.weight",
        "model.norm.weight",
        "model.layers.1.mlp.pu_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.0.mlp.gate_proj.weight",
    ]);
    trueup(&["convert", &argument(&folder), &scratch.path("x.gguf"), "--dry-run"]).exits(2);
    assert_eq!(scratch.names(), ["model"]);
}

#[test]
fn a_configuration_that_lies_is_refused() {
    let scratch = Scratch::new();
    let original = fs::read_to_string(tiny("llama2").join("config.json")).expect("a fixture");
    let changes = [
        ("{\n", "", "config.json"),
        (
            "\"num_attention_heads\": 4",
            "\"num_attention_heads\": 0",
            "num_attention_heads: expected 1 to 65536, found 0",
        ),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": \"four\"", "num_attention_heads"),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4000000000", "4000000000"),
        ("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": -1", "rms_norm_eps"),
        ("\"hidden_size\": 64,", "", "hidden_size"),
        ("\"LlamaForCausalLM\"", "\"ToasterForCausalLM\"", "ToasterForCausalLM"),
        ("\"hidden_act\": \"silu\"", "\"hidden_act\": \"cosh\"", "cosh"),
    ];
    let folder = scratch.copy(&tiny("llama2"), "model");
    for (from, to, word) in changes {
        let changed = original.replacen(from, to, 1);
        assert_ne!(changed, original, "{from}");
        fs::write(folder.join("config.json"), changed).expect("a file");
        trueup(&["convert", &argument(&folder), &scratch.path("x.gguf")]).refuses(&[word]);
    }
    fs::remove_file(folder.join("config.json")).expect("a file");
    trueup(&["convert", &argument(&folder), &scratch.path("x.gguf")]).refuses(&["config.json"]);
    assert_eq!(scratch.names(), ["model"]);
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let scratch = Scratch::new();
    let fifo = scratch.path("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe with a name");
    let target = scratch.path("x.gguf");
    for bad in [fifo.as_str(), "/dev/zero", "/dev/null"] {
        for call in [
            &["convert", bad, &target][..],
            &["quantize", bad, &target, "-b", "4"],
            &["run", bad, "-p", "x"],
            &["tokenize", bad, "-p", "x"],
            &["verify", bad],
            &["repro", bad],
            &["inspect", bad],
        ] {
            trueup(call).refuses(&[bad]);
        }
    }
    let model = scratch.gguf(&stories(), "stories.gguf");
    let empty = scratch.path("");
    for call in [&["inspect", &empty][..], &["run", &empty, "-p", "x"], &["quantize", &empty, &target, "-b", "4"]] {
        trueup(call).refuses(&[]);
    }
    trueup(&["run", &model, "-f", &fifo]).refuses(&["fifo"]);
    trueup(&["run", &model, "-f", &empty]).refuses(&[]);
    trueup(&["inspect", &scratch.path("not-there.gguf")]).refuses(&["not-there.gguf"]);
    assert_eq!(scratch.names(), ["fifo", "stories.gguf"]);
}

#[test]
fn an_output_is_never_an_input() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let before = fs::read(&model).expect("a file");
    let link = scratch.path("link.gguf");
    std::os::unix::fs::symlink(&model, &link).expect("a link");
    for (input, output, name) in
        [(&model, &model, "stories.gguf"), (&link, &model, "stories.gguf"), (&model, &link, "link.gguf")]
    {
        trueup(&["quantize", input, output, "-b", "4"]).refuses(&[name, "input"]);
    }
    trueup(&["run", &model, "-p", "x", "-n", "1", "--logits", &model]).refuses(&["stories.gguf"]);
    trueup(&["verify", &model, "--json", &link]).refuses(&["link.gguf"]);
    let target = scratch.path("x.gguf");
    trueup(&["quantize", &model, &target, "-b", "4", "--report", &model]).refuses(&["stories.gguf"]);
    trueup(&["quantize", &model, &target, "-b", "4", "--report", &target]).refuses(&["--report"]);
    trueup(&["run", &model, "-p", "x", "--logits", &scratch.path("no/l.safetensors")]).refuses(&["does not exist"]);
    assert!(fs::read(&model).expect("a file") == before);
    trueup(&["quantize", &model, &scratch.path("no/such/folder.gguf"), "-b", "4"]).refuses(&["folder.gguf"]);
    assert_eq!(scratch.names(), ["link.gguf", "stories.gguf"]);
}

/// Changes a piece of a file for another of the same length.
fn replace(file: &Path, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(file).expect("a copy");
    let place = bytes.windows(from.len()).position(|piece| piece == from.as_bytes());
    let place = place.unwrap_or_else(|| panic!("no {from} in {}", file.display()));
    bytes[place..place + to.len()].copy_from_slice(to.as_bytes());
    fs::write(file, bytes).expect("a file");
}
