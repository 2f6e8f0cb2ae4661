//! `trueup.Model`: a model on a device.
//!
//! ```text
//! generate: the interpreter is let go ─ piece of the prompt, or token ─ taken back: signals?, on_text(piece) ─ let go ─ ...
//!                                                                           └ KeyboardInterrupt or what on_text raised: ends the text
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

/// A model file on a device. Calls from several threads run side by side.
///
/// path: the GGUF file, for a split one its first.
/// device: "cpu", "cuda" for an NVIDIA card, "npu" for an Ascend card, "ref" for exact arithmetic, or another that `trueup devices` lists; several with
///     commas between them, over which the layers are placed.
/// threads: how many compute; None is one per core. Results do not depend on it.
/// context: tokens that a text can have with its prompt; None is the model's, or 4096 where that is less. A Service has a context of its own.
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

    /// The ids of a text; with special between those that begin and end every text. Special tokens written in the text are
    /// recognised either way.
    #[pyo3(signature = (text, special=true))]
    fn tokenize(&self, py: Python<'_>, text: &str, special: bool) -> PyResult<Vec<u32>> {
        let tokenizer = self.0.file().tokenizer().map_err(raised)?;
        py.detach(|| tokenizer.encode(text, special)).map_err(raised)
    }

    /// The text of ids. Bytes that are no whole characters become U+FFFD. skip_special leaves special tokens out.
    #[pyo3(signature = (ids, skip_special=false))]
    fn detokenize(&self, py: Python<'_>, ids: &Bound<'_, PyAny>, skip_special: bool) -> PyResult<String> {
        let ids = ids_of(ids)?;
        let tokenizer = self.0.file().tokenizer().map_err(raised)?;
        text::check_ids(tokenizer, &ids).map_err(raised)?;
        Ok(py.detach(|| String::from_utf8_lossy(&tokenizer.decode(&ids, skip_special)).into_owned()))
    }

    /// The text behind a prompt.
    ///
    /// max_tokens: at most so many; None goes on to the end of the text or of the context.
    /// temperature: 0 takes the best token every time; higher is more varied.
    /// top_k: choose among the k best tokens; 0 is all.
    /// top_p: choose among the best tokens that together have this probability.
    /// min_p: drop tokens less probable than this share of the best one's.
    /// repeat_penalty: make tokens of the last 64 less probable; 1 is off.
    /// seed: the same seed gives the same text.
    /// on_text: called with each piece of text as soon as its characters are whole; what it raises ends the text and is raised.
    /// context_shift: when the context is full, drop half of what is behind the kept tokens, compute the rest again and go on; a text may
    ///     then have no end.
    /// keep: tokens of the prompt that a context shift keeps, beside its bos; None is the whole prompt.
    ///
    /// Raises TrueupError; KeyboardInterrupt after the token, or the piece of the prompt, in work.
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

    /// The logits behind each id: a float32 array of (tokens, vocabulary). Raises TrueupError.
    fn logits<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let ids = ids_of(ids)?;
        let logits = py.detach(|| self.0.logits(&ids)).map_err(raised)?;
        Ok(logits.into_pyarray(py))
    }

    /// The file's keys and values, in their order.
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

/// How a text is generated, in the words of Python.
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

/// Looks for signals, and calls `on_text` with a piece that is not empty.
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
