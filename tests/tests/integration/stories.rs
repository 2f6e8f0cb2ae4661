//! The trained model: both directory forms and all three llama2.c versions tell the recorded stories.

use approx::assert_relative_eq;
use std::fs;
use std::path::{Path, PathBuf};
use trueup::blocks::DType;
use trueup::convert::Agreement;
use trueup::formats::Gguf;
use trueup_tests::{Storage, Version, convert, nmse, root, say, stories, write_llama2c, write_variant};

/// The end of a text in a Hugging Face form.
const EOS: u32 = 2;
/// The end of a text in a llama2.c form: documents are parted by bos.
const BOS: u32 = 1;

fn tokenizer_bin() -> PathBuf {
    root().join("fixtures/stories-1M/tokenizer.bin")
}

/// All 200 tokens, and then again to the first end of text, which must be the same tokens up to there.
fn tells_the_stories(model: &Path, golden: &str, nmse_max: f64) {
    let stories = stories();
    let prompts: Vec<Vec<u32>> = stories.prompts().iter().map(|prompt| prompt.ids.clone()).collect();
    let expected: Vec<Vec<u32>> = match golden {
        "logits" => stories.prompts().into_iter().map(|prompt| prompt.greedy_ids).collect(),
        _ => {
            let entries = stories.golden["v2_dequantised"].as_array().expect("goldens of version 2");
            let ids = |entry: &serde_json::Value| serde_json::from_value(entry["greedy_ids"].clone()).expect("ids");
            entries.iter().map(ids).collect()
        }
    };
    for (number, said) in say(model, "ref", &prompts, 200, true).iter().enumerate() {
        assert_eq!(said.ids, expected[number], "{}, prompt {number}", model.display());
        let logits = stories.logits(&format!("{golden}_{number}"));
        let (got, wanted): (Vec<f64>, Vec<f64>) =
            (said.prompt_logits.iter().copied().collect(), logits.iter().copied().collect());
        let nmse = nmse(&got, &wanted);
        assert!(nmse < nmse_max, "{}, prompt {number}: NMSE {nmse:e}", model.display());
    }
    for (number, said) in say(model, "cpu", &prompts, 200, false).iter().enumerate() {
        let end = expected[number].iter().position(|id| *id == EOS || *id == BOS).map_or(200, |place| place + 1);
        assert_eq!(said.ids, expected[number][..end], "{} on cpu, prompt {number}", model.display());
    }
}

// The goldens were computed in f32, so this is the noise of their computation, not of ours.
const F32_NOISE: f64 = 1e-9;

#[test]
fn the_directory_forms() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sharded = scratch.path().join("sharded");
    write_variant(&stories().folder, &sharded, Storage::F32, 3);
    for (name, folder) in [("bf16", stories().folder), ("f32", sharded)] {
        let model = scratch.path().join(format!("{name}.gguf"));
        let checks = convert(&folder, &model, Some(DType::F32), None);
        assert!(checks.iter().all(|check| check.agreement == Agreement::Exact), "{name}: {checks:?}");
        tells_the_stories(&model, "logits", F32_NOISE);
    }
}

#[test]
fn the_llama2c_versions() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let versions = [("v0", Version::V0, "logits"), ("v1", Version::V1, "logits"), ("v2", Version::V2(32), "logits_v2")];
    for (name, version, golden) in versions {
        let source = scratch.path().join(format!("{name}.bin"));
        write_llama2c(&stories().folder, &source, version, 10_000.0);
        let model = scratch.path().join(format!("{name}.gguf"));
        let checks = convert(&source, &model, Some(DType::F32), Some(tokenizer_bin()));
        assert!(checks.iter().all(|check| check.agreement == Agreement::Exact), "{name}: {checks:?}");
        let file = Gguf::open(&model).expect("it was just written");
        assert_eq!(file.metadata().u64("tokenizer.ggml.eot_token_id"), Ok(1), "{name}: bos ends a text");
        tells_the_stories(&model, golden, F32_NOISE);
    }
}

#[test]
fn the_frequency_table_of_version_0_is_believed_or_refused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let source = scratch.path().join("theta.bin");
    write_llama2c(&stories().folder, &source, Version::V0, 500_000.0);
    let model = scratch.path().join("theta.gguf");
    convert(&source, &model, None, Some(tokenizer_bin()));
    let theta =
        Gguf::open(&model).expect("it was just written").metadata().f64("llama.rope.freq_base").expect("a base");
    assert_relative_eq!(theta, 500_000.0, max_relative = 1e-4);

    let mut bytes = fs::read(&source).expect("it was just written");
    let angle = bytes.len() - 4 * (256 * 16 / 2) + 40;
    bytes[angle..angle + 4].copy_from_slice(&0.25f32.to_le_bytes());
    fs::write(&source, bytes).expect("scratch files can be written");
    let error = trueup::formats::open(&source, &trueup::formats::OpenOptions { tokenizer: Some(tokenizer_bin()) });
    let error = error.err().expect("a table that no theta explains is refused").to_string();
    assert!(error.contains("theta.bin") && error.contains("freq"), "{error}");
}

#[test]
fn a_tokenizer_without_scores_decodes_and_says_what_encoding_lacks() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let source = scratch.path().join("old.bin");
    write_llama2c(&stories().folder, &source, Version::V0, 10_000.0);
    // The older file: for each token its length and its bytes, no longest length and no scores.
    let today = fs::read(tokenizer_bin()).expect("a fixture");
    let mut rest = &today[4..];
    let mut old = Vec::new();
    while !rest.is_empty() {
        let length = usize::try_from(i32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]])).expect("a length");
        old.extend(&rest[4..8 + length]);
        rest = &rest[8 + length..];
    }
    let tokenizer = scratch.path().join("tokenizer.bin");
    fs::write(&tokenizer, old).expect("scratch files can be written");
    let model = scratch.path().join("old.gguf");
    convert(&source, &model, None, Some(tokenizer));
    let tokenizer = trueup::text::open_tokenizer(&model, None).unwrap_or_else(|error| panic!("{error}"));
    let story = &stories().prompts()[0];
    assert_eq!(String::from_utf8_lossy(&tokenizer.decode(&story.ids[1..], true)).trim_start(), story.text);
    let error = tokenizer.encode(&story.text, true).expect_err("there are no scores to encode by").to_string();
    assert!(error.contains("scores"), "{error}");
}
