//! Compares two models of any format, tensor by tensor and key by key.
//!
//! ```text
//! GGUF ──────────────────────────┐
//!                                ├─▶ names, shapes, row order and keys as in GGUF ─▶ exact, rounded, different
//! checkpoint ─ Mapping, Chunk ───┘
//! ```
//!
//! Values are compared as real numbers, so equal weights of different types are equal if nothing was lost. Keys are
//! compared by meaning: the model config and vocabulary of both sides are read and rewritten by the same writer.
//! Storage details (type, alignment, split files, name) are not compared.

mod keys;
mod side;
mod tensors;

use serde::Serialize;
use side::Side;
use trueup_formats::{Checkpoint, Result};

/// How two models differ.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Diff {
    /// Whether there is no difference.
    pub equal: bool,
    /// All differences: keys first, then tensors in the order of the first model.
    pub differences: Vec<Difference>,
    /// Keys that were compared.
    pub keys: usize,
    /// Tensors of either model.
    pub tensors: usize,
    /// Tensors with the same values.
    pub exact: usize,
    /// Tensors whose values are what the type of one side makes of the other's.
    pub rounded: usize,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
}

/// Whether a key or a tensor differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A hyper-parameter, or a part of the tokenizer.
    Key,
    /// A weight.
    Tensor,
}

/// One difference.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Difference {
    /// Of what.
    pub kind: Kind,
    /// The name in GGUF.
    pub name: String,
    /// What the first model has: a value, or type, shape and name of a tensor; null where it has none.
    pub a: Option<String>,
    /// What the second model has.
    pub b: Option<String>,
    /// How far the values are from each other, where both could be read.
    pub values: Option<ValueDifference>,
}

/// Distance of the values of two tensors.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ValueDifference {
    /// Whether the values of one side are, bit for bit, what its type makes of the other's: nothing but a rounding.
    pub rounded: bool,
    /// Elements with another value.
    pub elements: u64,
    /// The first of them, as an index for each dimension, innermost first.
    pub first: Vec<u64>,
    /// Root mean square of the difference.
    pub rmse: f64,
    /// The largest difference.
    pub max_abs: f64,
    /// The cosine of the angle between both.
    pub cosine: f64,
}

/// What counts as a difference, and how fast it is looked for.
#[derive(Clone, Copy, Default, Debug)]
pub struct DiffOptions {
    /// Whether tensors that were only rounded are equal.
    pub allow_rounding: bool,
    /// Threads; `None` is one per core.
    pub threads: Option<usize>,
}

/// Compares two models.
///
/// # Errors
/// A checkpoint that does not fit its architecture, and I/O.
pub fn diff(a: &dyn Checkpoint, b: &dyn Checkpoint, options: DiffOptions) -> Result<Diff> {
    let mut notes = Vec::new();
    let (a, b) = side::with_the_same_tokens(Side::new(a)?, Side::new(b)?, &mut notes)?;
    let (keys, mut differences) = keys::compare(&a, &b, &mut notes)?;
    let found = tensors::compare(&a, &b, options)?;
    a.unchanged()?;
    b.unchanged()?;
    differences.extend(found.differences);
    let equal = differences.is_empty();
    Ok(Diff { equal, differences, keys, tensors: found.tensors, exact: found.exact, rounded: found.rounded, notes })
}
