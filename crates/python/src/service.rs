//! `trueup.Service`: continuous batching for one model.

use crate::failure::raised;
use crate::model::{Model, Words};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trueup::runtime::{RequestId, SessionOptions};
use trueup::{OnPiece, Piece};

/// Interval between checks for signals while waiting for a result.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Continuous batching for one model. Any thread can submit requests. Requests join and leave the running batch, and
/// each result is the same as if the request ran alone.
///
/// model: the model. It can also be used directly at the same time.
/// sequences: number of requests that are computed at once. Further requests wait.
/// context: most tokens per request. None uses the model's context, at most 4096.
/// requests: most requests that may be waiting, running, or finished and not yet fetched.
///
/// The service ends after the current batch when close is called, the with block ends or the object is deleted. Raises
/// TrueupError.
#[pyclass(module = "trueup", frozen)]
pub struct Service {
    service: Mutex<Option<Arc<trueup::Service>>>,
    exceptions: Exceptions,
}

/// Exceptions that callbacks raised, by request number.
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

    /// Submit a prompt and return the request number immediately. The arguments are those of Model.generate.
    ///
    /// The service's thread calls on_text, which must not call fetch. An exception in on_text ends the text and is
    /// raised by fetch.
    ///
    /// Raises TrueupError if the prompt does not fit, or if there are too many requests.
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

    /// Wait for the text of a request and return it once. Returns None if the request is not finished within timeout
    /// seconds. With timeout=None, wait until it is finished.
    ///
    /// Raises TrueupError if the request failed, or if its number is unknown, already fetched or cancelled.
    /// KeyboardInterrupt does not cancel the request.
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

    /// Cancel a request that is waiting, running or finished. Returns whether it existed.
    fn cancel(&self, py: Python<'_>, number: usize) -> PyResult<bool> {
        let was_held = self.detached(py, |service| service.cancel(RequestId::new(number)))?;
        all(&self.exceptions).remove(&number);
        Ok(was_held)
    }

    /// Cancel all requests and stop the service. Pending calls of fetch raise TrueupError.
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
    /// Calls the service with the interpreter released, because its thread may need the interpreter for a callback. The
    /// last owner of a closed service joins its thread, also with the interpreter released.
    fn detached<T: Send>(&self, py: Python<'_>, ask: impl FnOnce(&trueup::Service) -> T + Send) -> PyResult<T> {
        let asked = py.detach(|| {
            let service = all(&self.service).clone();
            service.map(|service| ask(&service))
        });
        asked.ok_or_else(|| raised("the service is closed"))
    }

    /// Cancels all requests, including those that other threads wait for, and drops the service.
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

/// Calls `on_text` with each part of the text that is not empty, until it raises an exception.
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
