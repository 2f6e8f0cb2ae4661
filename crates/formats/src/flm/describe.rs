//! The table of a file in the words of a Hugging Face configuration.

use super::codes::Codes;
use super::header::{Header, Lengths};
use super::python;
use super::records::{Coding, Record};
use crate::error::listed;
use serde_json::{Map, Value};

/// The matrix behind the last norm, as models call it.
const HEADS: [&str; 2] = ["lm_head.weight", "transformer.output_layer.weight"];

/// The keys of a table with their values, as a description of the model.
pub fn words(table: &[(String, String)]) -> Map<String, Value> {
    let mut config = Map::new();
    let mut scaling = Map::new();
    // An empty value says nothing: the quantizing program writes some that it only asked for.
    for (key, text) in table.iter().filter(|(_, text)| !text.is_empty()) {
        match key.strip_prefix("rope_scaling.") {
            Some(part) => scaling.insert(part.to_owned(), python::value(text)),
            None => config.insert(key.clone(), python::value(text)),
        };
    }
    if !scaling.is_empty() {
        config.insert("rope_scaling".to_owned(), Value::Object(scaling));
    }
    // Class names are a list; anything else says nothing.
    if !config.get("architectures").is_some_and(Value::is_array) {
        config.remove("architectures");
    }
    config
}

/// All keys with their values; and what a person should know.
pub(super) fn describe(header: &Header, records: &[Record], notes: &mut Vec<String>) -> Map<String, Value> {
    let mut config = words(&header.table);
    // Exporters write a tied head as a matrix of its own, which may be of another type than the embedding, and FastLLM
    // computes with it.
    let has_head = records.iter().any(|record| HEADS.contains(&record.name.as_str()));
    if config.insert("tie_word_embeddings".to_owned(), Value::Bool(!has_head)) == Some(Value::Bool(true)) && has_head {
        notes.push(
            "the description ties the head to the embedding, but the file contains a separate head, which is used"
                .to_owned(),
        );
    }
    drop_foreign_ends(&mut config, header.tokens(), notes);
    if header.lengths == Lengths::Characters {
        notes.push(
            "text lengths are in characters, as exporters wrote them until February 2024, and are read accordingly"
                .to_owned(),
        );
    }
    let coded = records.iter().filter_map(|record| match &record.coding {
        Coding::Codes(codes) => Some(codes),
        Coding::Plain { .. } => None,
    });
    let coded: Vec<&Codes> = coded.collect();
    if !coded.is_empty() {
        let halves = coded.iter().filter(|codes| codes.are_halves).count();
        let count = coded.len();
        notes.push(format!(
            "{count} tensors of 8- or 4-bit codes ({halves} of 4 bits) are decoded to f32; a quantized output \
             type rounds them again"
        ));
    }
    config
}

/// Exporters write ends of text that belong to another vocabulary: what no token has is left out.
fn drop_foreign_ends(config: &mut Map<String, Value>, tokens: usize, notes: &mut Vec<String>) {
    let rows = config.get("vocab_size").and_then(Value::as_u64).unwrap_or(0);
    let count = rows.max(u64::try_from(tokens).unwrap_or(0));
    if count == 0 {
        return;
    }
    let is_foreign = |value: &Value| value.as_u64().is_some_and(|id| id >= count);
    for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
        let (left, foreign) = match config.get(key) {
            Some(Value::Array(ids)) => {
                let (foreign, left): (Vec<Value>, Vec<Value>) = ids.iter().cloned().partition(is_foreign);
                ((!left.is_empty()).then_some(Value::Array(left)), foreign)
            }
            Some(id) if is_foreign(id) => (None, vec![id.clone()]),
            Some(_) | None => continue,
        };
        if foreign.is_empty() {
            continue;
        }
        match left {
            Some(left) => config.insert(key.to_owned(), left),
            None => config.remove(key),
        };
        let foreign: Vec<String> = foreign.iter().map(Value::to_string).collect();
        let listed = listed(&foreign, " and ");
        notes.push(format!("{key}: {listed} ignored, because the vocabulary has only {count} tokens"));
    }
}
