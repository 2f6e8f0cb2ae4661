//! `trueup.quantize`: converts the tensors of a model file to smaller types.

use crate::conversion::scheme;
use crate::failure::raised;
use crate::report;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use trueup::blocks::DType;
use trueup::convert::{FlmOptions, to_flm};
use trueup::formats::flm::is_flm;
use trueup::formats::{self, OpenOptions};
use trueup::quantize::{Layout, NoProgress, Options, Recipe, Report};

/// Quantize a GGUF file, or write a FastLLM file if the output name ends in ".flm" (pass bits in that case).
///
/// source: the GGUF file to read. For a .flm output, any model.
/// output: the file to write. It is either complete or not created.
/// type: the type of matrices, such as "q4_0", or a mixture of types, such as "q4_k_m". None keeps every type and
///     changes only the layout.
/// layout: "block" is the GGUF layout; "split" stores values and scales as two tensors.
/// pure: use the base type for every matrix, also for the embedding and the output head.
/// resume: keep finished tensors if the run is interrupted, and reuse those of an earlier interrupted run.
/// bits: bits per weight instead of a type: 4 is q4_0, 8 is q8_0, 16 is f16.
/// threads: number of threads. None uses one per core.
///
/// Returns the new type and the loss of each tensor. Raises TrueupError.
#[pyfunction]
#[pyo3(signature = (source, output, r#type=None, layout="block", pure=false, resume=false, bits=None, threads=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
pub fn quantize<'py>(
    py: Python<'py>,
    source: PathBuf,
    output: PathBuf,
    r#type: Option<&str>,
    layout: &str,
    pure: bool,
    resume: bool,
    bits: Option<u32>,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let scheme = match (r#type, bits) {
        (None, None) => None,
        (Some(name), None) => Some(scheme(name)?),
        (None, Some(4)) => Some(DType::Q4_0.into()),
        (None, Some(8)) => Some(DType::Q8_0.into()),
        (None, Some(16)) => Some(DType::F16.into()),
        (None, Some(bits)) => return Err(raised(format!("bits: expected 4, 8 or 16, found {bits}"))),
        (Some(_), Some(_)) => return Err(raised("type and bits were both given: pass only one of them")),
    };
    let recipe = Recipe::of(scheme).pure(pure);
    let options = Options { recipe, layout: layout_of(layout)?, threads, dry_run: false, resume };
    let report = py.detach(|| quantized(&source, &output, bits, &options)).map_err(raised)?;
    report::to_python(py, &report)
}

fn quantized(source: &Path, output: &Path, bits: Option<u32>, options: &Options) -> formats::Result<Report> {
    let source = formats::join_split_scale(formats::open(source, &OpenOptions::default())?)?;
    if is_flm(output) {
        let options = FlmOptions::of_quantization(output, bits, options)?;
        return to_flm(source.as_ref(), output, &options, &NoProgress);
    }
    trueup::quantize::quantize(source.as_ref(), output, options, &NoProgress)
}

fn layout_of(name: &str) -> PyResult<Layout> {
    match name {
        "block" => Ok(Layout::Block),
        "split" => Ok(Layout::Split),
        other => Err(raised(format!("layout: expected \"block\" or \"split\", found {other:?}"))),
    }
}
