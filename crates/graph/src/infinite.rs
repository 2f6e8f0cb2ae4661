//! An f32 parameter that may be infinite, in JSON: finite ones as numbers, the others as `"inf"` and `"-inf"`, for
//! which JSON has no numbers. For `#[serde(with = "crate::infinite")]`.

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

/// How it stands in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f32),
    Word(String),
}

pub(crate) fn serialize<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    let written = if value.is_finite() { Written::Number(*value) } else { Written::Word(value.to_string()) };
    written.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    match Written::deserialize(deserializer)? {
        Written::Number(number) => Ok(number),
        Written::Word(word) if word == "inf" => Ok(f32::INFINITY),
        Written::Word(word) if word == "-inf" => Ok(f32::NEG_INFINITY),
        Written::Word(word) => {
            Err(D::Error::custom(format!("a number must be finite, \"inf\" or \"-inf\", not {word:?}")))
        }
    }
}
