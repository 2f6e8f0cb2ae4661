//! JSON from files: bounded in size and depth (128), and no key twice in one object.
//!
//! ```
//! let path = "config.json";
//! let config = trueup_formats::json::object(path, br#"{"hidden_size": 64}"#)?;
//! assert_eq!(config["hidden_size"], 64);
//! assert!(trueup_formats::json::object(path, br#"{"a": 1, "a": 2}"#).is_err());
//! # Ok::<(), trueup_formats::Error>(())
//! ```

use crate::error::{Error, Result, quote};
use crate::source_file::SourceFile;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

/// The largest configuration file that is read, in bytes.
pub(crate) const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// One value; `path` is for the message.
pub fn value(path: impl AsRef<Path>, bytes: &[u8]) -> Result<Value> {
    parse::<Unique>(path.as_ref(), bytes).map(|unique| unique.0)
}

/// One object; `path` is for the message.
pub fn object(path: impl AsRef<Path>, bytes: &[u8]) -> Result<Map<String, Value>> {
    let path = path.as_ref();
    match value(path, bytes)? {
        Value::Object(map) => Ok(map),
        other => Err(Error::new(path, format!("expected a JSON object, found {}", kind(&other)))),
    }
}

/// A file that holds one object.
pub(crate) fn read_object(source: &SourceFile) -> Result<Map<String, Value>> {
    object(source.path(), &source.read_all(CONFIG_BYTES_MAX)?)
}

/// Any type with a reader of its own.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        let text = error.to_string();
        let problem = text.rsplit_once(" at line ").map_or(text.as_str(), |(problem, _)| problem);
        Error::new(path, format!("not the expected JSON: {}", quote(problem))).at(place)
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// An object as a list of its entries, each key once.
pub(crate) struct UniqueEntries<T>(pub Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for UniqueEntries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
    type Value = UniqueEntries<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
        let mut entries: Vec<(String, T)> = Vec::new();
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom(format!("the key \"{key}\" is there twice")));
            }
            entries.push((key, map.next_value()?));
        }
        Ok(UniqueEntries(entries))
    }
}

/// A value in which no object has a key twice.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Value, A::Error> {
        let entries = EntriesVisitor::<Unique>(PhantomData).visit_map(map)?;
        Ok(Value::Object(entries.0.into_iter().map(|(key, value)| (key, value.0)).collect()))
    }
}
