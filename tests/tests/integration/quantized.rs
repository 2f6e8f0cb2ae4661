//! Quantized models: the bytes of the `gguf` package, and the logits of a NumPy forward on the dequantized weights.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use trueup::blocks::DType;
use trueup::formats::Gguf;
use trueup::manifest::hash_tensors;
use trueup::quantize::Layout;
use trueup_tests::{Fixture, convert, fixture, nmse, quantize, root, say, stories};

/// The models of `fixtures/quantized`, each quantized, with its entry.
fn for_each(check: impl Fn(&Fixture, &Value, &Path)) {
    let text = fs::read(root().join("fixtures/quantized/quantized.json")).expect("goldens are in the repository");
    let goldens: Value = serde_json::from_slice(&text).expect("goldens are JSON");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let entries = goldens["models"].as_array().expect("a list of models");
    assert_eq!(entries.len(), 6, "three models in two types");
    for entry in entries {
        let name = entry["model"].as_str().expect("a name");
        let fixture = if name == "stories-1M" { stories() } else { fixture(name) };
        let dtype = DType::from_name(entry["type"].as_str().expect("a type")).expect("a known type");
        let source = scratch.path().join(format!("{name}.gguf"));
        let target = scratch.path().join(format!("{name}-{dtype}.gguf"));
        convert(&fixture.folder, &source, None, None);
        quantize(&source, &target, dtype, Layout::Block);
        check(&fixture, entry, &target);
    }
}

#[test]
fn bytes_are_those_of_the_gguf_package() {
    for_each(|fixture, entry, model| {
        let file = Gguf::open(model).expect("it was just written");
        let hashes = hash_tensors(&file).expect("tensors can be read");
        let expected = entry["tensors"].as_object().expect("tensors by name");
        let listed =
            expected.iter().map(|(name, tensor)| (name.clone(), tensor["sha256"].as_str().expect("a hash").to_owned()));
        let mut listed: Vec<(String, String)> = listed.collect();
        let mut got: Vec<(String, String)> = hashes.into_iter().map(|hash| (hash.name, hash.sha256)).collect();
        listed.sort();
        got.sort();
        assert_eq!(got, listed, "{} as {}", fixture.name, entry["type"]);
    });
}

#[test]
fn the_oracle_computes_what_numpy_computes() {
    for_each(|fixture, entry, model| {
        let dtype = entry["type"].as_str().expect("a type");
        let prompts: Vec<Vec<u32>> = fixture.prompts().iter().map(|prompt| prompt.ids.clone()).collect();
        for (number, said) in say(model, "ref", &prompts, 0, true).iter().enumerate() {
            let golden = fixture.quantized_logits(dtype, number).expect("a golden for every prompt");
            let (got, wanted): (Vec<f64>, Vec<f64>) =
                (said.prompt_logits.iter().copied().collect(), golden.iter().copied().collect());
            let nmse = nmse(&got, &wanted);
            assert!(nmse < 1e-9, "{} as {dtype}, prompt {number}: NMSE {nmse:e}", fixture.name);
        }
    });
}

#[test]
fn the_split_layout_computes_the_same_bits() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = fixture("qwen2");
    let path = |name: &str| -> PathBuf { scratch.path().join(name) };
    convert(&fixture.folder, &path("model.gguf"), None, None);
    let prompts: Vec<Vec<u32>> = fixture.prompts().iter().map(|prompt| prompt.ids.clone()).collect();
    for dtype in [DType::Q4_0, DType::Q8_0] {
        quantize(&path("model.gguf"), &path("block.gguf"), dtype, Layout::Block);
        quantize(&path("model.gguf"), &path("split.gguf"), dtype, Layout::Split);
        for device in ["ref", "cpu"] {
            let (block, split) = (
                say(&path("block.gguf"), device, &prompts, 4, true),
                say(&path("split.gguf"), device, &prompts, 4, true),
            );
            for (block, split) in block.iter().zip(&split) {
                assert!(block.prompt_logits == split.prompt_logits && block.ids == split.ids, "{dtype} on {device}");
            }
        }
    }
}
