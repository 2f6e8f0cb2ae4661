//! `.flm` files that FastLLM's own programs wrote: converted, they compute what their weights mean and cut text as it was cut before.

use std::path::PathBuf;
use trueup::convert::Agreement;
use trueup::formats::{Checkpoint, Flm, Gguf};
use trueup::tokenizer::{ChatTemplate, Message, Tokenizer, Vocabulary};
use trueup_tests::{Fixture, convert, flm, nmse, say};

/// The goldens were computed in f32, so this is the noise of their computation, not of ours.
const F32_NOISE: f64 = 1e-9;
const NAMES: [&str; 3] = ["llama_int8", "llama_quantool_4", "qwen2_fasttok_float16"];

fn converted(fixture: &Fixture, scratch: &tempfile::TempDir) -> PathBuf {
    let model = scratch.path().join(format!("{}.gguf", fixture.name));
    let checks = convert(&fixture.folder.join("model.flm"), &model, None, None);
    assert!(checks.iter().all(|check| check.agreement == Agreement::Exact), "{}: {checks:?}", fixture.name);
    model
}

fn ids(value: &serde_json::Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("ids")
}

#[test]
fn logits_are_those_of_the_weights_that_the_loader_reads() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    for name in NAMES {
        let fixture = flm(name);
        let model = converted(&fixture, &scratch);
        let prompts: Vec<Vec<u32>> =
            fixture.golden["prompts"].as_array().expect("prompts").iter().map(|prompt| ids(&prompt["ids"])).collect();
        for (number, said) in say(&model, "ref", &prompts, 1, true).iter().enumerate() {
            let golden = fixture.logits(&format!("logits_{number}"));
            let (got, wanted): (Vec<f64>, Vec<f64>) =
                (said.prompt_logits.iter().copied().collect(), golden.iter().copied().collect());
            let nmse = nmse(&got, &wanted);
            assert!(nmse < F32_NOISE, "{name}, prompt {number}: NMSE {nmse:e}");
        }
    }
}

#[test]
fn texts_become_the_ids_that_they_were() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    for name in NAMES {
        let fixture = flm(name);
        let model = converted(&fixture, &scratch);
        let file = Gguf::open(&model).expect("it was just written");
        let vocabulary = Vocabulary::from_metadata(file.metadata(), &model).expect("a vocabulary");
        let tokenizer = Tokenizer::new(vocabulary).expect("a tokenizer");
        let texts = fixture.golden["texts"].as_array().expect("texts");
        assert!(texts.len() > 10, "{name}");
        for text in texts {
            let found = tokenizer.encode(text["text"].as_str().expect("a text"), false).expect("ids");
            assert_eq!(found, ids(&text["ids_no_special"]), "{name}: {text}");
        }
    }
}

/// FastLLM joins queries, keys and values, and gate and up, before it writes 4-bit files; a checkpoint has them apart.
#[test]
fn joined_tensors_are_read_apart() {
    let joined = Flm::open(flm("llama_quantool_4").folder.join("model.flm"), None).expect("a model");
    let apart = Flm::open(flm("llama_int8").folder.join("model.flm"), None).expect("a model");
    let facts = |model: &Flm| {
        let mut facts: Vec<_> = model.tensors().iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect();
        facts.sort();
        facts
    };
    assert_eq!(facts(&joined), facts(&apart));
    assert!(joined.notes().iter().any(|note| note.contains("6 tensors that FastLLM joined")), "{:?}", joined.notes());
}

/// By the rule of FastLLM's prompts: what goes before, the user's mark, the words, the mark of the answer; between rounds what parts them.
#[test]
fn prompts_of_the_file_are_a_template() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let said = |role: &str, content: &str| Message { role: role.to_owned(), content: content.to_owned() };
    let rounds = [said("user", "Hi 'you'\\"), said("assistant", "Ho."), said("user", "More?")];
    for (name, expected) in [
        ("llama_int8", "[INST] Hi 'you'\\ [/INST]Ho.[INST] More? [/INST]"),
        (
            "qwen2_fasttok_float16",
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|><|im_start|>user\nHi 'you'\\<|im_end|><|im_start|>assistant\nHo.\
             <|im_end|>\n<|im_start|>user\nMore?<|im_end|><|im_start|>assistant\n",
        ),
    ] {
        let model = converted(&flm(name), &scratch);
        let file = Gguf::open(&model).expect("it was just written");
        let vocabulary = Vocabulary::from_metadata(file.metadata(), &model).expect("a vocabulary");
        let template = ChatTemplate::of(&vocabulary).expect("valid Jinja").expect("a template");
        assert_eq!(template.render(&rounds, true).expect("a text"), expected, "{name}");
    }
}
