//! `convert` and `quantize`: files, tables, reports, the same bytes for any number of threads.

use crate::trueup::{Scratch, argument, stories, tiny, trueup};
use serde_json::Value;
use std::fs;

const QUANTIZED: [&str; 6] = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1"];

#[test]
fn convert_checks_itself() {
    let scratch = Scratch::new();
    let (folder, target) = (argument(&stories()), scratch.path("stories.gguf"));
    let told = trueup(&["convert", &folder, &target, "--check"]).exits(0);
    assert!(told.stdout.contains("checked 56 tensors: 56 exact, 0 rounded, 0 wrong\n"), "{told:?}");
    assert!(told.stdout.lines().all(|line| line == line.trim_end()), "{told:?}");
    for (dtype, exact) in [("f32", 56), ("bf16", 56), ("q8_0", 13)] {
        let answer = trueup(&["convert", &folder, &target, "--type", dtype, "--check", "--json"]).exits(0).json();
        let checks = answer["checks"].as_array().expect("checks");
        let found = checks.iter().filter(|check| check["agreement"]["result"] == "exact").count();
        assert_eq!((answer["equal"].as_bool(), checks.len(), found), (Some(true), 56, exact), "{dtype}");
    }
    assert_eq!(scratch.names(), ["stories.gguf"]);
}

#[test]
fn a_dry_run_writes_nothing() {
    let scratch = Scratch::new();
    let (folder, target) = (argument(&stories()), scratch.path("x.gguf"));
    let told = trueup(&["convert", &folder, &target, "--dry-run"]).exits(0);
    assert!(told.stdout.contains("would write"), "{told:?}");
    let model = scratch.gguf(&stories(), "stories.gguf");
    let told = trueup(&["quantize", &model, &target, "-b", "4", "--dry-run"]).exits(0);
    assert!(told.stdout.contains("would write"), "{told:?}");
    assert_eq!(scratch.names(), ["stories.gguf"]);
}

#[test]
fn a_split_model_is_the_same_model() {
    let scratch = Scratch::new();
    let whole = scratch.gguf(&stories(), "whole.gguf");
    let call =
        ["convert", &argument(&stories()), &scratch.path("parts.gguf"), "--split-max-size", "1M", "--check", "--json"];
    let answer = trueup(&call).exits(0).json();
    let files: Vec<&str> =
        answer["report"]["files"].as_array().expect("files").iter().filter_map(Value::as_str).collect();
    assert_eq!(files.len(), 3);
    for file in &files {
        assert!(fs::metadata(file).expect("a file").len() <= 1 << 20, "{file}");
    }
    let hash = |file: &str| trueup(&["inspect", file, "--hash"]).exits(0).stdout;
    assert_eq!(hash(files[0]), hash(&whole));
    let ids = |file: &str| {
        trueup(&["run", file, "-p", "Once", "-n", "8", "--json"]).exits(0).json()["prompts"][0]["generated_ids"].clone()
    };
    assert_eq!(ids(files[0]), ids(&whole));
    trueup(&["inspect", files[1]]).refuses(&["00001-of-00003"]);
    fs::remove_file(files[2]).expect("it was just written");
    trueup(&["run", files[0], "-p", "Once"]).refuses(&["00003-of-00003"]);
}

#[test]
fn a_model_in_a_file_for_each_layer_is_the_same_model() {
    let scratch = Scratch::new();
    let (folder, target) = (argument(&tiny("qwen2")), scratch.path("parts.gguf"));
    let answer = trueup(&["convert", &folder, &target, "--split", "layers", "--check", "--json"]).exits(0).json();
    let files = answer["report"]["files"].as_array().expect("files").len();
    assert_eq!((files, answer["equal"].as_bool()), (4, Some(true)));
    assert_eq!(scratch.names().len(), 4);
    trueup(&["convert", &folder, &target, "--split", "heads"]).exits(2);
    trueup(&["convert", &folder, &target, "--split", "layers", "--split-max-size", "1M"]).exits(2);
}

#[test]
fn a_vocabulary_can_be_slimmed_and_lists_of_tokens_lie() {
    let scratch = Scratch::new();
    let (folder, target) = (argument(&tiny("qwen2")), scratch.path("small.gguf"));
    let list = scratch.path("list.txt");
    let slim =
        |how: &str| trueup(&["convert", &folder, &target, "--prune-vocab", how, "--check", "--type", "q8_0", "--json"]);
    fs::write(&list, "0-255\n300 # one more\n").expect("a list");
    let answer = slim(&format!("ids:{list}")).exits(0).json();
    assert_eq!(answer["equal"].as_bool(), Some(true));
    let notes = answer["report"]["notes"].to_string();
    assert!(notes.contains("tokens are kept and renumbered"), "{notes}");
    let metadata = &trueup(&["inspect", &target, "--json"]).exits(0).json()["metadata"];
    assert_eq!(metadata["trueup.vocabulary.source_size"], 400);
    trueup(&["run", &target, "-p", "fox", "-n", "2"]).exits(0);
    fs::remove_file(&target).expect("it was just written");
    let lies: [(&[u8], &str); 6] = [
        (b"", "expected at least one token ID, found none; list the IDs to keep"),
        (b"# nothing", "expected at least one token ID, found none; list the IDs to keep"),
        (b"0-4294967295", "expected token IDs from 0 to 399, found 4294967295"),
        (b"9999999999999999999999", "line 1: expected an ID"),
        (b"7\n9-3", "line 2: expected the lower ID first, as in 3-9, found \"9-3\""),
        (b"3\n\xff\xfe", "byte 2: expected UTF-8 text"),
    ];
    for (bytes, expected) in lies {
        fs::write(&list, bytes).expect("a list");
        slim(&format!("ids:{list}")).refuses(&[expected]);
    }
    slim(&format!("corpus:{}", scratch.path("none.txt"))).refuses(&["none.txt"]);
    slim("drop:390-400").refuses(&["expected token IDs from 0 to 399, found 400"]);
    slim("drop:0-399").refuses(&["cannot be dropped"]);
    slim("all").refuses(&["ids:FILE, corpus:FILE or drop:A-B"]);
    let flm = scratch.path("small.flm");
    trueup(&["convert", &folder, &flm, "--prune-vocab", "drop:300-301"]).refuses(&["convert to GGUF with it first"]);
    assert_eq!(scratch.names(), ["list.txt"]);
}

#[test]
fn keys_can_be_set() {
    let scratch = Scratch::new();
    let (folder, target) = (argument(&tiny("qwen2")), scratch.path("named.gguf"));
    trueup(&["convert", &folder, &target, "--metadata", "general.name=Fox", "--metadata", "qwen2.context_length=64"])
        .exits(0);
    let metadata = &trueup(&["inspect", &target, "--json"]).exits(0).json()["metadata"];
    assert_eq!(metadata["general.name"], "Fox");
    assert_eq!(metadata["qwen2.context_length"], 64);
    trueup(&["convert", &folder, &target, "--metadata", "qwen2.context_length=many"]).refuses(&["context_length"]);
    trueup(&["convert", &folder, &target, "--metadata", "no-value"]).refuses(&["KEY=VALUE"]);
}

#[test]
fn bytes_do_not_depend_on_the_number_of_threads() {
    let scratch = Scratch::new();
    let folder = argument(&stories());
    let source = scratch.gguf(&stories(), "source.gguf");
    let read = |name: &str| fs::read(scratch.path(name)).expect("it was just written");
    for flags in [&["--type", "f16"][..], &["--type", "q4_0"]] {
        for threads in ["1", "2"] {
            let target = scratch.path(threads);
            let mut call = vec!["convert", &folder, &target, "-t", threads, "-q"];
            call.extend(flags);
            trueup(&call).exits(0);
        }
        assert!(read("1") == read("2"), "convert {flags:?}");
    }
    for flags in [&["-b", "4"][..], &["--type", "q5_1", "--pure"], &["-b", "8", "--layout", "split"]] {
        let tables = ["1", "2"].map(|threads| {
            let (target, report) = (scratch.path(threads), scratch.path("report.json"));
            let mut call = vec!["quantize", &source, &target, "-t", threads, "-q", "--report", &report];
            call.extend(flags);
            trueup(&call).exits(0);
            fs::read_to_string(report).expect("a report")
        });
        assert!(read("1") == read("2"), "quantize {flags:?}");
        assert_eq!(tables[0], tables[1], "quantize {flags:?}");
    }
}

#[test]
fn every_type_is_written_and_read() {
    let scratch = Scratch::new();
    let source = scratch.gguf(&stories(), "source.gguf");
    let target = scratch.path("target.gguf");
    for dtype in QUANTIZED.into_iter().chain(["f32", "f16", "bf16"]) {
        let answer = trueup(&["quantize", &source, &target, "--type", dtype]).exits(0);
        assert!(answer.stdout.contains(&format!("wrote {target} (56 tensors, ")), "{answer:?}");
        assert_eq!(answer.stderr.contains("only trueup reads"), dtype == "q8_1", "{answer:?}");
        assert_eq!(type_of(&target, "blk.0.ffn_up.weight"), dtype);
        trueup(&["run", &target, "-p", "Once", "-n", "2", "-q"]).exits(0);
    }
    for (bits, dtype) in [("4", "q4_0"), ("8", "q8_0"), ("16", "f16")] {
        trueup(&["quantize", &source, &target, "-b", bits]).exits(0);
        assert_eq!(type_of(&target, "blk.0.ffn_up.weight"), dtype);
        assert_eq!(type_of(&target, "blk.0.ffn_norm.weight"), "f32");
    }
}

#[test]
fn rules_purity_and_strictness() {
    let scratch = Scratch::new();
    let source = scratch.gguf(&stories(), "source.gguf");
    let target = scratch.path("target.gguf");
    trueup(&["quantize", &source, &target, "-b", "4"]).exits(0);
    assert_eq!(type_of(&target, "token_embd.weight"), "q8_0");
    trueup(&["quantize", &source, &target, "-b", "4", "--pure", "--rule", "ffn_down=f16", "--rule", "ffn=q5_1"])
        .exits(0);
    for (tensor, dtype) in [
        ("token_embd.weight", "q4_0"),
        ("blk.1.ffn_down.weight", "f16"),
        ("blk.1.ffn_up.weight", "q5_1"),
        ("blk.1.attn_q.weight", "q4_0"),
    ] {
        assert_eq!(type_of(&target, tensor), dtype, "{tensor}");
    }
    fs::remove_file(&target).expect("it was just written");
    trueup(&["quantize", &source, &target, "-b", "4", "--rule", "no_such=q8_0"])
        .refuses(&["--rule no_such=q8_0: no tensor name matches"]);
    let shadowed = ["quantize", &source, &target, "-b", "4", "--rule", "ffn=q4_0", "--rule", "ffn_down=q5_1", "--json"];
    let notes = trueup(&shadowed).exits(0).json()["notes"].to_string();
    assert!(notes.contains("--rule ffn_down=q5_1 has no effect: earlier rules match all of its tensors"), "{notes}");
    fs::remove_file(&target).expect("it was just written");
    trueup(&["quantize", &source, &target, "-b", "4", "--rule", "(=q8_0"])
        .refuses(&["--rule", "unclosed group at character 1"]);
    trueup(&["quantize", &source, &target, "-b", "4", "--rule", "ffn=q9_9"]).refuses(&["q9_9"]);
    trueup(&["quantize", &source, &target, "-b", "3"]).refuses(&["4, 8, 16"]);
    trueup(&["quantize", &source, &target, "--type", "q9_9"]).refuses(&["q9_9", "q4_0"]);
    trueup(&["quantize", &source, &target]).refuses(&["--bits"]);
    trueup(&["quantize", &argument(&stories()), &target, "-b", "4"]).refuses(&["convert it first"]);
    assert_eq!(scratch.names(), ["source.gguf"]);
}

#[test]
fn recipes_are_written_and_run_and_the_report_gives_reasons() {
    let scratch = Scratch::new();
    let source = scratch.gguf(&stories(), "source.gguf");
    let target = scratch.path("target.gguf");
    for (recipe, number) in
        [("Q4_K_M", 15), ("q3_k", 12), ("q6_k", 18), ("iq4_xs", 30), ("mxfp4_moe", 38), ("tq2_0", 37)]
    {
        let answer = trueup(&["quantize", &source, &target, "--type", recipe, "--json"]).exits(0).json();
        let facts = trueup(&["inspect", &target, "--json"]).exits(0).json();
        assert_eq!(facts["metadata"]["general.file_type"], number, "{recipe}");
        let has_reason = |tensor: &Value| tensor["note"].as_str().is_some_and(|note| !note.is_empty());
        let norm =
            answer["tensors"].as_array().expect("tensors").iter().find(|tensor| tensor["name"] == "output_norm.weight");
        assert!(norm.is_some_and(has_reason), "{answer}");
        trueup(&["run", &target, "-p", "Once", "-n", "2", "-q"]).exits(0);
    }
    let answer = trueup(&["quantize", &source, &target, "--type", "mxfp4_moe", "--dry-run"]).exits(0);
    assert!(answer.stdout.contains("mxfp4_moe uses q8_0 for all matrices except expert weights"), "{answer:?}");
    trueup(&["quantize", &source, &target, "--type", "q8_0", "--output-tensor-type", "q4_0", "--rule", "attn_q=f16"])
        .exits(0);
    assert_eq!(type_of(&target, "blk.0.attn_q.weight"), "f16");
    assert_eq!(type_of(&target, "token_embd.weight"), "q4_0");
    for (flags, part) in [
        (
            &["--type", "q8_0", "--token-embedding-type", "q6_k"][..],
            "--token-embedding-type q6_k: expected rows of token_embd",
        ),
        (
            &["--type", "q8_0", "--leave-output-tensor"][..],
            "--leave-output-tensor: expected a tensor output.weight, found none",
        ),
        (&["--type", "q8_0", "--imatrix", &source][..], "expected an importance matrix, found a model (llama)"),
        (&["--type", "q8_0", "--imatrix-exact"][..], "--imatrix"),
    ] {
        let refused = scratch.path("refused.gguf");
        trueup(&[&["quantize", &source, &refused][..], flags].concat()).refuses(&[part]);
    }
    assert_eq!(scratch.names(), ["source.gguf", "target.gguf"]);
}

#[test]
fn reports_are_json_and_say_what_was_lost() {
    let scratch = Scratch::new();
    let source = scratch.gguf(&stories(), "source.gguf");
    let (target, file) = (scratch.path("target.gguf"), scratch.path("report.json"));
    let told = trueup(&["quantize", &source, &target, "-b", "4", "--report", &file, "--json"]).exits(0).json();
    let report: Value = serde_json::from_str(&fs::read_to_string(&file).expect("a report")).expect("JSON");
    assert_eq!(report, told);
    let to_stdout = trueup(&["quantize", &source, &target, "-b", "4", "--report", "-", "--json"]).exits(0).json();
    assert_eq!(to_stdout, told);
    for tensor in report["tensors"].as_array().expect("tensors") {
        let (cosine, rmse) = (tensor["cosine"].as_f64().expect("a number"), tensor["rmse"].as_f64().expect("a number"));
        let kept = tensor["type"] == tensor["source_type"];
        assert!(if kept { rmse == 0.0 } else { rmse > 0.0 && cosine > 0.99 && cosine < 1.0 }, "{tensor}");
    }
}

#[test]
fn the_split_layout_goes_and_comes_back_without_loss() {
    let scratch = Scratch::new();
    for dtype in ["q4_0", "q8_0"] {
        let blocks = scratch.quantized_stories(dtype);
        let (split, back) = (scratch.path("split.gguf"), scratch.path("back.gguf"));
        trueup(&["quantize", "--layout", "split", &blocks, &split]).exits(0);
        assert_eq!(type_of(&split, "blk.0.attn_q.weight.scale"), "f16");
        trueup(&["quantize", "--layout", "block", &split, &back]).exits(0);
        assert!(fs::read(&blocks).expect("a file") == fs::read(&back).expect("a file"), "{dtype}");
        let text = |file: &str| trueup(&["run", file, "-p", "Once", "-n", "8", "-q"]).exits(0).stdout;
        assert_eq!(text(&split), text(&blocks));
    }
}

/// The type of a tensor, as `inspect` says.
fn type_of(file: &str, name: &str) -> String {
    let answer = trueup(&["inspect", file, "--json"]).exits(0).json();
    let tensors = answer["tensors"].as_array().expect("tensors");
    let tensor = tensors.iter().find(|tensor| tensor["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    tensor["type"].as_str().expect("a name").to_owned()
}

/// The same tensors as by two commands, although the conversion sorts the rows of some.
#[test]
fn a_conversion_quantizes_as_quantize_does() {
    let scratch = Scratch::new();
    let (folder, source) = (argument(&stories()), scratch.gguf(&stories(), "source.gguf"));
    let (matrix, corpus) = (scratch.path("imatrix.gguf"), scratch.path("corpus.txt"));
    fs::write(&corpus, "Once upon a time there was a little girl. ".repeat(40)).expect("a file");
    trueup(&["imatrix", &source, "--corpus", &corpus, "-c", "32", "--chunks", "4", "-o", &matrix, "-q"]).exits(0);
    let (direct, later) = (scratch.path("direct.gguf"), scratch.path("later.gguf"));
    let hashes = |file: &str| trueup(&["inspect", file, "--hash"]).exits(0).stdout;
    for flags in [
        &["--type", "q4_0", "--imatrix", &matrix][..],
        &["--type", "q5_k_m", "--rule", "attn_k=iq4_nl", "--imatrix", &matrix, "--imatrix-exact"],
        &["--type", "q4_1", "--pure", "--token-embedding-type", "q8_0"],
    ] {
        trueup(&[&["convert", &folder, &direct, "-q"], flags].concat()).exits(0);
        trueup(&[&["quantize", &source, &later, "-q"], flags].concat()).exits(0);
        assert_eq!(hashes(&direct), hashes(&later), "{flags:?}");
        let metadata = |file: &str| trueup(&["inspect", file, "--json"]).exits(0).json()["metadata"].clone();
        for key in ["general.file_type", "quantize.imatrix.file", "quantize.imatrix.entries_count"] {
            assert_eq!(metadata(&direct)[key], metadata(&later)[key], "{flags:?} {key}");
        }
    }
    trueup(&["convert", &folder, &direct, "--type", "q4_0", "--rule", "none=q8_0"])
        .refuses(&["--rule none=q8_0: no tensor name matches"]);
    trueup(&["convert", &folder, &direct, "--type", "q4_0", "--imatrix", &source]).refuses(&[
        "source.gguf: expected an importance matrix, found a model (llama); pass a file that `trueup imatrix`",
    ]);
    for (dtype, flags) in [("auto", &["--imatrix", &matrix][..]), ("f16", &["--pure"]), ("bf16", &["--strict"])] {
        let problem = match dtype {
            "auto" => format!("{} has no effect without --type; use a quantized type such as q4_k_m, or", flags[0]),
            _ => format!("{} has no effect with --type {dtype}; use a quantized type such as q4_k_m, or", flags[0]),
        };
        trueup(&[&["convert", &folder, &direct, "--type", dtype], flags].concat()).refuses(&[&problem]);
        if dtype != "auto" {
            trueup(&[&["quantize", &source, &later, "--type", dtype], flags].concat()).refuses(&[&problem]);
        }
    }
    trueup(&["quantize", &source, &later, "--layout", "split", "--imatrix", &matrix])
        .refuses(&["--imatrix has no effect without --type; use a quantized type such as q4_k_m, or omit --imatrix"]);
    trueup(&["convert", &folder, &direct, "--type", "q8_0", "--imatrix", &matrix, "-q"]).exits(0);
    let facts = trueup(&["inspect", &direct, "--json"]).exits(0).json();
    assert_eq!(facts["metadata"]["quantize.imatrix.file"], Value::Null);
    let flm = scratch.path("out.flm");
    trueup(&["convert", &folder, &flm, "--pure"]).refuses(&["--pure: not supported for .flm output"]);
    trueup(&["convert", &folder, &flm, "--imatrix", &matrix]).refuses(&["--imatrix: expected GGUF output"]);
}
