//! Layouts of published checkpoints: other spellings of config.json and other names give the same file.
//!
//! `fixtures/layouts.json` holds what transformers 5 writes.

use crate::draft::{Draft, converted};
use safetensors::Dtype;
use serde_json::{Value, json};
use std::path::Path;
use trueup_convert::doctor::{Severity, diagnose};
use trueup_convert::{Agreement, Options};
use trueup_quantize::{NoProgress, Recipe};

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/layouts.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The file that a draft is converted to, and the notes. The doctor finds no damage of the draft.
fn written(draft: &Draft) -> (Vec<u8>, String) {
    let (notes, checks) = converted(draft, Recipe::new(None));
    assert!(checks.iter().all(|check| check.agreement == Agreement::Exact), "{checks:?}");
    let bytes = std::fs::read(draft.output()).unwrap();
    std::fs::remove_file(draft.output()).unwrap();
    let findings = diagnose(draft.folder.path(), Some(1), &NoProgress).unwrap().findings;
    assert!(findings.iter().all(|finding| finding.severity != Severity::Error), "{findings:#?}");
    (bytes, notes)
}

/// The changed draft gives the same file as the fixture. Returns the notes.
fn same_file(model: &str, what: &str, change: impl FnOnce(&mut Draft)) -> String {
    let mut draft = Draft::at(model);
    let (expected, _) = written(&draft);
    change(&mut draft);
    let (found, notes) = written(&draft);
    assert!(found == expected, "{model}: {what} gives another file");
    notes
}

fn rename(draft: &mut Draft, rename: impl Fn(&str) -> String) {
    let tensors = std::mem::take(&mut draft.tensors);
    draft.tensors = tensors.into_iter().map(|(name, tensor)| (rename(&name), tensor)).collect();
}

/// Other names of keys; each must be present.
fn rename_keys(draft: &mut Draft, names: &[(&str, &str)]) {
    for (before, after) in names {
        let value = draft.config.remove(*before).unwrap_or_else(|| panic!("{before}"));
        draft.config.insert((*after).to_owned(), value);
    }
}

#[test]
fn transformers_5_writes_the_same_models_in_other_words() {
    let golden = golden();
    for (model, changes) in golden["spellings"].as_object().unwrap() {
        same_file(model, "the spelling of transformers 5", |draft| {
            for key in changes["removed"].as_array().unwrap() {
                draft.config.remove(key.as_str().unwrap()).unwrap();
            }
            draft.config.extend(changes["set"].as_object().unwrap().clone());
        });
    }
}

/// transformers 5 ties the head of every T5. mT5's is not scaled, and a stored one is used.
#[test]
fn the_head_of_mt5_is_not_tied_by_transformers_5() {
    let notes = same_file("encoder-decoders/flan-t5", "the spelling of mT5", |draft| {
        assert_eq!(draft.config["tie_word_embeddings"], false);
        draft.config.insert("architectures".to_owned(), json!(["MT5ForConditionalGeneration"]));
        draft.config.insert("tie_word_embeddings".to_owned(), json!(true));
        draft.config.insert("transformers_version".to_owned(), json!("5.24.0"));
    });
    assert!(notes.contains("lm_head.weight is kept as output.weight"), "{notes}");
}

/// Both layouts of names that transformers has written, and the description of each generation.
#[test]
fn the_language_model_of_a_multimodal_checkpoint_is_read() {
    for (model, multimodal) in golden()["multimodal"].as_object().unwrap() {
        let (config, others) = (multimodal["config"].as_object().unwrap(), multimodal["others"].as_object().unwrap());
        let saved = |name: &str| format!("{}{name}", multimodal["prefix"].as_str().unwrap());
        let in_memory = |name: &str| name.replacen("model.", "model.language_model.", 1);
        let add_others = |draft: &mut Draft, prefix: &str| {
            for (name, shape) in others {
                let shape: Vec<usize> = serde_json::from_value(shape.clone()).unwrap();
                let bytes = (0..shape.iter().product()).flat_map(|number: usize| [number as u8, 0x3d]).collect();
                draft.tensors.insert(format!("{prefix}{name}"), (Dtype::BF16, shape, bytes));
            }
        };
        let notes = same_file(&format!("models/{model}"), "a multimodal checkpoint", |draft| {
            draft.config = config.clone();
            rename(draft, saved);
            add_others(draft, "");
        });
        let count = others.len();
        assert!(notes.contains(&format!("{count} tensors are unused and omitted: multi_modal_projector.")), "{notes}");
        same_file(&format!("models/{model}"), "a multimodal checkpoint of transformers 4", |draft| {
            let text = std::mem::take(&mut draft.config);
            draft.config = config.clone();
            draft.config["text_config"] = text.into();
            draft.config["text_config"]["model_type"] = config["text_config"]["model_type"].clone();
            rename(draft, in_memory);
            add_others(draft, "model.");
        });
        // A tensor of neither part is not dropped, and another language model is not taken for this one.
        let mut draft = Draft::of(model);
        draft.config = config.clone();
        rename(&mut draft, saved);
        draft.tensors.insert("audio_tower.weight".to_owned(), (Dtype::BF16, vec![2], vec![0; 4]));
        let message = draft.refused(&Options::default());
        assert!(message.contains("audio_tower.weight"), "{message}");
        draft.config["text_config"]["model_type"] = json!("other");
        let message = draft.refused(&Options::default());
        assert!(message.contains("text_config: model_type: expected \"") && message.contains("\"other\""), "{message}");
    }
}

#[test]
fn old_names_of_classes_give_the_same_file() {
    let class = |draft: &mut Draft, name: &str| drop(draft.config.insert("architectures".to_owned(), json!([name])));
    let first = [("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head")];
    // The switches that are off if they are absent.
    for (model, absent) in [
        ("models/falcon-7b", &["new_decoder_architecture", "alibi", "bias", "num_kv_heads"][..]),
        ("models/falcon-40b", &["new_decoder_architecture", "alibi", "bias", "multi_query"]),
        ("models/falcon-rw", &["new_decoder_architecture", "parallel_attn", "multi_query", "num_kv_heads"]),
    ] {
        same_file(model, "RWForCausalLM", |draft| {
            class(draft, "RWForCausalLM");
            rename_keys(draft, &first);
            absent.iter().for_each(|key| drop(draft.config.remove(*key)));
            if model.ends_with("40b") {
                rename_keys(draft, &[("num_kv_heads", "n_head_kv")]);
            }
        });
    }
    for (before, after) in [("", ""), ("input_layernorm", "ln1"), ("post_attention_layernorm", "ln2")] {
        same_file("models/llama2", "YiForCausalLM", |draft| {
            class(draft, "YiForCausalLM");
            if !before.is_empty() {
                rename(draft, |name| name.replace(before, after));
            }
        });
    }
}
