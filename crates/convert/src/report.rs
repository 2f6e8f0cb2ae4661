//! What a conversion did, or would do.

use serde::Serialize;
use std::path::PathBuf;
use trueup_quantize::Resumed;

/// One conversion.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// `general.architecture`.
    pub architecture: &'static str,
    /// The files, in order; not there yet after a dry run.
    pub files: Vec<PathBuf>,
    /// Bytes of all files together.
    pub bytes: u64,
    /// One line per tensor, in the order of the file.
    pub tensors: Vec<TensorReport>,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
    /// What was taken over from an earlier run; `None` unless that was asked for.
    pub resumed: Option<Resumed>,
}

/// What becomes of one tensor.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TensorReport {
    /// Its name in the file.
    pub name: String,
    /// Its name in the checkpoint; `None` when it is computed.
    pub source: Option<String>,
    /// Innermost first.
    pub shape: Vec<u64>,
    /// Type of its first source in the checkpoint.
    pub source_type: &'static str,
    /// What it is now.
    #[serde(rename = "type")]
    pub dtype: &'static str,
    /// Bytes now.
    pub bytes: u64,
    /// Root mean square of the change, where the type has blocks, which round; `None` of others, and when nothing was
    /// written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rmse: Option<f64>,
    /// Cosine of the angle between before and after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f64>,
    /// The largest change of one weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_error: Option<f64>,
    /// Whether its rows were sorted for the rotation.
    pub sorted: bool,
    /// Why it is not what was asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}
