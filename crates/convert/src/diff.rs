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
//!
//! The values of a tensor that was quantized with an importance matrix also depend on that matrix. With it they are
//! compared bit for bit. Without it their error is compared with that of the type: see [`ValueDifference::weighted`].

mod keys;
mod side;
mod tensors;

use serde::Serialize;
use side::Side;
use trueup_formats::{Checkpoint, Importance, Result, counted};

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
    /// Tensors quantized with an importance matrix that was not given: [`ValueDifference::weighted`].
    pub weighted: usize,
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
    /// Whether the tensor looks quantized with an unknown importance matrix: it is not the plain encoding, but its RMSE
    /// is at most [`WEIGHTED_RMSE_MAX`] times that of the plain encoding, and its cosine at least
    /// [`WEIGHTED_COSINE_MIN`].
    pub weighted: bool,
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

/// Largest RMSE of a tensor quantized with an importance matrix, as a multiple of that of the plain encoding. An
/// importance matrix moves errors to columns that matter less, so the unweighted error grows. Measured in q2_k to q6_k,
/// q4_0, iq4_nl and iq4_xs: to 1.05 times with the sums of a model, to 1.45 times with log-normal importance (sigma 3).
pub const WEIGHTED_RMSE_MAX: f64 = 4.0;

/// Smallest cosine between such a tensor and its source: that of unrelated weights is about 0, that of q2_k in the
/// same measurement at least 0.95.
pub const WEIGHTED_COSINE_MIN: f64 = 0.75;

/// What counts as a difference, and how fast it is looked for.
#[derive(Clone, Copy, Default, Debug)]
pub struct DiffOptions<'a> {
    /// Whether tensors that were only rounded are equal.
    pub allow_rounding: bool,
    /// The importance matrix that one of the models was quantized with.
    pub importance: Option<&'a Importance>,
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
    let mut found = tensors::compare(&a, &b, options)?;
    a.unchanged()?;
    b.unchanged()?;
    if let Some(importance) = options.importance {
        importance.source().unchanged()?;
    }
    if found.weighted > 0 && options.importance.is_none() {
        let tensors = counted(found.weighted as u64, "tensor");
        notes.push(format!("{tensors} cannot be compared exactly; pass the importance matrix with --imatrix"));
    }
    differences.append(&mut found.differences);
    let equal = differences.is_empty();
    let tensors::Tensors { tensors, exact, rounded, weighted, .. } = found;
    Ok(Diff { equal, differences, keys, tensors, exact, rounded, weighted, notes })
}
