//! The data types a tensor can have, with the ids that GGUF gives them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// What the bytes of a tensor mean. Every live GGUF type is here, so that any file can be described; the ones that this
/// build can also compute with have a [`Codec`](crate::Codec).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the variants are the format's own names")]
pub enum DType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Q8K,
    Iq2Xxs,
    Iq2Xs,
    Iq3Xxs,
    Iq1S,
    Iq4Nl,
    Iq3S,
    Iq2S,
    Iq4Xs,
    I8,
    I16,
    I32,
    I64,
    F64,
    Iq1M,
    Bf16,
    Tq1_0,
    Tq2_0,
    Mxfp4,
    Nvfp4,
    Q1_0,
    Q2_0,
}

/// One row of the table below: how a type is stored.
struct Layout {
    dtype: DType,
    name: &'static str,
    gguf_id: u32,
    block_len: usize,
    block_bytes: usize,
}

const fn layout(dtype: DType, name: &'static str, gguf_id: u32, block_len: usize, block_bytes: usize) -> Layout {
    Layout { dtype, name, gguf_id, block_len, block_bytes }
}

/// In the order of the enum, so that a type finds its row by its discriminant (asserted below).
const LAYOUTS: [Layout; 35] = [
    layout(DType::F32, "f32", 0, 1, 4),
    layout(DType::F16, "f16", 1, 1, 2),
    layout(DType::Q4_0, "q4_0", 2, 32, 18),
    layout(DType::Q4_1, "q4_1", 3, 32, 20),
    layout(DType::Q5_0, "q5_0", 6, 32, 22),
    layout(DType::Q5_1, "q5_1", 7, 32, 24),
    layout(DType::Q8_0, "q8_0", 8, 32, 34),
    layout(DType::Q8_1, "q8_1", 9, 32, 36),
    layout(DType::Q2K, "q2_k", 10, 256, 84),
    layout(DType::Q3K, "q3_k", 11, 256, 110),
    layout(DType::Q4K, "q4_k", 12, 256, 144),
    layout(DType::Q5K, "q5_k", 13, 256, 176),
    layout(DType::Q6K, "q6_k", 14, 256, 210),
    layout(DType::Q8K, "q8_k", 15, 256, 292),
    layout(DType::Iq2Xxs, "iq2_xxs", 16, 256, 66),
    layout(DType::Iq2Xs, "iq2_xs", 17, 256, 74),
    layout(DType::Iq3Xxs, "iq3_xxs", 18, 256, 98),
    layout(DType::Iq1S, "iq1_s", 19, 256, 50),
    layout(DType::Iq4Nl, "iq4_nl", 20, 32, 18),
    layout(DType::Iq3S, "iq3_s", 21, 256, 110),
    layout(DType::Iq2S, "iq2_s", 22, 256, 82),
    layout(DType::Iq4Xs, "iq4_xs", 23, 256, 136),
    layout(DType::I8, "i8", 24, 1, 1),
    layout(DType::I16, "i16", 25, 1, 2),
    layout(DType::I32, "i32", 26, 1, 4),
    layout(DType::I64, "i64", 27, 1, 8),
    layout(DType::F64, "f64", 28, 1, 8),
    layout(DType::Iq1M, "iq1_m", 29, 256, 56),
    layout(DType::Bf16, "bf16", 30, 1, 2),
    layout(DType::Tq1_0, "tq1_0", 34, 256, 54),
    layout(DType::Tq2_0, "tq2_0", 35, 256, 66),
    layout(DType::Mxfp4, "mxfp4", 39, 32, 17),
    layout(DType::Nvfp4, "nvfp4", 40, 64, 36),
    layout(DType::Q1_0, "q1_0", 41, 128, 18),
    layout(DType::Q2_0, "q2_0", 42, 64, 18),
];

const _: () = {
    let mut i = 0;
    while i < LAYOUTS.len() {
        assert!(LAYOUTS[i].dtype as usize == i, "LAYOUTS must follow the order of DType");
        i += 1;
    }
};

impl DType {
    /// Every type, in the order of the enum.
    pub fn all() -> impl Iterator<Item = DType> {
        LAYOUTS.iter().map(|layout| layout.dtype)
    }

    /// The type that GGUF calls `id`; `None` for retired and unknown ids.
    pub fn from_gguf_id(id: u32) -> Option<DType> {
        LAYOUTS.iter().find(|layout| layout.gguf_id == id).map(|layout| layout.dtype)
    }

    /// The type of that name (`q4_0`, `bf16`), in any case.
    pub fn from_name(name: &str) -> Option<DType> {
        LAYOUTS.iter().find(|layout| layout.name.eq_ignore_ascii_case(name)).map(|layout| layout.dtype)
    }

    /// The number that stands for this type in a GGUF file.
    pub fn gguf_id(self) -> u32 {
        self.layout().gguf_id
    }

    /// The lower-case name: `f32`, `q4_0`.
    pub const fn name(self) -> &'static str {
        LAYOUTS[self as usize].name
    }

    /// Elements in one block; 1 for plain numbers.
    pub const fn block_len(self) -> usize {
        LAYOUTS[self as usize].block_len
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        LAYOUTS[self as usize].block_bytes
    }

    /// Whether several elements share a scale.
    pub fn is_quantized(self) -> bool {
        self.block_len() > 1
    }

    /// Whether elements are floating-point numbers, each on its own.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::Bf16 | DType::F64)
    }

    /// Storage per element, in bits.
    pub fn bits_per_weight(self) -> f64 {
        8.0 * self.block_bytes() as f64 / self.block_len() as f64
    }

    /// Bytes of a row of `len` elements; `None` when blocks do not divide it or the size overflows.
    #[inline]
    pub fn row_bytes(self, len: u64) -> Option<u64> {
        let block_len = self.block_len() as u64;
        let blocks = len / block_len;
        if blocks * block_len != len {
            return None;
        }
        blocks.checked_mul(self.block_bytes() as u64)
    }

    fn layout(self) -> &'static Layout {
        &LAYOUTS[self as usize]
    }
}

/// As its name.
impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// From its name.
impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
        let name = String::deserialize(deserializer)?;
        DType::from_name(&name).ok_or_else(|| de::Error::custom(format!("there is no data type {name}")))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
