//! Parameters that may be infinite: JSON has no such numbers, so they are written as text.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f32),
    Text(String),
}

/// A number, or `"inf"`, `"-inf"`, `"NaN"`.
pub(super) fn serialize<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    let written = if value.is_finite() { Written::Number(*value) } else { Written::Text(value.to_string()) };
    written.serialize(serializer)
}

/// From a number or its text.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    match Written::deserialize(deserializer)? {
        Written::Number(number) => Ok(number),
        Written::Text(text) => {
            text.parse().map_err(|_| de::Error::custom(format!("{text} is no number; write one, inf, -inf or NaN")))
        }
    }
}
