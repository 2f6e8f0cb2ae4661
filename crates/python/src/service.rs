//! `trueup.Service`: a running batch of one model, which requests join and leave.

use crate::failure::raised;
use crate::model::{Model, Words};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trueup::runtime::{RequestId, SessionOptions};
use trueup::{OnPiece, Piece};

/// How long a wait for a result lasts before signals are looked for.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// A running batch of one model. Requests come from any thread, join and leave while others are computed, and give what each gives alone.
///
/// model: the model, which can be used beside it.
/// sequences: how many requests are computed at once; the others wait.
/// context: tokens that each can hold; None is the model's, or 4096 where that is less.
/// requests: how many may wait, run, or be finished and not fetched yet.
///
/// close, the end of a with statement or of the object ends it behind the batch in work. Raises TrueupError.
#[pyclass(module = "trueup", frozen)]
pub struct Service {
    service: Mutex<Option<Arc<trueup::Service>>>,
    exceptions: Exceptions,
}

/// What listeners raised, by the numbers of their requests.
type Exceptions = Arc<Mutex<HashMap<usize, PyErr>>>;

#[pymethods]
impl Service {
    #[new]
    #[pyo3(signature = (model, sequences=4, context=None, requests=256))]
    fn new(
        py: Python<'_>,
        model: &Model,
        sequences: usize,
        context: Option<usize>,
        requests: usize,
    ) -> PyResult<Service> {
        let options = SessionOptions { sequences, context, ..SessionOptions::default() };
        let model = model.inner();
        let service = py.detach(|| trueup::Service::start(model, &options, requests)).map_err(raised)?;
        Ok(Service { service: Mutex::new(Some(Arc::new(service))), exceptions: Exceptions::default() })
    }

    /// Ask for the text behind a prompt and return the request's number at once. The arguments are those of Model.generate.
    ///
    /// on_text is called by the service's thread, and must not fetch; what it raises ends the text and is raised by fetch.
    ///
    /// Raises TrueupError where the prompt does not fit, or too many requests are held.
    #[pyo3(signature = (
        prompt, max_tokens=None, temperature=0.0, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.0, seed=0, on_text=None,
        context_shift=false, keep=0
    ))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn submit(
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
    ) -> PyResult<usize> {
        let options =
            Words { max_tokens, temperature, top_k, top_p, min_p, repeat_penalty, seed, context_shift, keep }.options();
        let exceptions = self.exceptions.clone();
        let on_piece = on_text.map(|on_text| listener(on_text, exceptions));
        let id = self.detached(py, |service| service.submit(prompt, options, on_piece))?.map_err(raised)?;
        Ok(id.number())
    }

    /// Wait for a text, and forget it. None where it is not finished within timeout seconds; None waits until it is.
    ///
    /// Raises TrueupError as the request did, and for a number that is unknown, fetched or cancelled; KeyboardInterrupt, which cancels nothing.
    #[pyo3(signature = (number, timeout=None))]
    fn fetch(&self, py: Python<'_>, number: usize, timeout: Option<f64>) -> PyResult<Option<String>> {
        let begun = Instant::now();
        let most = timeout.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
        loop {
            let left = most.map_or(SIGNALS_EVERY, |most| most.saturating_sub(begun.elapsed()));
            let patience = left.min(SIGNALS_EVERY);
            let fetched = self.detached(py, |service| service.fetch_within(RequestId::new(number), patience))?;
            if !matches!(fetched, Ok(None))
                && let Some(exception) = all(&self.exceptions).remove(&number)
            {
                return Err(exception);
            }
            match fetched.map_err(raised)? {
                Some(answer) => return Ok(Some(answer.text)),
                None if left.is_zero() => return Ok(None),
                None => py.check_signals()?,
            }
        }
    }

    /// Forget a request, whether it waits, runs or is finished. Whether there was one.
    fn cancel(&self, py: Python<'_>, number: usize) -> PyResult<bool> {
        let was_held = self.detached(py, |service| service.cancel(RequestId::new(number)))?;
        all(&self.exceptions).remove(&number);
        Ok(was_held)
    }

    /// End all requests and the service. Who waits in fetch is raised TrueupError.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.end());
    }

    fn __enter__(this: Py<Service>) -> Py<Service> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }
}

impl Service {
    /// Asks the service without the interpreter, for its thread may wait for that while it tells a listener. The last to let go of a closed service
    /// waits for its thread, and does that without the interpreter too.
    fn detached<T: Send>(&self, py: Python<'_>, ask: impl FnOnce(&trueup::Service) -> T + Send) -> PyResult<T> {
        let asked = py.detach(|| {
            let service = all(&self.service).clone();
            service.map(|service| ask(&service))
        });
        asked.ok_or_else(|| raised("the service is closed"))
    }

    /// Ends all requests, those that other threads wait for too, and lets go of the service.
    fn end(&self) {
        let service = all(&self.service).take();
        service.iter().for_each(|service| service.close());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Its thread may wait for the interpreter.
        Python::attach(|py| py.detach(|| self.end()));
    }
}

/// Calls `on_text` with each piece that is not empty, until it raises something.
fn listener(on_text: Py<PyAny>, exceptions: Exceptions) -> OnPiece {
    Box::new(move |piece: Piece<'_>| {
        if piece.text.is_empty() {
            return ControlFlow::Continue(());
        }
        match Python::attach(|py| on_text.call1(py, (piece.text,)).map(|_| ())) {
            Ok(()) => ControlFlow::Continue(()),
            Err(exception) => {
                all(&exceptions).insert(piece.request.number(), exception);
                ControlFlow::Break(())
            }
        }
    })
}

fn all<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
