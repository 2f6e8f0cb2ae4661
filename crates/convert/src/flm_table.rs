//! The table of keys of a `.flm` file: what it says of the model, what a person sets, and whether that is the model
//! whose tensors are written.

use crate::overrides::Override;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::Path;
use trueup_formats::flm::{FlmVocabulary, printed, words};
use trueup_formats::{Error, Result, quote};
use trueup_graph::op::RopeScaling;
use trueup_models::{Architecture, ModelSpec, RopeFactors, SourceNames, expected_tensors};
use trueup_tokenizer::PROMPT_KEYS;

/// The key that FastLLM takes instead of them.
const TEMPLATE: &str = "chat_template";
/// The key that counts adapters.
const ADAPTERS: &str = "peft_size";
/// Kinds of scaling of the rotation that FastLLM computes.
const SCALINGS: [&str; 3] = ["linear", "dynamic", "default"];

/// A description as keys of a table, in the words that FastLLM reads; `name` is what it calls the kind of model.
pub(crate) fn table(config: &Map<String, Value>, spec: &ModelSpec, name: &str) -> Vec<(String, String)> {
    let mut config = config.clone();
    config.insert("model_type".to_owned(), Value::from(name));
    config.extend(spec.flm_keys());
    let mut table = Vec::new();
    for (key, value) in &config {
        match value {
            Value::Object(parts) if key == "rope_scaling" => {
                // FastLLM asks for the older name of the key.
                let part = |part: &str| {
                    if part == "rope_type" && !parts.contains_key("type") { "type" } else { part }.to_owned()
                };
                table.extend(parts.iter().map(|(key, value)| (format!("rope_scaling.{}", part(key)), printed(value))));
            }
            _ => table.push((key.clone(), printed(value))),
        }
    }
    table
}

/// What FastLLM computes otherwise than the model: a sentence each.
pub(crate) fn notes(spec: &ModelSpec) -> Vec<String> {
    let mut notes = Vec::new();
    let kind = spec.rope().and_then(|rope| match rope.scaling {
        _ if rope.factors != RopeFactors::None => Some("llama3"),
        RopeScaling::Yarn { .. } => Some("yarn"),
        RopeScaling::Long { .. } => Some("longrope"),
        RopeScaling::None | RopeScaling::Linear { .. } => None,
    });
    if let Some(kind) = kind {
        notes.push(format!(
            "FastLLM may not support the rotation scaling \"{kind}\" and may ignore it: its 2025 version \
             supports only {}",
            SCALINGS.join(", ")
        ));
    }
    if let Some(window) = spec.window() {
        notes.push(format!("FastLLM has no sliding window of {window} tokens: its results differ for longer texts"));
    }
    notes
}

/// Sets what a person wants; `path` is the model. Notes what gives way to it.
pub(crate) fn set_keys(
    file: &mut FlmVocabulary,
    overrides: &[Override],
    path: &Path,
    notes: &mut Vec<String>,
) -> Result<()> {
    // Adapters stay behind, and with this key FastLLM would look for them.
    file.table.retain(|(key, _)| key != ADAPTERS);
    let mut places: HashMap<String, usize> =
        file.table.iter().enumerate().map(|(place, (key, _))| (key.clone(), place)).collect();
    for (key, value) in overrides.iter().map(Override::pair) {
        if key == ADAPTERS {
            let problem = format!("{ADAPTERS} is the number of adapters, but adapters are not written");
            return Err(Error::new(path, problem).at("--metadata").help("leave the key out"));
        }
        let place = *places.entry(key.to_owned()).or_insert(file.table.len());
        match file.table.get_mut(place) {
            Some((_, old)) => value.clone_into(old),
            None => file.table.push((key.to_owned(), value.to_owned())),
        }
    }
    let sets = |key: &str| overrides.iter().any(|change| change.pair().0 == key);
    if PROMPT_KEYS.iter().any(|key| sets(key)) && !sets(TEMPLATE) {
        let before = file.table.len();
        file.table.retain(|(key, _)| key != TEMPLATE);
        if file.table.len() < before {
            notes.push(format!(
                "the model's chat template is omitted, because FastLLM would use it instead of {}",
                PROMPT_KEYS.join(", ")
            ));
        }
    }
    Ok(())
}

/// Fails where the table describes another model than tensors of these names and shapes are of.
pub(crate) fn check(
    file: &FlmVocabulary,
    shapes: &HashMap<&str, &[u64]>,
    overrides: &[Override],
    path: &Path,
) -> Result<()> {
    let place = if overrides.is_empty() { "the table of the file to be written" } else { "--metadata" };
    let mut config = words(&file.table);
    config.insert("tie_word_embeddings".to_owned(), Value::Bool(false));
    let architecture = Architecture::of_config(&config, path)?;
    let spec = ModelSpec::from_config(architecture, &config, shapes.len(), path)?;
    let names = SourceNames::new(architecture, shapes.keys().copied());
    for expected in expected_tensors(&spec, &names).into_iter().flat_map(|expected| expected.sources) {
        let name = &expected.name;
        let found = shapes.get(name.as_str()).copied();
        if found != Some(&expected.shape[..]) {
            let found = found.map_or("none of that name".to_owned(), |shape| format!("{shape:?}"));
            let problem = format!(
                "the keys describe a model whose tensor {} is {:?}, found {found}",
                quote(name),
                expected.shape
            );
            return Err(Error::new(path, problem).at(place).help("omit the keys that describe the model's sizes"));
        }
    }
    Ok(())
}
