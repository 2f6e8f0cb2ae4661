//! `trueup.convert`: converts a checkpoint to GGUF or to FastLLM's format.

use crate::failure::raised;
use crate::recipe::{ImportanceArguments, RecipeArguments};
use crate::report;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use trueup::convert::{Agreement, FlmOptions, Options, Override, TensorCheck, check as compare, convert_with, to_flm};
use trueup::formats::flm::is_flm;
use trueup::formats::gguf::Split;
use trueup::formats::{self, Gguf, OpenOptions};
use trueup::quantize::{NoProgress, Scheme};

/// Convert a checkpoint to GGUF, or to a FastLLM file if the output name ends in ".flm".
///
/// source: a Hugging Face directory, a FastLLM .flm file or a llama2.c .bin file.
/// output: the file to write. It is either complete or not created.
/// type: the type of matrices, such as "f16" or "q8_0", or a recipe, such as "q4_k_m". None keeps the type of the
///     source.
/// check: read the result back, invert every transform and compare each tensor with its source.
/// resume: keep finished tensors if the run is interrupted, and reuse those of an earlier interrupted run.
/// prune_vocab: the tokens to keep: "ids:FILE" lists them, "corpus:FILE" keeps those that a text needs, "drop:A-B"
///     drops a range.
/// split: "layers" writes one file for the embedding, one per layer and one for the head. A number is the largest size
///     of a file in bytes.
/// metadata: keys to set, with their values.
/// tokenizer: a tokenizer.bin, tokenizer.model or tokenizer.json to use instead of the tokenizer of the checkpoint.
/// threads: number of threads. None uses one per core.
/// slim_vocab: the former name of prune_vocab.
/// rules, imatrix, allow_partial_imatrix, imatrix_exact, token_embedding_type, output_tensor_type, leave_output_tensor,
///     pure, strict: as in quantize.
///
/// Returns {"report": the written tensors, "checks": one entry per tensor, "equal": whether every tensor matches}. The
/// last two are None without check. Raises TrueupError.
#[pyfunction]
#[pyo3(signature = (
    source, output, r#type=None, check=false, resume=false, prune_vocab=None, split=None, metadata=None, tokenizer=None,
    threads=None, slim_vocab=None, rules=None, imatrix=None, allow_partial_imatrix=false, imatrix_exact=false,
    token_embedding_type=None, output_tensor_type=None, leave_output_tensor=false, pure=false, strict=false
))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
pub fn convert<'py>(
    py: Python<'py>,
    source: PathBuf,
    output: PathBuf,
    r#type: Option<&str>,
    check: bool,
    resume: bool,
    prune_vocab: Option<&str>,
    split: Option<&Bound<'py, PyAny>>,
    metadata: Option<&Bound<'py, PyDict>>,
    tokenizer: Option<PathBuf>,
    threads: Option<usize>,
    slim_vocab: Option<&str>,
    rules: Option<Vec<String>>,
    imatrix: Option<PathBuf>,
    allow_partial_imatrix: bool,
    imatrix_exact: bool,
    token_embedding_type: Option<&str>,
    output_tensor_type: Option<&str>,
    leave_output_tensor: bool,
    pure: bool,
    strict: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let kept = match (prune_vocab, slim_vocab) {
        (Some(_), Some(_)) => {
            return Err(raised("slim_vocab is the former name of prune_vocab: pass only prune_vocab"));
        }
        (kept, former) => kept.or(former),
    };
    let tensors =
        RecipeArguments { rules, pure, strict, token_embedding_type, output_tensor_type, leave_output_tensor };
    let importance = ImportanceArguments { imatrix, allow_partial: allow_partial_imatrix, exact: imatrix_exact };
    importance.check()?;
    let options = Options {
        recipe: tensors.recipe(r#type.map(scheme).transpose()?)?,
        split: split.map_or(Ok(Split::Whole), split_of)?,
        slim: kept.map(str::parse).transpose().map_err(raised)?,
        overrides: metadata.map_or(Ok(Vec::new()), overrides)?,
        threads,
        dry_run: false,
        resume,
    };
    let open = OpenOptions { tokenizer };
    let document = py.detach(|| written(&source, &open, &output, options, (importance, check))).map_err(raised)?;
    report::to_python(py, &document)
}

/// Converts, and compares the file with its source if `check` is set.
fn written(
    source: &Path,
    open: &OpenOptions,
    output: &Path,
    options: Options,
    (importance, check): (ImportanceArguments, bool),
) -> formats::Result<Value> {
    let source = formats::open(source, open)?;
    let importance = importance.open()?;
    if is_flm(output) {
        if importance.is_some() {
            let problem = "imatrix: expected GGUF output, found .flm output";
            return Err(formats::Error::new(output, problem).help("remove the argument"));
        }
        let options = FlmOptions::of_conversion(output, options, check)?;
        let report = to_flm(source.as_ref(), output, &options, &NoProgress)?;
        return Ok(json!({"report": report, "checks": null, "equal": null}));
    }
    let report = convert_with(source.as_ref(), output, &options, importance.as_ref(), &NoProgress)?;
    let checks = match report.files.first() {
        Some(first) if check => Some(compare(source.as_ref(), &Gguf::open(first)?, options.threads)?),
        _ => None,
    };
    let is_wrong = |check: &TensorCheck| matches!(check.agreement, Agreement::Wrong { .. });
    let equal = checks.as_ref().map(|checks| !checks.iter().any(is_wrong));
    Ok(json!({"report": report, "checks": checks, "equal": equal}))
}

/// How the output is split: "layers", or the largest size of a file in bytes.
fn split_of(split: &Bound<'_, PyAny>) -> PyResult<Split> {
    if let Ok(bytes) = split.extract::<u64>() {
        return Ok(Split::Bytes(bytes));
    }
    match split.extract::<String>().as_deref() {
        Ok("layers") => Ok(Split::Layers),
        _ => Err(raised(format!(
            "split: expected \"layers\" or the largest size of a file in bytes, found {}",
            split.repr()?
        ))),
    }
}

/// Keys to set. Booleans are written as `true` and `false`.
fn overrides(metadata: &Bound<'_, PyDict>) -> PyResult<Vec<Override>> {
    let pair = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let text = match value.extract::<bool>() {
            Ok(truth) => truth.to_string(),
            Err(_) => value.str()?.extract()?,
        };
        let key = key.extract::<String>()?;
        format!("{key}={text}").parse().map_err(|error| raised(format!("metadata: {key:?}: {error}")))
    };
    metadata.iter().map(pair).collect()
}

/// Looks up a type or a recipe that can be written.
pub fn scheme(name: &str) -> PyResult<Scheme> {
    Scheme::from_name(name).filter(Scheme::is_written).ok_or_else(|| {
        let names: Vec<&str> = Scheme::written().map(|scheme| scheme.name()).collect();
        raised(format!("type: expected one of {}, found {name:?}", names.join(", ")))
    })
}
