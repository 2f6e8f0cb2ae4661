//! Numbers of parameters in JSON, which has no infinities: `-inf` and `inf` are written as these words.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f32),
    Word(String),
}

/// A finite number as a number, an infinity as its word.
pub(crate) fn serialize<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    let written = if value.is_finite() { Written::Number(*value) } else { Written::Word(value.to_string()) };
    written.serialize(serializer)
}

/// From a number, or the word of an infinity.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    match Written::deserialize(deserializer)? {
        Written::Number(value) => Ok(value),
        Written::Word(word) if word == "inf" => Ok(f32::INFINITY),
        Written::Word(word) if word == "-inf" => Ok(f32::NEG_INFINITY),
        Written::Word(word) => Err(de::Error::custom(format!("{word} must be a number, inf or -inf"))),
    }
}
