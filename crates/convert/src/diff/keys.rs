//! Keys of both sides, by what they mean.

use super::side::Side;
use super::{Difference, Kind};
use crate::slim;
use trueup_formats::gguf::{Array, Metadata, Value};
use trueup_formats::{Result, listed, quote};
use trueup_models::Model;
use trueup_tokenizer::Vocabulary;

/// Beginnings of keys that say what the model computes and how it reads text, where they are compared as they stand.
const MEANT: [&str; 3] = ["tokenizer.", "trueup.tokenizer.", "general.architecture"];

/// A key with its value on both sides.
type Compared<'a> = (&'a str, Option<&'a Value>, Option<&'a Value>);

/// How many keys were compared, and those that differ.
pub(super) fn compare(a: &Side, b: &Side, notes: &mut Vec<String>) -> Result<(usize, Vec<Difference>)> {
    let (mut a_keys, mut b_keys) = (keys(a, notes)?, keys(b, notes)?);
    if Vocabulary::is_in(&a_keys) != Vocabulary::is_in(&b_keys) {
        let without = if Vocabulary::is_in(&a_keys) { b } else { a };
        notes.push(format!("{} has no tokenizer; tokenizers are not compared", without.name()));
        a_keys = without_tokenizer(&a_keys);
        b_keys = without_tokenizer(&b_keys);
    }
    let (side_a, side_b) = (a, b);
    if let (Some(a), Some(b)) = (a.slimmed(), b.slimmed()) {
        add(slim::KEYS, a, &mut a_keys);
        add(slim::KEYS, b, &mut b_keys);
    }
    let only_b = b_keys.iter().filter(|(key, _)| !a_keys.contains(key));
    let all = a_keys.iter().map(|(key, value)| (key, Some(value), b_keys.value(key)));
    let all: Vec<_> = all.chain(only_b.map(|(key, value)| (key, None, Some(value)))).collect();
    let unequal = all.iter().filter(|(_, a, b)| a != b);
    let (omitted, differs): (Vec<&Compared>, Vec<&Compared>) =
        unequal.partition(|(key, a, b)| is_only_ours(key, (side_a, *a), (side_b, *b)));
    if let Some(side) = [side_a, side_b].into_iter().find(|side| is_by_another_program(side)) {
        notes.extend(note_of_omitted(side, &omitted.iter().map(|(key, ..)| *key).collect::<Vec<&str>>()));
    }
    let line = |(key, a, b): &Compared| {
        let (a, b) = described(*a, *b);
        Difference { kind: Kind::Key, name: (*key).to_owned(), a, b, values: None }
    };
    let differs: Vec<Difference> = differs.into_iter().map(line).collect();
    Ok((all.len() - omitted.len(), differs))
}

/// How keys begin that only this program writes.
const OURS: &str = "trueup.";

/// Whether a model is a GGUF file that another program wrote: it has none of this program's keys.
fn is_by_another_program(side: &Side) -> bool {
    side.metadata().is_some_and(|metadata| !metadata.iter().any(|(key, _)| key.starts_with(OURS)))
}

/// Whether a key is one that only this program writes, and the side without it is a file of another program.
fn is_only_ours(key: &str, (a, a_value): (&Side, Option<&Value>), (b, b_value): (&Side, Option<&Value>)) -> bool {
    let lacks = |side: &Side, value: Option<&Value>| value.is_none() && is_by_another_program(side);
    key.starts_with(OURS) && (lacks(a, a_value) || lacks(b, b_value))
}

/// What is said about keys that are not compared.
fn note_of_omitted(side: &Side, keys: &[&str]) -> Option<String> {
    let keys: Vec<String> = keys.iter().map(|key| quote(key)).collect();
    (!keys.is_empty()).then(|| {
        let (name, keys) = (side.name(), listed(&keys, ", "));
        format!("{name} was not written by trueup, so keys that only trueup writes are not compared: {keys}")
    })
}

fn without_tokenizer(keys: &Metadata) -> Metadata {
    kept(keys, |key| !key.starts_with("tokenizer.") && !key.starts_with("trueup.tokenizer."))
}

/// Adds keys as they stand.
fn add(names: [&str; 2], from: &Metadata, keys: &mut Metadata) {
    for (key, value) in from.iter().filter(|(key, _)| names.contains(key)) {
        keys.insert(key, value.clone());
    }
}

fn kept(keys: &Metadata, keeps: impl Fn(&str) -> bool) -> Metadata {
    let mut kept = Metadata::default();
    for (key, value) in keys.iter().filter(|(key, _)| keeps(key)) {
        kept.insert(key, value.clone());
    }
    kept
}

/// The keys as our own writer puts them, or as they stand where the file's architecture is not known.
fn keys(side: &Side, notes: &mut Vec<String>) -> Result<Metadata> {
    let mut keys = Metadata::default();
    if let Some(mapping) = side.mapping() {
        mapping.spec().write_metadata(&mut keys);
        let files = side.source.tokenizer();
        if files.has_vocabulary() {
            slim::vocabulary(side.source, mapping)?.write_metadata(&mut keys)?;
        }
        return Ok(keys);
    }
    let Some(metadata) = side.metadata() else { return Ok(keys) };
    match Model::from_gguf(metadata, side.source.tensors(), side.source.path()) {
        Ok(model) => {
            let fewer = side.kept.as_ref().and_then(|kept| model.spec().clone().pruned(kept));
            fewer.as_ref().unwrap_or(model.spec()).write_metadata(&mut keys);
        }
        Err(error) => {
            notes.push(format!("the model sizes of {} are compared as stored: {error}", side.name()));
            let architecture = metadata.string("general.architecture").unwrap_or_default();
            let own = format!("{architecture}.");
            let is_meant = |key: &str| key.starts_with(&own) || MEANT.iter().any(|start| key.starts_with(start));
            return Ok(kept(metadata, is_meant));
        }
    }
    if Vocabulary::is_in(metadata) {
        let mut vocabulary = Vocabulary::from_metadata(metadata, side.source.path())?;
        if let Some(kept) = &side.kept {
            vocabulary = vocabulary.slimmed(kept)?;
        }
        vocabulary.write_metadata(&mut keys)?;
    }
    Ok(keys)
}

/// Both values for people; of two lists only where they differ first.
fn described(a: Option<&Value>, b: Option<&Value>) -> (Option<String>, Option<String>) {
    let (Some(Value::Array(first)), Some(Value::Array(second))) = (a, b) else {
        return (a.map(text), b.map(text));
    };
    let longer = first.len().max(second.len());
    let place = (0..longer).find(|place| first.value(*place) != second.value(*place)).unwrap_or(0);
    let item = |list: &Array| match list.value(place) {
        Some(value) => format!("item {place} of {}: {}", list.len(), text(&value)),
        None => format!("{} items", list.len()),
    };
    (Some(item(first)), Some(item(second)))
}

/// Most characters of a value that are shown.
const TEXT_MAX: usize = 80;

fn text(value: &Value) -> String {
    let text = match value {
        Value::U8(number) => number.to_string(),
        Value::I8(number) => number.to_string(),
        Value::U16(number) => number.to_string(),
        Value::I16(number) => number.to_string(),
        Value::U32(number) => number.to_string(),
        Value::I32(number) => number.to_string(),
        Value::F32(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::String(text) => quote(text),
        Value::Array(items) => format!("{} items", items.len()),
        Value::U64(number) => number.to_string(),
        Value::I64(number) => number.to_string(),
        Value::F64(number) => number.to_string(),
    };
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
