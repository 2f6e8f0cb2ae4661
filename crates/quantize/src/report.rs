//! The type, size and quantization error of each tensor.

use crate::resume::Resumed;
use serde::Serialize;

/// The report of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// All tensors, in the order of the file.
    pub tensors: Vec<TensorReport>,
    /// Size of all tensors in the source, in bytes.
    pub source_bytes: u64,
    /// Size of all tensors in the output, in bytes.
    pub bytes: u64,
    /// Notes for the user, such as types that other programs do not load, or tensors quantized a second time.
    pub notes: Vec<String>,
    /// The tensors reused from an earlier run; `None` unless the run was resumed.
    pub resumed: Option<Resumed>,
}

/// The report of one tensor.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TensorReport {
    /// Name.
    pub name: String,
    /// Shape, innermost dimension first.
    pub shape: Vec<u64>,
    /// Source type.
    pub source_type: &'static str,
    /// Output type.
    #[serde(rename = "type")]
    pub dtype: &'static str,
    /// Bits per weight in the output.
    pub bits_per_weight: f64,
    /// Size in the output, in bytes.
    pub bytes: u64,
    /// Root mean square error; `None` if nothing was measured (dry run).
    pub rmse: Option<f64>,
    /// Cosine similarity of the weights before and after; also `None` for an all-zero tensor.
    pub cosine: Option<f64>,
    /// Largest absolute error of a weight.
    pub max_error: Option<f64>,
    /// Why the tensor does not have the requested type; empty if it does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Report {
    /// Bits per weight of all tensors together.
    pub fn bits_per_weight(&self) -> f64 {
        let weights: u64 = self.tensors.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
        8.0 * self.bytes as f64 / weights.max(1) as f64
    }
}
