//! Notes about keys that a class ignores, and about what llama.cpp does not take from a file.

use crate::description;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use trueup_models::{Architecture, ModelSpec};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// The description of a fixture with keys added or replaced.
fn fixture(name: &str, more: Value) -> Map<String, Value> {
    let path = fixtures().join("models").join(name).join("config.json");
    description::with(trueup_formats::json::value(&path, &fs::read(&path).unwrap()).unwrap(), more)
}

/// The notes of a description about keys that its class ignores.
fn ignored(config: &Map<String, Value>) -> Vec<String> {
    let path = Path::new("model");
    let architecture = Architecture::of_config(config, path).unwrap();
    let (_, notes) = ModelSpec::with_notes(architecture, config, 10_000, path).unwrap();
    notes.into_iter().filter(|note| note.contains("not used by")).collect()
}

#[test]
fn keys_of_other_classes_are_named() {
    let config = fixture(
        "llama2",
        json!({ "alibi": true, "attn_logit_softcapping": 30.0, "num_local_experts": 8, "sliding_window": 16, "use_qk_norm": true }),
    );
    let expected = "config.json: alibi, attn_logit_softcapping, num_local_experts, sliding_window, use_qk_norm: not \
                    used by LlamaForCausalLM, so ignored";
    assert!(ignored(&config)[0].starts_with(expected), "{:?}", ignored(&config));
    let neutral = json!({ "alibi": false, "clip_qkv": null, "final_logit_softcapping": 0, "logit_scale": 1.0,
        "num_experts": 0, "residual_multiplier": 1, "sliding_window": null, "use_qk_norm": false });
    assert_eq!(ignored(&fixture("llama2", neutral)), [""; 0]);
    // Without a class, the architecture is found by its name.
    let mut config = fixture("llama2", json!({ "alibi": true, "model_type": "llama" }));
    config.remove("architectures");
    assert!(ignored(&config)[0].contains("not used by LlamaForCausalLM"), "{:?}", ignored(&config));
}

#[test]
fn keys_that_a_class_reads_are_not_named() {
    let published = fs::read_to_string(fixtures().join("published.json")).unwrap();
    let published: Value = serde_json::from_str(&published).unwrap();
    let mut configs: Vec<Map<String, Value>> = published["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["config"].as_object().unwrap().clone())
        .collect();
    let folders = fs::read_dir(fixtures().join("models")).unwrap().map(|entry| entry.unwrap().file_name());
    configs.extend(folders.map(|name| fixture(name.to_str().unwrap(), json!({}))));
    configs.push(fixture("qwen2moe", json!({ "sliding_window": 32_768, "use_sliding_window": false })));
    configs.push(fixture("qwen3moe", json!({ "sliding_window": 4096, "use_sliding_window": false })));
    assert!(configs.len() > 90);
    for config in configs {
        assert_eq!(ignored(&config), [""; 0], "{config:?}");
    }
}

#[test]
fn limits_of_llama_cpp_are_named() {
    let llama3 = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32 });
    let yarn = json!({ "rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0, "original_max_position_embeddings": 64 });
    let cases = [
        ("granite", json!({ "rope_scaling": llama3 }), ""),
        ("gemma", json!({ "rope_scaling": llama3 }), "rope_freqs.weight is written"),
        ("phi4-long", json!({}), "long factors of LongRoPE"),
        ("llama2", json!({ "rope_scaling": yarn }), "--yarn-beta-fast 16 --yarn-beta-slow 1"),
        ("mamba2", json!({ "use_conv_bias": false }), "the convolutions have no bias"),
        ("deepseek3", json!({ "first_k_dense_replace": 9, "rms_norm_eps": 1e-6 }), "no layer has experts"),
    ];
    for (name, more, expected) in cases {
        let spec = description::read(&fixture(name, more), 10_000).unwrap();
        let notes = spec.compatibility_notes();
        assert_eq!(notes.len(), usize::from(!expected.is_empty()), "{name}: {notes:?}");
        assert!(notes.iter().all(|note| note.contains(expected)), "{name}: {notes:?}");
    }
}
