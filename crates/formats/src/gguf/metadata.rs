//! The key-value section: ordered, each key once, with getters that say what they found instead.

use super::value::{Array, Value};
use crate::error::quote;
use std::collections::HashMap;
use std::fmt;

/// Keys and values in the order of the file.
#[derive(Clone, Default, Debug)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    places: HashMap<String, usize>,
}

/// A key that is absent or has another type than expected. Add the file with [`MetadataError::in_file`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetadataError {
    /// The key that was asked for.
    pub key: String,
    /// The type that was expected.
    pub expected: &'static str,
    /// The value that was found, as text; `None` when the key is absent.
    pub found: Option<String>,
}

/// What the typed getters return.
type Found<T> = Result<T, MetadataError>;

impl Metadata {
    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<&Value> {
        let place = *self.places.get(key)?;
        self.entries.get(place).map(|(_, value)| value)
    }

    /// Whether the key is there.
    pub fn contains(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets a key: in its place when it is there, else at the end. Returns the value it had.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        if let Some(entry) = self.places.get(&key).and_then(|&place| self.entries.get_mut(place)) {
            return Some(std::mem::replace(&mut entry.1, value));
        }
        self.places.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        None
    }

    /// Takes a key out; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let place = self.places.remove(key)?;
        let (_, value) = self.entries.remove(place);
        for later in self.places.values_mut().filter(|later| **later > place) {
            *later = later.saturating_sub(1);
        }
        Some(value)
    }

    /// A text.
    pub fn string(&self, key: &str) -> Found<&str> {
        self.typed(key, "a string", |value| if let Value::String(text) = value { Some(text.as_str()) } else { None })
    }

    /// An integer of any width that is not negative.
    pub fn u64(&self, key: &str) -> Found<u64> {
        self.typed(key, "a non-negative integer", Value::as_u64)
    }

    /// A float of either width.
    pub fn f64(&self, key: &str) -> Found<f64> {
        self.typed(key, "a float", Value::as_f64)
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Found<bool> {
        self.typed(key, "a bool", |value| if let Value::Bool(flag) = value { Some(*flag) } else { None })
    }

    /// An array of any type.
    pub fn array(&self, key: &str) -> Found<&Array> {
        self.typed(key, "an array", |value| if let Value::Array(array) = value { Some(array) } else { None })
    }

    /// An array of texts.
    pub fn strings(&self, key: &str) -> Found<&[String]> {
        self.items(
            key,
            "an array of strings",
            |array| if let Array::String(items) = array { Some(items) } else { None },
        )
    }

    /// An array of f32.
    pub fn f32s(&self, key: &str) -> Found<&[f32]> {
        self.items(key, "an array of f32", |array| if let Array::F32(items) = array { Some(items) } else { None })
    }

    /// An array of i32.
    pub fn i32s(&self, key: &str) -> Found<&[i32]> {
        self.items(key, "an array of i32", |array| if let Array::I32(items) = array { Some(items) } else { None })
    }

    /// An array of integers of any width, none negative.
    pub fn u64s(&self, key: &str) -> Found<Vec<u64>> {
        self.typed(key, "an array of non-negative integers", |value| {
            let Value::Array(array) = value else { return None };
            (0..array.len()).map(|index| array.value(index)?.as_u64()).collect()
        })
    }

    /// An array of bools.
    pub fn bools(&self, key: &str) -> Found<&[bool]> {
        self.items(key, "an array of bools", |array| if let Array::Bool(items) = array { Some(items) } else { None })
    }

    fn items<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        items: impl FnOnce(&'a Array) -> Option<&'a Vec<T>>,
    ) -> Found<&'a [T]> {
        let slice =
            |value: &'a Value| if let Value::Array(array) = value { items(array).map(Vec::as_slice) } else { None };
        self.typed(key, expected, slice)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Found<T> {
        let value = self.value(key);
        value.and_then(convert).ok_or_else(|| {
            let found = value.map(|value| match value {
                Value::Array(_) => value.type_name(),
                plain => format!("{} {plain}", value.type_name()),
            });
            MetadataError { key: key.to_owned(), expected, found }
        })
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Metadata) -> bool {
        self.entries == other.entries
    }
}

impl MetadataError {
    /// As an error about a file.
    pub fn in_file(&self, path: impl AsRef<std::path::Path>) -> crate::Error {
        crate::Error::new(path, format!("expected {}, found {}", self.expected, self.found_text()))
            .at(format!("key {}", quote(&self.key)))
            .help("convert the model again")
    }

    fn found_text(&self) -> &str {
        self.found.as_deref().unwrap_or("no such key")
    }
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}: expected {}, found {}", quote(&self.key), self.expected, self.found_text())
    }
}

impl std::error::Error for MetadataError {}
