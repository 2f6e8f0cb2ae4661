//! `trueup.Model`: a model on a device.
//!
//! ```text
//! generate: release the interpreter ─ part of the prompt, or a token ─ reacquire: signals?, on_text(text) ─ release ─ ...
//!                                                                          └ KeyboardInterrupt, or an exception of on_text, ends the text
//! ```

use crate::failure::raised;
use crate::metadata;
use numpy::{IntoPyArray, PyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::PathBuf;
use trueup::runtime::{ContextShift, DeviceOptions, GenerateOptions, Sampling, SessionOptions};
use trueup::text;

/// A model file on a device. Calls from several threads run concurrently.
///
/// path: the GGUF file. For a split model, pass the first file.
/// device: "cpu", "cuda" (NVIDIA), "npu" (Ascend), "ref" (the f64 reference), or another device that `trueup devices`
///     lists. A comma-separated list distributes the layers over several devices.
/// threads: number of threads. None uses one per core. Results do not depend on it.
/// context: most tokens of a prompt and its output together. None uses the model's context, at most 4096. A Service has
///     a separate context.
///
/// Raises TrueupError.
#[pyclass(module = "trueup", frozen)]
pub struct Model(trueup::Model);

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (path, device="cpu", threads=None, context=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        device: &str,
        threads: Option<usize>,
        context: Option<usize>,
    ) -> PyResult<Model> {
        let options = DeviceOptions { threads, ..DeviceOptions::default() };
        let session = SessionOptions { context, ..SessionOptions::default() };
        let open = || trueup::Model::open(path, device, &options);
        py.detach(open).map(|model| Model(model.with_session(session))).map_err(raised)
    }

    /// Convert text to token ids. With special, add the tokens that begin and end every text. Special tokens that are
    /// spelled out in the text are always recognized.
    #[pyo3(signature = (text, special=true))]
    fn tokenize(&self, py: Python<'_>, text: &str, special: bool) -> PyResult<Vec<u32>> {
        let tokenizer = self.0.file().tokenizer().map_err(raised)?;
        py.detach(|| tokenizer.encode(text, special)).map_err(raised)
    }

    /// Convert token ids to text. Bytes that are not valid UTF-8 become U+FFFD. skip_special omits special tokens.
    #[pyo3(signature = (ids, skip_special=false))]
    fn detokenize(&self, py: Python<'_>, ids: &Bound<'_, PyAny>, skip_special: bool) -> PyResult<String> {
        let ids = ids_of(ids)?;
        let tokenizer = self.0.file().tokenizer().map_err(raised)?;
        text::check_ids(tokenizer, &ids).map_err(raised)?;
        Ok(py.detach(|| String::from_utf8_lossy(&tokenizer.decode(&ids, skip_special)).into_owned()))
    }

    /// Generate the text that follows a prompt.
    ///
    /// max_tokens: most tokens to generate. None stops at the end of the text or of the context. temperature: 0 always
    /// takes the most likely token; higher values give more varied text. top_k: sample from the k most likely tokens; 0
    /// uses all. top_p: sample from the most likely tokens whose probabilities add up to this value. min_p: drop tokens
    /// whose probability is below this share of the most likely token's. repeat_penalty: make the last 64 tokens less
    /// likely; 1 turns this off. seed: random seed. The same seed gives the same text. on_text: called with each part
    /// of the text as soon as its characters are complete. An exception ends the text and
    ///     is raised by this call.
    /// context_shift: when the context is full, drop half of the tokens after the kept ones, recompute the rest and
    ///     continue. The text may then never end.
    /// keep: prompt tokens that a context shift keeps, in addition to bos. None keeps the whole prompt.
    ///
    /// Raises TrueupError, and KeyboardInterrupt after the current token or part of the prompt.
    #[pyo3(signature = (
        prompt, max_tokens=None, temperature=0.0, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.0, seed=0, on_text=None,
        context_shift=false, keep=0
    ))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn generate(
        &self,
        py: Python<'_>,
        prompt: &str,
        max_tokens: Option<usize>,
        temperature: f64,
        top_k: usize,
        top_p: f64,
        min_p: f64,
        repeat_penalty: f64,
        seed: u64,
        on_text: Option<Py<PyAny>>,
        context_shift: bool,
        keep: Option<usize>,
    ) -> PyResult<String> {
        let options =
            Words { max_tokens, temperature, top_k, top_p, min_p, repeat_penalty, seed, context_shift, keep }.options();
        let (text, raised_meanwhile) = py.detach(|| {
            let raised_meanwhile = RefCell::new(None);
            let heard = |outcome: PyResult<()>| match outcome {
                Ok(()) => ControlFlow::Continue(()),
                Err(exception) => {
                    raised_meanwhile.replace(Some(exception));
                    ControlFlow::Break(())
                }
            };
            let mut is_cancelled = || heard(tell(None, "")).is_break();
            let mut hear = |piece: &str| heard(tell(on_text.as_ref(), piece));
            let text = self.0.generate_unless(prompt, &options, &mut is_cancelled, &mut hear);
            (text, raised_meanwhile.into_inner())
        });
        match raised_meanwhile {
            Some(exception) => Err(exception),
            None => text.map_err(raised),
        }
    }

    /// The logits after each id: a float32 array of shape (tokens, vocabulary). An encoder-decoder model runs the
    /// encoder on the ids and returns one row: the logits after the decoder's start token. Raises TrueupError.
    fn logits<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let ids = ids_of(ids)?;
        let logits = py.detach(|| self.0.logits(&ids)).map_err(raised)?;
        Ok(logits.into_pyarray(py))
    }

    /// The vectors of an encoder for token ids: a float32 array with one row for the text if the model pools, else with
    /// one row for each token. Raises TrueupError.
    fn embed<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let ids = ids_of(ids)?;
        let vectors = py.detach(|| self.0.embed(&ids)).map_err(raised)?;
        Ok(vectors.into_pyarray(py))
    }

    /// The metadata of the file: keys and values in file order.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata::to_python(py, self.0.file().metadata())
    }

    fn __repr__(&self) -> String {
        format!("<trueup.Model {:?}>", self.0.file().path())
    }
}

impl Model {
    pub fn inner(&self) -> &trueup::Model {
        &self.0
    }
}

/// Options of text generation, as Python passes them.
pub struct Words {
    pub max_tokens: Option<usize>,
    pub temperature: f64,
    pub top_k: usize,
    pub top_p: f64,
    pub min_p: f64,
    pub repeat_penalty: f64,
    pub seed: u64,
    pub context_shift: bool,
    pub keep: Option<usize>,
}

impl Words {
    pub fn options(self) -> GenerateOptions {
        let Words { max_tokens, temperature, top_k, top_p, min_p, repeat_penalty, seed, context_shift, keep } = self;
        let sampling = Sampling { temperature, top_k, top_p, min_p, repeat_penalty, seed, ..Sampling::GREEDY };
        let context_shift = context_shift.then_some(ContextShift { keep });
        GenerateOptions { tokens_max: max_tokens, sampling, context_shift, ..GenerateOptions::default() }
    }
}

/// Checks for signals, and calls `on_text` if there is new text.
fn tell(on_text: Option<&Py<PyAny>>, piece: &str) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        match on_text {
            Some(on_text) if !piece.is_empty() => on_text.call1(py, (piece,)).map(|_| ()),
            _ => Ok(()),
        }
    })
}

/// Ids from anything that can be iterated: a list, a range, a NumPy array.
fn ids_of(ids: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    ids.try_iter()?.map(|id| id?.extract()).collect()
}
