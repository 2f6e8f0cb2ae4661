//! JSON from files: bounded in size and depth (128), and no key twice in one object.
//!
//! Files may begin with a byte order mark (UTF-8 or UTF-16). Configuration files may contain `Infinity`, `-Infinity`
//! and `NaN`, which Python's `json` writes: they become the strings [`INFINITY`], [`MINUS_INFINITY`] and [`NAN`], so
//! that no reader takes one for a number.
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
use crate::text_encoding::to_utf8;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

/// The largest configuration file that is read, in bytes.
pub(crate) const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// What `Infinity` of Python's JSON becomes.
pub const INFINITY: &str = "Infinity (not valid in JSON)";
/// What `-Infinity` of Python's JSON becomes.
pub const MINUS_INFINITY: &str = "-Infinity (not valid in JSON)";
/// What `NaN` of Python's JSON becomes.
pub const NAN: &str = "NaN (not valid in JSON)";

/// One value; `path` is for the message.
pub fn value(path: impl AsRef<Path>, bytes: &[u8]) -> Result<Value> {
    let path = path.as_ref();
    if bytes.trim_ascii().is_empty() {
        return Err(Error::new(path, "expected JSON, found an empty file").help("get the file again"));
    }
    let strict = parse::<Unique>(path, bytes).map(|unique| unique.0);
    let Err(error) = strict else { return strict };
    let Some(replaced) = without_python_numbers(bytes) else { return Err(error) };
    parse::<Unique>(path, &replaced).map(|unique| unique.0).map_err(|error| {
        // Columns count the replaced text.
        let line = error.place.split_once(", column").map_or("", |(line, _)| line).to_owned();
        error.at(line)
    })
}

/// The text with Python's numbers that are not JSON replaced by strings; `None` when it has none.
fn without_python_numbers(bytes: &[u8]) -> Option<Vec<u8>> {
    const NUMBERS: [(&[u8], &str); 3] = [(b"-Infinity", MINUS_INFINITY), (b"Infinity", INFINITY), (b"NaN", NAN)];
    let text = to_utf8(bytes).ok()?;
    let (mut replaced, mut rest, mut found) = (Vec::with_capacity(text.len()), text.as_ref(), false);
    while let [first, after @ ..] = rest {
        let number = NUMBERS.iter().find(|(number, _)| rest.starts_with(number));
        if *first == b'"' {
            let string = rest.get(..string_bytes(rest)).unwrap_or(rest);
            replaced.extend_from_slice(string);
            rest = rest.get(string.len()..).unwrap_or_default();
        } else if let Some((number, name)) = number {
            replaced.push(b'"');
            replaced.extend_from_slice(name.as_bytes());
            replaced.push(b'"');
            rest = rest.get(number.len()..).unwrap_or_default();
            found = true;
        } else {
            replaced.push(*first);
            rest = after;
        }
    }
    found.then_some(replaced)
}

/// Bytes of the string that starts here, both quotes included; all bytes when it does not end.
fn string_bytes(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |end| end.saturating_add(2))
}

/// One object; `path` is for the message.
pub fn object(path: impl AsRef<Path>, bytes: &[u8]) -> Result<Map<String, Value>> {
    let path = path.as_ref();
    match value(path, bytes)? {
        Value::Object(map) => Ok(map),
        other => {
            let error = Error::new(path, format!("expected a JSON object, found {}", kind(&other)));
            Err(error.help("get the file again"))
        }
    }
}

/// A file that holds one object.
pub(crate) fn read_object(source: &SourceFile) -> Result<Map<String, Value>> {
    object(source.path(), &source.read_all(CONFIG_BYTES_MAX)?)
}

/// A document of a known form, in which no object has a key twice; `path` is for the message.
pub fn typed<T: DeserializeOwned>(path: impl AsRef<Path>, bytes: &[u8]) -> Result<T> {
    let path = path.as_ref();
    parse::<Unique>(path, bytes)?;
    parse(path, bytes)
}

/// Any type with a reader of its own.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T> {
    let text = to_utf8(bytes).map_err(|problem| Error::new(path, problem))?;
    serde_json::from_slice(&text).map_err(|error| {
        let help = match error.classify() {
            Category::Eof => "the file is damaged or truncated; get a new copy",
            Category::Syntax => "correct the file, or get a new copy",
            Category::Data | Category::Io => "",
        };
        Error::new(path, problem(&error)).at(place(&error)).help(help)
    })
}

/// Where an error is: `line 3, column 7`.
pub fn place(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

/// The problem, without its place. The list of known fields that follows an unknown field is omitted.
pub fn problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(problem, _)| problem);
    match error.classify() {
        Category::Eof => "expected valid JSON, found the end of the file".to_owned(),
        Category::Syntax if text == "expected value" => "invalid JSON: expected a value".to_owned(),
        Category::Syntax => format!("invalid JSON: {}", quote(text)),
        Category::Data | Category::Io if text.starts_with("unknown field ") => {
            quote(text.split("`, ").next().unwrap_or(text)) + if text.contains("`, ") { "`" } else { "" }
        }
        Category::Data | Category::Io => quote(text),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
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
                return Err(A::Error::custom(format!("the key \"{key}\" occurs twice")));
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
