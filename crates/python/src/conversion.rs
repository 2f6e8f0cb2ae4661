//! `trueup.convert`: a checkpoint to GGUF, or to FastLLM's format.

use crate::failure::raised;
use crate::report;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use trueup::blocks::DType;
use trueup::convert::{Agreement, FlmOptions, Options, Override, TensorCheck, check as compare, to_flm};
use trueup::formats::flm::is_flm;
use trueup::formats::gguf::Split;
use trueup::formats::{self, Gguf, OpenOptions};
use trueup::quantize::{NoProgress, Recipe};

/// Write a checkpoint as a GGUF file; an output that ends in ".flm" becomes a file of FastLLM.
///
/// source: a Hugging Face directory, a FastLLM .flm file or a llama2.c .bin file.
/// output: the file to write; complete or not there.
/// type: the type of matrices, like "f16" or "q8_0"; None keeps the source's.
/// check: read the result back, undo every transform and compare each tensor with its source.
/// resume: keep what is finished when the run is interrupted, and go on with what an earlier such run finished.
/// slim_vocab: keep fewer tokens: "ids:FILE" lists them, "corpus:FILE" needs them, "drop:A-B" are the others.
/// split: "layers" for a file for the embedding, one for each layer, one for the head; a number for files of at most so many bytes.
/// metadata: keys to set, with their values.
/// tokenizer: a tokenizer.bin, tokenizer.model or tokenizer.json that replaces the one beside the model.
/// threads: how many compute; None is one per core.
///
/// Returns {"report": what was written, "checks": one entry per tensor, "equal": whether none is wrong}; the last two are None
/// without check. Raises TrueupError.
#[pyfunction]
#[pyo3(signature = (
    source, output, r#type=None, check=false, resume=false, slim_vocab=None, split=None, metadata=None, tokenizer=None, threads=None
))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
pub fn convert<'py>(
    py: Python<'py>,
    source: PathBuf,
    output: PathBuf,
    r#type: Option<&str>,
    check: bool,
    resume: bool,
    slim_vocab: Option<&str>,
    split: Option<&Bound<'py, PyAny>>,
    metadata: Option<&Bound<'py, PyDict>>,
    tokenizer: Option<PathBuf>,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = Options {
        recipe: Recipe::new(r#type.map(tensor_type).transpose()?),
        split: split.map_or(Ok(Split::Whole), split_of)?,
        slim: slim_vocab.map(str::parse).transpose().map_err(raised)?,
        overrides: metadata.map_or(Ok(Vec::new()), overrides)?,
        threads,
        dry_run: false,
        resume,
    };
    let open = OpenOptions { tokenizer };
    let document = py.detach(|| written(&source, &open, &output, options, check)).map_err(raised)?;
    report::to_python(py, &document)
}

/// Converts, and compares the file with its source where that was asked for.
fn written(source: &Path, open: &OpenOptions, output: &Path, options: Options, check: bool) -> formats::Result<Value> {
    let source = formats::open(source, open)?;
    if is_flm(output) {
        let options = FlmOptions::of_conversion(output, options, check)?;
        let report = to_flm(source.as_ref(), output, &options, &NoProgress)?;
        return Ok(json!({"report": report, "checks": null, "equal": null}));
    }
    let report = trueup::convert::convert(source.as_ref(), output, &options, &NoProgress)?;
    let checks = match report.files.first() {
        Some(first) if check => Some(compare(source.as_ref(), &Gguf::open(first)?, options.threads)?),
        _ => None,
    };
    let is_wrong = |check: &TensorCheck| matches!(check.agreement, Agreement::Wrong { .. });
    let equal = checks.as_ref().map(|checks| !checks.iter().any(is_wrong));
    Ok(json!({"report": report, "checks": checks, "equal": equal}))
}

/// Where a model is cut into files: "layers", or a largest size in bytes.
fn split_of(split: &Bound<'_, PyAny>) -> PyResult<Split> {
    if let Ok(bytes) = split.extract::<u64>() {
        return Ok(Split::Bytes(bytes));
    }
    match split.extract::<String>().as_deref() {
        Ok("layers") => Ok(Split::Layers),
        _ => Err(raised(format!(
            "{} is no way to split a model; take \"layers\", or a largest size in bytes",
            split.repr()?
        ))),
    }
}

/// Keys to set. A truth is written as GGUF's words say it.
fn overrides(metadata: &Bound<'_, PyDict>) -> PyResult<Vec<Override>> {
    let pair = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let text = match value.extract::<bool>() {
            Ok(truth) => truth.to_string(),
            Err(_) => value.str()?.extract()?,
        };
        format!("{}={text}", key.extract::<String>()?).parse().map_err(raised)
    };
    metadata.iter().map(pair).collect()
}

/// A type that tensors can be written as, by its name.
pub fn tensor_type(name: &str) -> PyResult<DType> {
    let can_be_written = |dtype: &DType| dtype.codec().is_some() && *dtype != DType::F64;
    DType::from_name(name).filter(can_be_written).ok_or_else(|| {
        let known: Vec<&str> = DType::all().filter(can_be_written).map(DType::name).collect();
        raised(format!("{name:?} is not a type that can be written; take one of {}", known.join(", ")))
    })
}
