//! The thirteen types of a metadata value, and their bytes.
//!
//! ```text
//! u8 i8 bool 1 byte | u16 i16 2 | u32 i32 f32 4 | u64 i64 f64 8
//! string: u64 n, n bytes | array: u32 type, u64 n, n items
//! ```

use crate::error::{Result, quote};
use crate::reader::Reader;
use std::fmt::{self, Display};

/// Arrays within arrays; no known program writes more than one.
const DEPTH_MAX: usize = 8;

/// The type of a value, with the number that stands for it in a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are the format's own names")]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

/// One value of the key-value section.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the variants are the format's own names")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// Values of one type.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the variants are the format's own names")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Type, number in a file, name in messages, smallest size in a file.
const TYPES: [(ValueType, u32, &str, u64); 13] = [
    (ValueType::U8, 0, "u8", 1),
    (ValueType::I8, 1, "i8", 1),
    (ValueType::U16, 2, "u16", 2),
    (ValueType::I16, 3, "i16", 2),
    (ValueType::U32, 4, "u32", 4),
    (ValueType::I32, 5, "i32", 4),
    (ValueType::F32, 6, "f32", 4),
    (ValueType::Bool, 7, "bool", 1),
    (ValueType::String, 8, "string", 8),
    (ValueType::Array, 9, "array", 12),
    (ValueType::U64, 10, "u64", 8),
    (ValueType::I64, 11, "i64", 8),
    (ValueType::F64, 12, "f64", 8),
];

impl ValueType {
    /// Every type, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = ValueType> {
        TYPES.iter().map(|row| row.0)
    }

    /// The type of that number; `None` for a number that stands for nothing.
    pub fn from_id(id: u32) -> Option<ValueType> {
        TYPES.iter().find(|row| row.1 == id).map(|row| row.0)
    }

    /// The number that stands for this type in a file.
    pub fn id(self) -> u32 {
        self.row().1
    }

    fn row(self) -> &'static (ValueType, u32, &'static str, u64) {
        // Every variant stands in the table (tested); the first row is never the answer by default.
        TYPES.iter().find(|row| row.0 == self).unwrap_or(&TYPES[0])
    }
}

impl Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.row().2)
    }
}

/// Calls a macro with the variants that are plain numbers of fixed size.
macro_rules! with_numbers {
    ($use:ident) => {
        $use! { U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, F32 f32, U64 u64, I64 i64, F64 f64 }
    };
}

impl Value {
    /// Which type it has.
    pub fn value_type(&self) -> ValueType {
        macro_rules! types {
            ($($variant:ident $number:ty),*) => {
                match self {
                    $(Value::$variant(_) => ValueType::$variant,)*
                    Value::Bool(_) => ValueType::Bool,
                    Value::String(_) => ValueType::String,
                    Value::Array(_) => ValueType::Array,
                }
            };
        }
        with_numbers!(types)
    }

    /// Type for people: `u32`, `array of string`.
    pub fn type_name(&self) -> String {
        match self {
            Value::Array(array) => format!("array of {}", array.item_type()),
            plain => plain.value_type().to_string(),
        }
    }

    /// Any integer type that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        u64::try_from(self.as_i128()?).ok()
    }

    /// A float of either size.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::F32(value) => Some(f64::from(value)),
            Value::F64(value) => Some(value),
            Value::U8(_) | Value::I8(_) | Value::U16(_) | Value::I16(_) | Value::U32(_) | Value::I32(_) => None,
            Value::U64(_) | Value::I64(_) | Value::Bool(_) | Value::String(_) | Value::Array(_) => None,
        }
    }

    fn as_i128(&self) -> Option<i128> {
        match *self {
            Value::U8(value) => Some(value.into()),
            Value::I8(value) => Some(value.into()),
            Value::U16(value) => Some(value.into()),
            Value::I16(value) => Some(value.into()),
            Value::U32(value) => Some(value.into()),
            Value::I32(value) => Some(value.into()),
            Value::U64(value) => Some(value.into()),
            Value::I64(value) => Some(value.into()),
            Value::F32(_) | Value::F64(_) | Value::Bool(_) | Value::String(_) | Value::Array(_) => None,
        }
    }

    /// Reads a type and the value of that type.
    pub(crate) fn read(reader: &mut Reader<'_>, what: &dyn Display) -> Result<Value> {
        let value_type = read_type(reader, what)?;
        macro_rules! values {
            ($($variant:ident $number:ty),*) => {
                match value_type {
                    $(ValueType::$variant => Value::$variant(<$number>::from_le_bytes(reader.array(what)?)),)*
                    ValueType::Bool => Value::Bool(read_bool(reader, what)?),
                    ValueType::String => Value::String(read_string(reader, what)?),
                    ValueType::Array => Value::Array(Array::read(reader, what, 1)?),
                }
            };
        }
        Ok(with_numbers!(values))
    }

    /// Appends the type and the value.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.value_type().id().to_le_bytes());
        macro_rules! values {
            ($($variant:ident $number:ty),*) => {
                match self {
                    $(Value::$variant(value) => out.extend(value.to_le_bytes()),)*
                    Value::Bool(value) => out.push(u8::from(*value)),
                    Value::String(value) => write_string(value, out),
                    Value::Array(array) => array.write(out),
                }
            };
        }
        with_numbers!(values);
    }
}

impl Array {
    /// The type of its items.
    pub fn item_type(&self) -> ValueType {
        macro_rules! types {
            ($($variant:ident $number:ty),*) => {
                match self {
                    $(Array::$variant(_) => ValueType::$variant,)*
                    Array::Bool(_) => ValueType::Bool,
                    Array::String(_) => ValueType::String,
                    Array::Array(_) => ValueType::Array,
                }
            };
        }
        with_numbers!(types)
    }

    /// How many items it has.
    pub fn len(&self) -> usize {
        macro_rules! lengths {
            ($($variant:ident $number:ty),*) => {
                match self {
                    $(Array::$variant(items) => items.len(),)*
                    Array::Bool(items) => items.len(),
                    Array::String(items) => items.len(),
                    Array::Array(items) => items.len(),
                }
            };
        }
        with_numbers!(lengths)
    }

    /// Whether it has no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Item number `index` as a value of its own.
    pub fn value(&self, index: usize) -> Option<Value> {
        macro_rules! values {
            ($($variant:ident $number:ty),*) => {
                match self {
                    $(Array::$variant(items) => items.get(index).copied().map(Value::$variant),)*
                    Array::Bool(items) => items.get(index).copied().map(Value::Bool),
                    Array::String(items) => items.get(index).cloned().map(Value::String),
                    Array::Array(items) => items.get(index).cloned().map(Value::Array),
                }
            };
        }
        with_numbers!(values)
    }

    fn read(reader: &mut Reader<'_>, what: &dyn Display, depth: usize) -> Result<Array> {
        if depth > DEPTH_MAX {
            return Err(reader.error(what, format!("expected at most {DEPTH_MAX} nested arrays, found more")));
        }
        let item_type = read_type(reader, what)?;
        let count = reader.u64(what)?;
        let items = reader.count(count, item_type.row().3, what)?;
        macro_rules! arrays {
            ($($variant:ident $number:ty),*) => {
                match item_type {
                    $(ValueType::$variant => {
                        let mut numbers = Vec::with_capacity(items);
                        reader.pieces(items, size_of::<$number>(), what, &mut |bytes| {
                            numbers.extend(bytes.as_chunks().0.iter().map(|&bytes| <$number>::from_le_bytes(bytes)));
                        })?;
                        Array::$variant(numbers)
                    })*
                    ValueType::Bool => Array::Bool(read_items(items, |_| read_bool(reader, what))?),
                    ValueType::String => Array::String(read_items(items, |item| {
                        read_string(reader, &format_args!("{what}, item {item}"))
                    })?),
                    ValueType::Array => Array::Array(read_items(items, |item| {
                        Array::read(reader, &format_args!("{what}, item {item}"), depth.saturating_add(1))
                    })?),
                }
            };
        }
        Ok(with_numbers!(arrays))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.item_type().id().to_le_bytes());
        out.extend(u64::try_from(self.len()).unwrap_or(u64::MAX).to_le_bytes());
        macro_rules! arrays {
            ($($variant:ident $number:ty),*) => {
                match self {
                    $(Array::$variant(items) => items.iter().for_each(|item| out.extend(item.to_le_bytes())),)*
                    Array::Bool(items) => out.extend(items.iter().map(|&item| u8::from(item))),
                    Array::String(items) => items.iter().for_each(|item| write_string(item, out)),
                    Array::Array(items) => items.iter().for_each(|item| item.write(out)),
                }
            };
        }
        with_numbers!(arrays);
    }
}

/// `count` items; the caller knows that the file can hold them.
fn read_items<T>(count: usize, mut read: impl FnMut(usize) -> Result<T>) -> Result<Vec<T>> {
    let mut items = Vec::with_capacity(count);
    for index in 0..count {
        items.push(read(index)?);
    }
    Ok(items)
}

fn read_type(reader: &mut Reader<'_>, what: &dyn Display) -> Result<ValueType> {
    let id = reader.u32(what)?;
    ValueType::from_id(id).ok_or_else(|| {
        reader
            .error(what, format!("expected a value type from 0 to 12, found {id}"))
            .help("the file is damaged or needs a newer version of this program")
    })
}

fn read_bool(reader: &mut Reader<'_>, what: &dyn Display) -> Result<bool> {
    match reader.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(reader.error(what, format!("expected 0 or 1 for a bool, found {other}"))),
    }
}

/// A length and that many bytes of UTF-8.
#[inline]
pub(super) fn read_string(reader: &mut Reader<'_>, what: &dyn Display) -> Result<String> {
    if let Some(text) = reader.buffered_text() {
        return Ok(text);
    }
    let bytes = reader.u64(what)?;
    reader.text(bytes, what)
}

/// A length and the bytes of a text.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.extend(u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Items shown of a long array.
const SHOWN_ITEMS: usize = 6;

impl Display for Value {
    /// For people: texts quoted and cut, arrays with their length and first items.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        macro_rules! values {
            ($($variant:ident $number:ty),*) => {
                match self {
                    $(Value::$variant(value) => write!(f, "{value}"),)*
                    Value::Bool(value) => write!(f, "{value}"),
                    Value::String(text) => write!(f, "\"{}\"", quote(text)),
                    Value::Array(array) => write!(f, "{array}"),
                }
            };
        }
        with_numbers!(values)
    }
}

impl Display for Array {
    /// As for [`Value`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, value) in (0..SHOWN_ITEMS).map_while(|index| Some((index, self.value(index)?))) {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{value}")?;
        }
        if self.len() > SHOWN_ITEMS {
            write!(f, ", … {} items", self.len())?;
        }
        f.write_str("]")
    }
}

macro_rules! from_numbers {
    ($($variant:ident $number:ty),*) => {
        $(
            impl From<$number> for Value {
                fn from(value: $number) -> Value {
                    Value::$variant(value)
                }
            }

            impl From<Vec<$number>> for Value {
                fn from(items: Vec<$number>) -> Value {
                    Value::Array(Array::$variant(items))
                }
            }
        )*
    };
}

with_numbers!(from_numbers);

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text)
    }
}

impl From<Vec<bool>> for Value {
    fn from(items: Vec<bool>) -> Value {
        Value::Array(Array::Bool(items))
    }
}

impl From<Vec<String>> for Value {
    fn from(items: Vec<String>) -> Value {
        Value::Array(Array::String(items))
    }
}
