//! `trueup.quantize`: a GGUF file with smaller types.

use crate::conversion::tensor_type;
use crate::failure::raised;
use crate::report;
use pyo3::prelude::*;
use std::path::PathBuf;
use trueup::formats::{self, OpenOptions};
use trueup::quantize::{Layout, NoProgress, Options, Recipe};

/// Write a GGUF file with other types.
///
/// source: the GGUF file to start from.
/// output: the file to write; complete or not there.
/// type: the type of matrices, like "q4_0"; None keeps every type and changes the layout alone.
/// layout: "block" as GGUF programs read it, "split" for values and scales as two tensors.
/// pure: give the embedding and the output head the type too, instead of q8_0.
/// resume: keep what is finished when the run is interrupted, and go on with what an earlier such run finished.
///
/// Returns what became of each tensor and how much it lost. Raises TrueupError.
#[pyfunction]
#[pyo3(signature = (source, output, r#type, layout="block", pure=false, resume=false))]
pub fn quantize<'py>(
    py: Python<'py>,
    source: PathBuf,
    output: PathBuf,
    r#type: Option<&str>,
    layout: &str,
    pure: bool,
    resume: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let recipe = Recipe::new(r#type.map(tensor_type).transpose()?).pure(pure);
    let options = Options { recipe, layout: layout_of(layout)?, threads: None, dry_run: false, resume };
    let quantized = py.detach(|| {
        let source = formats::join_split_scale(formats::open(&source, &OpenOptions::default())?)?;
        trueup::quantize::quantize(source.as_ref(), &output, &options, &NoProgress)
    });
    report::to_python(py, &quantized.map_err(raised)?)
}

fn layout_of(name: &str) -> PyResult<Layout> {
    match name {
        "block" => Ok(Layout::Block),
        "split" => Ok(Layout::Split),
        other => Err(raised(format!("{other:?} is not a layout; take \"block\" or \"split\""))),
    }
}
