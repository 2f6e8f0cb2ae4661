//! Crates below `models` do not know which architectures exist: no name of one is in their sources.

use crate::{report, sources};
use std::collections::HashSet;
use trueup::models::ARCHITECTURES;

/// Crates that know no architecture.
const CRATES: [&str; 6] = ["blocks", "formats", "graph", "kernels", "quantize", "runtime"];

/// Published recipes of quantization name architectures, also some that no model is built for.
const RECIPES: &str = "crates/quantize/src/recipe/";

/// Names of programs, formats and publications that contain the name of an architecture.
const OTHER_NAMES: [&str; 13] = [
    "llama.cpp",
    "llama2.c",
    "llama2c",
    "Llama2cForCausalLM",
    "llama-imatrix",
    "llama-quantize",
    "convert_llama_weights_to_hf.py",
    "convert_mistral_weights_to_hf.py",
    "Mistral's own layout",
    "original Llama checkpoints",
    "Gemma Team 2024",
    "published with ChatGLM-6B",
    "sentence_bert_config.json",
];

#[test]
fn lower_crates_name_no_architecture() {
    let names = names();
    let mut faults = Vec::new();
    for source in sources() {
        let is_below = CRATES.iter().any(|name| source.path.starts_with(&format!("crates/{name}/src/")));
        let is_exempt = source.path.starts_with(RECIPES) || source.path.ends_with("/tests.rs");
        if !is_below || is_exempt || source.path.contains("/tests/") {
            continue;
        }
        // Tests use models of real architectures.
        let code = source.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let line = OTHER_NAMES.iter().fold(line.to_owned(), |line, other| line.replace(other, ""));
            for word in words(&line).filter(|word| names.contains(word)) {
                faults.push(format!("{}:{}: {word}", source.path, number + 1));
            }
        }
    }
    report("a crate below models names an architecture", &faults);
}

#[test]
fn names_are_found_in_lines() {
    let names = names();
    let found = |line: &str| words(line).any(|word| names.contains(&word));
    assert!(found("/// Elements of a head of Qwen's.") && found("(\"moss\", x)") && found("a GPT-NeoX layer"));
    assert!(found("config[\"BaichuanForCausalLM\"]") && !found("a mossy falconer"));
}

/// Names of all architectures in lower case: in GGUF, in FastLLM, and as classes.
fn names() -> HashSet<String> {
    let of = |architecture: &trueup::models::Architecture| {
        let names = [Some(architecture.gguf_name), architecture.flm_name];
        names
            .into_iter()
            .flatten()
            .chain(architecture.classes.iter().copied())
            .map(str::to_lowercase)
            .collect::<Vec<_>>()
    };
    ARCHITECTURES.iter().flat_map(|architecture| of(architecture)).collect()
}

/// The words of a line in lower case, also those that a hyphen joins.
fn words(line: &str) -> impl Iterator<Item = String> {
    let is_word = |character: char| character.is_alphanumeric();
    let parts = line.split(move |character: char| !is_word(character)).map(str::to_lowercase);
    let joined = line.split(move |character: char| !is_word(character) && character != '-');
    let all: Vec<String> = parts.chain(joined.map(|word| word.to_lowercase().replace('-', ""))).collect();
    all.into_iter().filter(|word| !word.is_empty())
}
