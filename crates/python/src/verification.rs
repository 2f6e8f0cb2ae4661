//! `trueup.verify`: compares every intermediate tensor of a device with a reference.

use crate::failure::raised;
use crate::report;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::runtime::{DeviceOptions, ModelFile, Result, open_device};
use trueup::verify::{Reference, Report, STEPS_DEFAULT, TEXT_DEFAULT, VerifyOptions};

// Python shows a default only where it is a literal.
const _: () = assert!(STEPS_DEFAULT == 8);

/// Compare every node of a model on a device with the f64 reference.
///
/// model: the GGUF file.
/// device: the device to judge. Operators that it does not support run on "cpu".
/// reference: the device that the free run is compared with. Single operators are always judged against f64.
/// prompts: texts to compute. None uses a short built-in text.
/// steps: tokens to compute after each prompt. The reference chooses them.
///
/// Returns the report. Its "result" is "pass", "fail" or "inconclusive", and its "sentence" says what to do next.
/// Raises TrueupError if nothing could be verified.
#[pyfunction]
#[pyo3(signature = (model, device="cpu", reference="ref", prompts=None, steps=8))]
pub fn verify<'py>(
    py: Python<'py>,
    model: PathBuf,
    device: &str,
    reference: &str,
    prompts: Option<Vec<String>>,
    steps: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let texts = prompts.unwrap_or_else(|| vec![TEXT_DEFAULT.to_owned()]);
    let verified = py.detach(|| verified(&model, device, reference, &texts, steps)).map_err(raised)?;
    report::to_python(py, &verified)
}

fn verified(model: &Path, device: &str, reference: &str, texts: &[String], steps: usize) -> Result<Report> {
    let model = Arc::new(ModelFile::open(model)?);
    let open = |name: &str| open_device(name, &DeviceOptions::default());
    let reference = match reference {
        "ref" => Reference::Oracle,
        other => Reference::Device(open(other)?),
    };
    let fallback = if device == "cpu" { None } else { Some(open("cpu")?) };
    let tokenizer = model.tokenizer()?;
    let prompts = texts.iter().map(|text| Ok(tokenizer.encode(text, true)?)).collect::<Result<Vec<Vec<u32>>>>()?;
    let options = VerifyOptions { prompts, steps, fallback, ..VerifyOptions::default() };
    trueup::verify::verify(model.clone(), open(device)?, reference, &options, &mut |_| {})
}
