//! `trueup.imatrix` and `trueup.compare`: an importance matrix, and the quality of a model, on a text.

use crate::failure::raised;
use crate::report;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::formats::{self, ImportanceSums, OpenOptions, WeightSums};
use trueup::quality::{self, CompareOptions, Corpus, ImatrixOptions, Reference};
use trueup::quantize::NoProgress;
use trueup::runtime::{
    DeviceOptions, Error, ModelFile, Result, Session, SessionOptions, Weights, open_devices, open_fallback,
};
use trueup::text;

/// Tokens per chunk, if the context of the model is not smaller.
const CHUNK_DEFAULT: usize = 512;

/// Compute an importance matrix: how large the inputs of each column of each weight matrix are on a text.
///
/// model: the GGUF file, usually in f16, bf16 or f32.
/// corpus: a text file.
/// output: the file to write, in the format of llama-imatrix.
/// context: tokens per chunk. None uses 512, or the model's context if that is smaller.
/// chunks: maximum number of chunks of the text. None uses all.
/// output_head: also compute the importance of the output head.
/// device: the device that computes.
/// threads: number of threads. None uses one per core.
///
/// Returns {"chunks", "context", "perplexity", "weights"}: for each weight the number of its matrices, and the numbers
/// of those to which no tokens were routed ("unseen"). Raises TrueupError.
#[pyfunction]
#[pyo3(signature = (
    model, corpus, output, context=None, chunks=None, output_head=false, device="cpu", threads=None
))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
pub fn imatrix<'py>(
    py: Python<'py>,
    model: PathBuf,
    corpus: PathBuf,
    output: PathBuf,
    context: Option<usize>,
    chunks: Option<usize>,
    output_head: bool,
    device: &str,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let place = Place { device, threads };
    let measured = py.detach(|| collected(&place, &model, &corpus, &output, (context, chunks, output_head)));
    report::to_python(py, &measured.map_err(raised)?)
}

/// Measure the quality of a model on a text: its perplexity, and its difference from a reference.
///
/// model: the GGUF file.
/// corpus: a text file.
/// against: the GGUF file of the reference. None measures only the perplexity.
/// context: tokens per chunk. None uses 512, or the model's context if that is smaller.
/// chunks: maximum number of chunks of the text. None uses all.
/// worst: number of positions with the largest KL divergence to return.
/// device: the device that computes.
/// threads: number of threads. None uses one per core.
///
/// Returns the "result" of `trueup compare --json`. Raises TrueupError.
#[pyfunction]
#[pyo3(signature = (model, corpus, against=None, context=None, chunks=None, worst=5, device="cpu", threads=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
pub fn compare<'py>(
    py: Python<'py>,
    model: PathBuf,
    corpus: PathBuf,
    against: Option<PathBuf>,
    context: Option<usize>,
    chunks: Option<usize>,
    worst: usize,
    device: &str,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let place = Place { device, threads };
    let options = CompareOptions { worst, ..CompareOptions::default() };
    let compared = || -> Result<quality::Comparison> {
        let weights = place.open(&model, "compare")?;
        let corpus = corpus_of(&weights, &corpus, context, chunks)?;
        let session = SessionOptions { context: Some(corpus.context()), ..SessionOptions::default() };
        let mut other = match &against {
            Some(other) => Some(Session::new(place.open(other, "compare")?, &session)?),
            None => None,
        };
        let mut reference = other.as_mut().map_or(Reference::Nothing, Reference::Model);
        let file = weights.model().clone();
        let mut session = Session::new(weights, &session)?;
        let tokenizer = file.tokenizer()?;
        quality::compare(&mut session, &mut reference, &corpus, tokenizer, None, options, &mut |_| {})
    };
    report::to_python(py, &py.detach(compared).map_err(raised)?)
}

/// Where a model is computed.
struct Place<'a> {
    device: &'a str,
    threads: Option<usize>,
}

impl Place<'_> {
    /// Opens a decoder model.
    fn open(&self, model: &Path, what: &str) -> Result<Arc<Weights>> {
        let file = Arc::new(ModelFile::open(model)?);
        file.expect_generation()?;
        file.expect_no_encoder(what, "use a decoder model")?;
        let options = DeviceOptions { threads: self.threads, ..DeviceOptions::default() };
        let (devices, fallback) = (open_devices(self.device, &[], &options)?, open_fallback(self.device, &options)?);
        Ok(Arc::new(Weights::over(file, devices, fallback)))
    }
}

/// The chunks of a text.
fn corpus_of(weights: &Weights, path: &Path, context: Option<usize>, chunks: Option<usize>) -> Result<Corpus> {
    let model = weights.model();
    let spec = model.model().spec();
    let (most, size) = (spec.context_max(), context.unwrap_or(CHUNK_DEFAULT.min(spec.context_length())));
    if !(4..=most).contains(&size) {
        let problem = format!("context: expected 4 to {most} tokens per chunk, found {size}");
        return Err(Error::Request(problem));
    }
    if chunks == Some(0) {
        return Err(Error::Request("chunks: expected 1 or more, found 0".to_owned()));
    }
    let text = text::read_text(path).map_err(|error| Error::Request(error.to_string()))?;
    Corpus::new(model.tokenizer()?, &text, size, chunks)
        .map_err(|error| Error::Request(format!("{}: {error}", path.display())))
}

fn collected(
    place: &Place,
    model: &Path,
    text: &Path,
    output: &Path,
    (context, chunks, output_head): (Option<usize>, Option<usize>, bool),
) -> Result<Value> {
    let weights = place.open(model, "imatrix")?;
    let corpus = corpus_of(&weights, text, context, chunks)?;
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let chunk_size = u32::try_from(corpus.context())
        .map_err(|_| Error::Request("context: too large for the format; use a smaller number".to_owned()))?;
    let files = formats::open(model, &OpenOptions::default())?;
    let model_hash = quality::hash_files(&files.sources(), &NoProgress)?;
    let (model, data_set) = (name(model), name(text));
    let mut sums = ImportanceSums { model, model_hash, data_set, chunk_size, ..ImportanceSums::default() };
    // Nodes that were fused have no separate inputs.
    let options = SessionOptions { context: Some(corpus.context()), fusion: false, ..SessionOptions::default() };
    let mut session = Session::new(weights, &options)?;
    let mut perplexity = None;
    quality::collect(&mut session, &corpus, &mut sums, ImatrixOptions { output_head }, &mut |_, estimate| {
        perplexity = Some(estimate);
        Ok(())
    })?;
    sums.write(output)?;
    let weight = |(name, entry): (&String, &WeightSums)| {
        let (matrices, unseen) = (entry.counts.len(), entry.unseen());
        json!({"name": name, "matrices": matrices, "unseen": unseen})
    };
    let weights: Vec<Value> = sums.entries.iter().map(weight).collect();
    Ok(json!({"chunks": sums.chunks, "context": chunk_size, "perplexity": perplexity, "weights": weights}))
}
