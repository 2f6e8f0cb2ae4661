//! What was done to each tensor, and what it cost.

use crate::resume::Resumed;
use serde::Serialize;

/// One line per tensor of the result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// In the order of the file.
    pub tensors: Vec<TensorReport>,
    /// Bytes of all tensors before.
    pub source_bytes: u64,
    /// Bytes of all tensors after.
    pub bytes: u64,
    /// What a user should know: types that other programs do not load, tensors quantized a second time.
    pub notes: Vec<String>,
    /// What was taken over from an earlier run; `None` unless that was asked for.
    pub resumed: Option<Resumed>,
}

/// What became of one tensor.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TensorReport {
    /// Its name.
    pub name: String,
    /// Its sizes, innermost first.
    pub shape: Vec<u64>,
    /// What it was.
    pub source_type: &'static str,
    /// What it is now.
    #[serde(rename = "type")]
    pub dtype: &'static str,
    /// Storage per weight, in bits.
    pub bits_per_weight: f64,
    /// Bytes now.
    pub bytes: u64,
    /// Root mean square of the change; `None` when nothing was measured (dry run).
    pub rmse: Option<f64>,
    /// Cosine of the angle between before and after; `None` also for an all-zero tensor.
    pub cosine: Option<f64>,
    /// The largest change of one weight.
    pub max_error: Option<f64>,
    /// Why it is not what was asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Report {
    /// Storage per weight over the whole file, in bits.
    pub fn bits_per_weight(&self) -> f64 {
        let weights: u64 = self.tensors.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
        8.0 * self.bytes as f64 / weights.max(1) as f64
    }
}
