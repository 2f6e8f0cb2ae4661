//! What a trace of this program says about the model it was made from: each tensor's name, type, shape and hash.
//!
//! A few tensors with other contents are what a trace is good for: it names the node where that shows. Other names or
//! shapes, or other contents in most tensors, are another model, of which every node would differ.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

use crate::model_hash::{TensorFacts, model_hash};
use std::collections::HashMap;
use trueup_formats::{Error as FileError, Trace, counted, quote};
use trueup_runtime::{Error, Result};

/// Text with the sha256 of the model's tensors.
pub(super) const KEY_MODEL: &str = "model_sha256";
/// Text with what is known of each tensor.
pub(super) const KEY_TENSORS: &str = "model_tensors";

/// Digits of a hash that a message shows.
const DIGITS_SHOWN: usize = 12;

/// Fails where a trace says that it was made from another model than the one with these tensors.
pub(super) fn expect_same_model(trace: &Trace, ours: &[TensorFacts]) -> Result<()> {
    let Some(text) = trace.text(KEY_TENSORS) else { return Ok(()) };
    let theirs: Vec<TensorFacts> = serde_json::from_str(text).map_err(|error| {
        let problem = format!("expected a list of tensors: {}", quote(&error.to_string()));
        Error::File(FileError::new(trace.source().path(), problem).at(format!("text {KEY_TENSORS}")))
    })?;
    let Some(difference) = difference(&theirs, ours) else { return Ok(()) };
    let path = quote(&trace.source().path().to_string_lossy());
    Err(Error::Request(format!(
        "{path}: expected a trace of this model, found one of another model: {difference}; pass the model that the \
         trace was recorded from"
    )))
}

/// What makes it another model.
fn difference(theirs: &[TensorFacts], ours: &[TensorFacts]) -> Option<String> {
    let known: HashMap<&str, &TensorFacts> = theirs.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let mut other_shapes = Vec::new();
    let mut other_contents = Vec::new();
    for tensor in ours {
        let name = quote(&tensor.name);
        match known.get(tensor.name.as_str()) {
            None => other_shapes.push(format!("{name} is missing from the trace's model")),
            Some(other) if other.shape != tensor.shape => {
                let (there, here) = (&other.shape, &tensor.shape);
                other_shapes.push(format!("{name} has shape {there:?} in the trace and {here:?} in the model"));
            }
            Some(other) if other.dtype != tensor.dtype => {
                let there = quote(&other.dtype);
                other_contents.push(format!("{name} has type {there} in the trace and {} in the model", tensor.dtype));
            }
            Some(other) if other.sha256 != tensor.sha256 => other_contents.push(format!("{name} has different values")),
            Some(_) => {}
        }
    }
    let own: HashMap<&str, &TensorFacts> = ours.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let added = theirs.iter().filter(|tensor| !own.contains_key(tensor.name.as_str()));
    other_shapes.extend(added.map(|tensor| format!("{} is missing from the model", quote(&tensor.name))));
    if let Some(first) = other_shapes.first() {
        let more = match other_shapes.len() {
            1 => String::new(),
            2 => ", and 1 more tensor differs".to_owned(),
            count => format!(", and {} more tensors differ", count.saturating_sub(1)),
        };
        return Some(format!("{first}{more}"));
    }
    let first = other_contents.first().filter(|_| other_contents.len() > ours.len() / 2)?;
    let (count, all) = (other_contents.len(), ours.len());
    let differ = if count == 1 { "differs" } else { "differ" };
    let shown = |facts| model_hash(facts).chars().take(DIGITS_SHOWN).collect::<String>();
    let (there, here) = (shown(theirs), shown(ours));
    Some(format!(
        "{count} of {} {differ} (sha256 {there} in the trace and {here} in the model), first {first}",
        counted(all, "tensor")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(tensors: &[(&str, &str, u64, &str)]) -> Vec<TensorFacts> {
        let facts = |(name, dtype, size, hash): &(&str, &str, u64, &str)| TensorFacts {
            name: (*name).to_owned(),
            dtype: (*dtype).to_owned(),
            shape: vec![*size],
            sha256: (*hash).to_owned(),
        };
        tensors.iter().map(facts).collect()
    }

    #[test]
    fn other_shapes_and_other_contents_of_most_tensors_are_another_model() {
        let ours = facts(&[("a", "f16", 4, "1"), ("b", "f16", 4, "2"), ("c", "f32", 4, "3")]);
        let told = |theirs: &[(&str, &str, u64, &str)]| difference(&facts(theirs), &ours).unwrap_or_default();
        assert_eq!(told(&[("a", "f16", 4, "1"), ("b", "f16", 4, "2"), ("c", "f32", 4, "3")]), "");
        assert_eq!(told(&[("a", "f16", 4, "1"), ("b", "f16", 4, "other"), ("c", "f32", 4, "3")]), "", "one of three");
        let quantized = told(&[("a", "q8_0", 4, "x"), ("b", "q8_0", 4, "y"), ("c", "f32", 4, "3")]);
        assert!(quantized.starts_with("2 of 3 tensors differ (sha256 "), "{quantized}");
        assert!(quantized.ends_with("first a has type q8_0 in the trace and f16 in the model"), "{quantized}");
        let smaller = told(&[("a", "f16", 2, "1"), ("b", "f16", 4, "2"), ("d", "f32", 4, "3")]);
        assert_eq!(smaller, "a has shape [2] in the trace and [4] in the model, and 2 more tensors differ");
    }
}
