//! Metadata that the caller sets: `KEY=VALUE`.

use trueup_formats::gguf::{Array, Metadata, Value, ValueType};
use trueup_formats::quote;

/// One key to set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    key: String,
    value: String,
}

/// An override that cannot be read or does not fit. One that cannot be read is not repeated: the caller has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OverrideError(pub String);

impl std::fmt::Display for OverrideError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OverrideError {}

impl std::str::FromStr for Override {
    type Err = OverrideError;

    fn from_str(text: &str) -> Result<Override, OverrideError> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Ok(Override { key: key.to_owned(), value: value.to_owned() })
            }
            _ => Err(OverrideError("expected KEY=VALUE, such as general.name=Story".to_owned())),
        }
    }
}

impl Override {
    /// The key and the value, as they were said.
    pub(crate) fn pair(&self) -> (&str, &str) {
        (&self.key, &self.value)
    }

    /// Sets the key: with the type it has, else a bool for `true` and `false`, u32 or i64 for integers, f32 for other
    /// numbers, text for the rest. Arrays cannot be set, nor what describes the file itself: `general.alignment`,
    /// `split.*` and `trueup.vocabulary.*`.
    pub fn apply(&self, metadata: &mut Metadata) -> Result<(), OverrideError> {
        let describes_the_file = ["split.", "trueup.vocabulary."].iter().any(|start| self.key.starts_with(start));
        if self.key == "general.alignment" || describes_the_file {
            let problem = "expected a key that describes the model, found one that describes the file; do not set it";
            return Err(OverrideError(format!("{}: {problem}", self.key)));
        }
        let value = match metadata.value(&self.key) {
            None => self.guess(),
            Some(old) => self.parse(old.value_type()).ok_or_else(|| {
                OverrideError(format!(
                    "{}: expected a value of type {}, found {}",
                    self.key,
                    old.type_name(),
                    quote(&self.value)
                ))
            })?,
        };
        metadata.insert(self.key.as_str(), value);
        Ok(())
    }

    fn guess(&self) -> Value {
        let kinds = [ValueType::Bool, ValueType::U32, ValueType::I64, ValueType::F32];
        kinds.into_iter().find_map(|kind| self.parse(kind)).unwrap_or_else(|| Value::from(self.value.as_str()))
    }

    fn parse(&self, kind: ValueType) -> Option<Value> {
        fn number<T: std::str::FromStr + Into<Value>>(text: &str) -> Option<Value> {
            text.parse::<T>().ok().map(Into::into)
        }
        let text = self.value.as_str();
        match kind {
            ValueType::U8 => number::<u8>(text),
            ValueType::I8 => number::<i8>(text),
            ValueType::U16 => number::<u16>(text),
            ValueType::I16 => number::<i16>(text),
            ValueType::U32 => number::<u32>(text),
            ValueType::I32 => number::<i32>(text),
            ValueType::U64 => number::<u64>(text),
            ValueType::I64 => number::<i64>(text),
            ValueType::F32 => text.parse().ok().filter(|value: &f32| value.is_finite()).map(Value::F32),
            ValueType::F64 => text.parse().ok().filter(|value: &f64| value.is_finite()).map(Value::F64),
            ValueType::Bool => number::<bool>(text),
            ValueType::String => Some(Value::from(text)),
            ValueType::Array => None::<Array>.map(Value::Array),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_type_and_new_ones_get_the_nearest() {
        let mut metadata = Metadata::default();
        metadata.insert("a", 7u16);
        metadata.insert("b", "x");
        metadata.insert("c", vec![1u32]);
        let mut set = |text: &str| text.parse::<Override>().and_then(|parsed| parsed.apply(&mut metadata));
        for text in
            ["a=9", "b=9", "new.bool=true", "new.count=5", "new.below=-5", "new.real=1.5", "new.text=a=b", "new.empty="]
        {
            assert_eq!(set(text), Ok(()), "{text}");
        }
        for text in ["a=70000", "a=x", "c=1", "", "=1", "nothing", "sp ace=1", "general.alignment=64", "split.no=1"] {
            assert!(set(text).is_err(), "{text}");
        }
        let expected = [
            ("a", Value::U16(9)),
            ("b", Value::from("9")),
            ("c", Value::from(vec![1u32])),
            ("new.bool", Value::Bool(true)),
            ("new.count", Value::U32(5)),
            ("new.below", Value::I64(-5)),
            ("new.real", Value::F32(1.5)),
            ("new.text", Value::from("a=b")),
            ("new.empty", Value::from("")),
        ];
        assert_eq!(metadata.iter().map(|(key, value)| (key, value.clone())).collect::<Vec<_>>(), expected);
    }
}
