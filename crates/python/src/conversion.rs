//! `trueup.convert`: a checkpoint to GGUF.

use crate::failure::raised;
use crate::report;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use trueup::blocks::DType;
use trueup::convert::{Agreement, Options, TensorCheck, check as compare};
use trueup::formats::{self, Gguf, OpenOptions};
use trueup::quantize::{NoProgress, Recipe};

/// Write a checkpoint as a GGUF file.
///
/// source: a Hugging Face directory or a llama2.c .bin file.
/// output: the file to write; complete or not there.
/// type: the type of matrices, like "f16" or "q8_0"; None keeps the source's.
/// check: read the result back, undo every transform and compare each tensor with its source.
/// resume: keep what is finished when the run is interrupted, and go on with what an earlier such run finished.
///
/// Returns {"report": what was written, "checks": one entry per tensor, "equal": whether none is wrong}; the last two are None
/// without check. Raises TrueupError.
#[pyfunction]
#[pyo3(signature = (source, output, r#type=None, check=false, resume=false))]
pub fn convert<'py>(
    py: Python<'py>,
    source: PathBuf,
    output: PathBuf,
    r#type: Option<&str>,
    check: bool,
    resume: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let recipe = Recipe::new(r#type.map(tensor_type).transpose()?);
    let options = Options { recipe, resume, ..Options::default() };
    let document = py.detach(|| written(&source, &output, &options, check)).map_err(raised)?;
    report::to_python(py, &document)
}

/// Converts, and compares the file with its source where that was asked for.
fn written(source: &Path, output: &Path, options: &Options, check: bool) -> formats::Result<Value> {
    let source = formats::open(source, &OpenOptions::default())?;
    let report = trueup::convert::convert(source.as_ref(), output, options, &NoProgress)?;
    let checks = match report.files.first() {
        Some(first) if check => Some(compare(source.as_ref(), &Gguf::open(first)?, None)?),
        _ => None,
    };
    let is_wrong = |check: &TensorCheck| matches!(check.agreement, Agreement::Wrong { .. });
    let equal = checks.as_ref().map(|checks| !checks.iter().any(is_wrong));
    Ok(json!({"report": report, "checks": checks, "equal": equal}))
}

/// A type that tensors can be written as, by its name.
pub fn tensor_type(name: &str) -> PyResult<DType> {
    let can_be_written = |dtype: &DType| dtype.codec().is_some() && *dtype != DType::F64;
    DType::from_name(name).filter(can_be_written).ok_or_else(|| {
        let known: Vec<&str> = DType::all().filter(can_be_written).map(DType::name).collect();
        raised(format!("{name:?} is not a type that can be written; take one of {}", known.join(", ")))
    })
}
