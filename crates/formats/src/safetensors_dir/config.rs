//! `config.json` as the readers of models expect it.
//!
//! ```text
//! {"__float__": "Infinity"}       a number that JSON does not have, as transformers 5 writes it: the same as Infinity
//! "text_config": {..}             the language model of a multimodal checkpoint: its keys are copied to the top level
//! ```

use crate::error::Result;
use crate::json::{self, INFINITY, MINUS_INFINITY, NAN};
use crate::source_file::SourceFile;
use serde_json::{Map, Value};

/// The key of the language model's description.
const TEXT: &str = "text_config";
/// The key of a number that JSON does not have.
const FLOAT: &str = "__float__";
/// Keys of the language model that do not replace top-level keys. Token ids do not either: programs that generate text
/// read them from the top level.
const OUTSIDE: [&str; 3] = ["architectures", "model_type", "transformers_version"];
const TOKEN_ID: &str = "_token_id";

/// Reads the file. The keys of `text_config` are copied to the top level.
///
/// # Errors
/// The file is not a JSON object.
pub(super) fn read(source: &SourceFile) -> Result<Map<String, Value>> {
    let mut config = json::read_object(source)?;
    config.values_mut().for_each(replace_numbers);
    if let Some(Value::Object(text)) = config.get(TEXT).cloned() {
        for (key, value) in text {
            let is_outside = OUTSIDE.contains(&key.as_str()) || key.ends_with(TOKEN_ID);
            let is_set = config.get(&key).is_some_and(|found| !found.is_null());
            // A null can differ from an absent key, so it is copied. It does not replace a value.
            let is_kept = is_set && (is_outside || value.is_null());
            if !is_kept {
                config.insert(key, value);
            }
        }
    }
    Ok(config)
}

/// Writes the numbers that JSON does not have as [`json::value`] does.
fn replace_numbers(value: &mut Value) {
    let number = value.as_object().filter(|object| object.len() == 1).and_then(|object| object.get(FLOAT)?.as_str());
    let name = match number {
        Some("Infinity") => INFINITY,
        Some("-Infinity") => MINUS_INFINITY,
        Some("NaN") => NAN,
        _ => {
            match value {
                Value::Object(object) => object.values_mut().for_each(replace_numbers),
                Value::Array(list) => list.iter_mut().for_each(replace_numbers),
                _ => {}
            }
            return;
        }
    };
    *value = name.into();
}
