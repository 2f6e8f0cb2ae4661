//! Every fixture model, converted: names, keys, values against software that is not ours, and the same bytes for any
//! threads.

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use trueup_blocks::DType;
use trueup_convert::{Agreement, Options, check, convert};
use trueup_formats::gguf::{Split, Value};
use trueup_formats::{Checkpoint, Gguf, OpenOptions, open};
use trueup_quantize::{NoProgress, Recipe};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn source(folder: &str) -> Box<dyn Checkpoint> {
    open(fixtures().join(folder), &OpenOptions::default()).unwrap()
}

/// Converts to a temporary file and opens the result; the folder must live as long as the file is used.
fn converted(source: &dyn Checkpoint, recipe: Recipe, threads: usize) -> (tempfile::TempDir, Gguf) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("model.gguf");
    let options = Options { recipe, threads: Some(threads), ..Options::default() };
    convert(source, &output, &options, &NoProgress).unwrap();
    let written = Gguf::open(&output).unwrap();
    (folder, written)
}

const MODELS: [&str; 9] = [
    "models/llama2",
    "models/llama3",
    "models/llama3-tied",
    "models/llama-linear",
    "models/llama-yarn",
    "models/mistral",
    "models/qwen2",
    "models/qwen3",
    "stories-1M",
];

/// Weights of the fixtures are exact in each of these types.
#[test]
fn every_fixture_comes_back_exact_in_every_plain_type() {
    for model in MODELS {
        let source = source(model);
        for dtype in [None, Some(DType::F32), Some(DType::F16), Some(DType::Bf16)] {
            let (_folder, written) = converted(source.as_ref(), Recipe::new(dtype), 2);
            let checks = check(source.as_ref(), &written, Some(2)).unwrap();
            assert_eq!(checks.len(), written.tensors().len());
            for line in checks {
                let is_stories_f16 = model == "stories-1M" && dtype == Some(DType::F16);
                let fits = line.agreement == Agreement::Exact
                    || is_stories_f16 && matches!(line.agreement, Agreement::Rounded { .. });
                assert!(fits, "{model} as {dtype:?}: {line:?}");
            }
            for tensor in written.tensors() {
                let expected = if tensor.shape.len() == 1 { DType::F32 } else { dtype.unwrap_or(DType::Bf16) };
                assert_eq!(tensor.dtype, expected, "{model}: {}", tensor.name);
            }
        }
    }
}

/// Folders of all fixtures below the folder of this name.
fn folders(kind: &str) -> Vec<String> {
    let entries = std::fs::read_dir(fixtures().join(kind)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| format!("{kind}/{}", entry.unwrap().file_name().to_string_lossy())).collect();
    names.sort();
    names
}

/// llama.cpp's converter stores these tensors as f32, also with two dimensions. llama.cpp adds or multiplies them as
/// they are, and ends the process if they are bf16.
#[test]
fn norms_of_heads_and_positions_are_f32_in_every_type() {
    let names = ["models", "encoders", "encoder-decoders"].map(folders).concat();
    let mut with_matrices = std::collections::BTreeSet::new();
    for name in &names {
        let source = source(name);
        for dtype in [None, Some(DType::Bf16), Some(DType::F16), Some(DType::Q8_0), Some(DType::Q4_0)] {
            let (_folder, written) = converted(source.as_ref(), Recipe::new(dtype), 2);
            let is_f32 = |name: &str| {
                name.ends_with("_norm.weight") || ["position_embd.weight", "token_types.weight"].contains(&name)
            };
            for tensor in written.tensors().iter().filter(|tensor| is_f32(&tensor.name)) {
                assert_eq!(tensor.dtype, DType::F32, "{name} as {dtype:?}: {}", tensor.name);
                if tensor.shape.len() > 1 {
                    with_matrices.insert(name.as_str());
                }
            }
        }
    }
    let expected = ["encoders/bert", "encoders/bert-cased", "models/command-r", "models/gpt2", "models/stablelm2-12b"];
    let expected = expected.into_iter().chain(["models/starcoder"]);
    assert_eq!(with_matrices, expected.collect());
}

/// Bytes of whole files: with one thread and with three.
#[test]
fn the_number_of_threads_changes_no_byte() {
    for recipe in [Recipe::new(None), Recipe::new(Some(DType::Q4_0))] {
        let source = source("stories-1M");
        let files: Vec<Vec<u8>> = [1, 3]
            .into_iter()
            .map(|threads| {
                let (folder, _) = converted(source.as_ref(), recipe.clone(), threads);
                std::fs::read(folder.path().join("model.gguf")).unwrap()
            })
            .collect();
        assert!(files[0] == files[1]);
    }
}

/// `fixtures/quantized/quantized.json`: names, types and contents that the gguf package gives these models, rows of q
/// and k sorted by its own converter's rule (scripts/make_quantized_goldens.py).
#[test]
fn quantizing_on_the_way_gives_the_tensors_of_other_software() {
    let text = std::fs::read_to_string(fixtures().join("quantized/quantized.json")).unwrap();
    let goldens: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut compared = 0;
    for golden in goldens["models"].as_array().unwrap() {
        let folder = golden["folder"].as_str().unwrap().trim_start_matches("fixtures/").to_owned();
        let dtype = DType::from_name(golden["type"].as_str().unwrap());
        let source = source(&folder);
        let (_folder, written) = converted(source.as_ref(), Recipe::new(dtype), 2);
        let tensors = golden["tensors"].as_object().unwrap();
        assert_eq!(tensors.len(), written.tensors().len(), "{folder}");
        for (number, tensor) in written.tensors().iter().enumerate() {
            let mut bytes = vec![0; tensor.bytes as usize];
            written.read(number, 0, &mut bytes).unwrap();
            let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            let expected = &tensors[&tensor.name];
            assert_eq!(expected["type"].as_str(), Some(tensor.dtype.name()), "{folder}: {}", tensor.name);
            assert_eq!(expected["sha256"].as_str(), Some(hash.as_str()), "{folder} as {dtype:?}: {}", tensor.name);
            compared += 1;
        }
    }
    assert!(compared > 60, "only {compared} tensors compared");
}

/// Keys as programs that run such files look for them; values from each fixture's config.json.
#[test]
fn keys_say_what_the_description_says() {
    let cases: [(&str, &[(&str, Value)]); 6] = [
        (
            "models/llama3",
            &[
                ("general.architecture", Value::from("llama")),
                ("general.type", Value::from("model")),
                ("general.name", Value::from("llama3")),
                ("general.file_type", Value::U32(32)),
                ("llama.vocab_size", Value::U32(401)),
                ("llama.context_length", Value::U32(256)),
                ("llama.embedding_length", Value::U32(64)),
                ("llama.block_count", Value::U32(2)),
                ("llama.feed_forward_length", Value::U32(96)),
                ("llama.attention.head_count", Value::U32(8)),
                ("llama.attention.head_count_kv", Value::U32(2)),
                ("llama.attention.key_length", Value::U32(8)),
                ("llama.attention.value_length", Value::U32(8)),
                ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
                ("llama.rope.dimension_count", Value::U32(8)),
                ("llama.rope.freq_base", Value::F32(10_000.0)),
                ("tokenizer.ggml.model", Value::from("gpt2")),
            ],
        ),
        (
            "models/llama-linear",
            &[
                ("llama.rope.scaling.type", Value::from("linear")),
                ("llama.rope.scaling.factor", Value::F32(4.0)),
                ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-6)),
                ("tokenizer.ggml.model", Value::from("llama")),
            ],
        ),
        (
            "models/llama-yarn",
            &[
                ("llama.rope.scaling.type", Value::from("yarn")),
                ("llama.rope.scaling.factor", Value::F32(4.0)),
                ("llama.rope.scaling.original_context_length", Value::U32(64)),
            ],
        ),
        (
            "models/mistral",
            &[("llama.attention.sliding_window", Value::U32(16)), ("llama.rope.freq_base", Value::F32(1e6))],
        ),
        (
            "models/qwen2",
            &[("general.architecture", Value::from("qwen2")), ("qwen2.attention.head_count_kv", Value::U32(2))],
        ),
        (
            "models/qwen3",
            &[("general.architecture", Value::from("qwen3")), ("qwen3.attention.key_length", Value::U32(32))],
        ),
    ];
    for (model, keys) in cases {
        let source = source(model);
        let (_folder, written) = converted(source.as_ref(), Recipe::new(None), 1);
        for (key, value) in keys {
            assert_eq!(written.metadata().value(key), Some(value), "{model}: {key}");
        }
        let tensor = |name: &str| written.tensors().iter().any(|tensor| tensor.name == name);
        assert_eq!(tensor("rope_freqs.weight"), model == "models/llama3", "{model}");
        let is_tied = ["models/llama-linear", "models/llama-yarn", "models/qwen2"].contains(&model);
        assert_eq!(tensor("output.weight"), !is_tied, "{model}");
        assert!(!written.metadata().contains("general.alignment"));
    }
}

#[test]
fn a_model_in_several_files_is_the_same_model() {
    let source = source("models/llama2");
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("model.gguf");
    // By layers: the embedding, two layers, the norm with the head.
    for (split, files) in [(Split::Bytes(100_000), None), (Split::Layers, Some(4))] {
        let options = Options { split, ..Options::default() };
        let report = convert(source.as_ref(), &output, &options, &NoProgress).unwrap();
        assert!(report.files.len() > 2 && files.is_none_or(|files| files == report.files.len()), "{:?}", report.files);
        let written = Gguf::open(&report.files[0]).unwrap();
        assert_eq!(written.file_count(), report.files.len());
        let checks = check(source.as_ref(), &written, None).unwrap();
        assert!(checks.iter().all(|line| line.agreement == Agreement::Exact), "{checks:?}");
    }
}
