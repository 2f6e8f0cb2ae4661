//! Serves requests from several threads with one model.
//!
//! ```text
//! thread A ─ submit ─┐                                          ┌─▶ fetch ─ thread A
//! thread B ─ submit ─┼─▶ Requests ─▶ one computing thread ──────┼─▶ fetch ─ thread B
//! thread C ─ cancel ─┘               │  batch by batch          └─▶ ...
//!                                    └─▶ parts of texts, as they are generated
//! ```
//!
//! The service installs no signal handler and ends no process. Dropping it stops it.

use crate::model::Model;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use trueup_runtime::{
    Error, Finish, GenerateOptions, Generated, RequestId, Requests, Result, Runner, Session, SessionOptions, Watch,
};
use trueup_tokenizer::{DecodeStream, Tokenizer};

/// Longest single wait for a result; `fetch` repeats it.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Continuous batching for one model: requests join and leave the running batch. Dropping the service ends it after the
/// current batch.
///
/// ```
/// use std::ops::ControlFlow;
/// use std::sync::mpsc;
/// use trueup::runtime::{DeviceOptions, GenerateOptions, Sampling, SessionOptions};
/// use trueup::{Model, Piece, Service};
/// # use trueup::convert::{Options, convert};
/// # use trueup::formats::{self, OpenOptions};
/// # use trueup::quantize::NoProgress;
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/stories-1M");
/// # let scratch = tempfile::tempdir()?;
/// # let file = scratch.path().join("stories.gguf");
/// # convert(formats::open(folder, &OpenOptions::default())?.as_ref(), &file, &Options::default(), &NoProgress)?;
///
/// let model = Model::open(&file, "cpu", &DeviceOptions::default())?;
/// let four_at_once = SessionOptions { sequences: 4, ..SessionOptions::default() };
/// let service = Service::start(&model, &four_at_once, 100)?;
///
/// let options = GenerateOptions { tokens_max: Some(6), sampling: Sampling::GREEDY, ..GenerateOptions::default() };
/// let (sender, pieces) = mpsc::channel();
/// let hears = Box::new(move |piece: Piece<'_>| match sender.send(piece.text.to_owned()) {
///     Ok(()) => ControlFlow::Continue(()),
///     Err(_) => ControlFlow::Break(()), // the receiver is gone: end the text
/// });
/// let fox = service.submit("Once upon a time", options.clone(), Some(hears))?;
/// let unwanted = service.submit("Lily", options, None)?;
/// service.cancel(unwanted);
/// let heard: String = pieces.iter().inspect(|piece| print!("{piece}")).collect();
/// assert_eq!(heard, ", there was a little fox");
/// assert_eq!(service.fetch(fox)?.text, heard);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Service {
    model: Model,
    requests: Arc<Requests>,
    listeners: Arc<Listeners>,
    worker: Option<JoinHandle<()>>,
}

/// A piece of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    /// Whose text it is.
    pub request: RequestId,
    /// The token that was chosen; `None` for what is left of the text at its end.
    pub id: Option<u32>,
    /// The characters that are whole since the last piece, perhaps none; none where the model has no tokenizer.
    pub text: &'a str,
}

/// Callback for each part of a text, called on the service's thread. It can end the text. It must not wait for a result
/// of the same service.
pub type OnPiece = Box<dyn FnMut(Piece<'_>) -> ControlFlow<()> + Send>;

/// The result of a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The text without special tokens; empty if the model has no tokenizer. An incomplete character at the end becomes
    /// U+FFFD, or is omitted if the callback ended the text.
    pub text: String,
    /// Token ids, finish reason, times and logits.
    pub generated: Generated,
}

impl Service {
    /// Starts the service. It computes up to `options.sequences` requests at once, and holds at most `held_max`
    /// requests that are waiting, running, or finished and not fetched.
    pub fn start(model: &Model, options: &SessionOptions, held_max: usize) -> Result<Service> {
        let session = Session::new(model.weights().clone(), options)?;
        let requests = Arc::new(Requests::new(&session, held_max));
        let listeners = Arc::new(Listeners::default());
        let (of_worker, heard) = (requests.clone(), listeners.clone());
        let worker = thread::Builder::new().name("trueup-service".to_owned());
        let worker = worker.spawn(move || work(session, &of_worker, &heard));
        let worker = worker
            .map_err(|error| Error::Request(format!("cannot start the thread that computes requests: {error}")))?;
        Ok(Service { model: model.clone(), requests, listeners, worker: Some(worker) })
    }

    /// Submits a prompt. Fails immediately if it cannot be computed: see [`Requests::submit`].
    pub fn submit(&self, prompt: &str, options: GenerateOptions, on_piece: Option<OnPiece>) -> Result<RequestId> {
        let ids = self.model.file().tokenizer()?.encode(prompt, true)?;
        self.submit_ids(ids, options, on_piece)
    }

    /// Submits token ids as they are; no special tokens are added.
    pub fn submit_ids(&self, ids: Vec<u32>, options: GenerateOptions, on_piece: Option<OnPiece>) -> Result<RequestId> {
        // Held until the listener is known, since the first token may come at once.
        let mut listeners = self.listeners.all();
        let id = self.requests.submit(ids, options)?;
        if let Some(on_piece) = on_piece {
            listeners.insert(id.number(), on_piece);
        }
        Ok(id)
    }

    /// Waits for a result and removes it. Returns the request's error if it failed, and an error if the request does
    /// not exist because it was fetched or cancelled.
    pub fn fetch(&self, id: RequestId) -> Result<Answer> {
        loop {
            if let Some(answer) = self.fetch_within(id, PATIENCE)? {
                return Ok(answer);
            }
        }
    }

    /// Like [`Service::fetch`], but returns `None` if there is no result within `patience`.
    pub fn fetch_within(&self, id: RequestId, patience: Duration) -> Result<Option<Answer>> {
        let generated = self.requests.fetch_within(id, patience)?;
        Ok(generated.map(|generated| Answer { text: self.text(&generated), generated }))
    }

    /// Cancels a request that is waiting, running or finished. Threads that wait for it get an error. Returns whether
    /// the request existed.
    pub fn cancel(&self, id: RequestId) -> bool {
        let listener = self.listeners.take(id.number());
        let was_held = self.requests.cancel(id);
        drop(listener);
        was_held
    }

    /// Cancels all unfinished requests and rejects new ones. Threads that wait for a result get an error. The computing
    /// thread ends after the current batch; dropping the service waits for it.
    pub fn close(&self) {
        self.requests.close("the service was closed before generation ended");
    }

    /// The text as its callback received it. If the callback ended the text, an incomplete character is omitted.
    fn text(&self, generated: &Generated) -> String {
        let Ok(tokenizer) = self.model.file().tokenizer() else { return String::new() };
        let mut stream = tokenizer.stream(true, false);
        let mut text: String = generated.ids.iter().map(|id| stream.push(*id)).collect();
        if generated.finish != Finish::Stopped {
            text.push_str(&stream.finish());
        }
        text
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.close();
        // A callback that drops the last reference to its service cannot join its own thread.
        if let Some(worker) = self.worker.take().filter(|worker| worker.thread().id() != thread::current().id()) {
            // A panic has been printed, and the requests have failed.
            let _ = worker.join();
        }
    }
}

/// Callbacks by request number.
#[derive(Default)]
struct Listeners(Mutex<HashMap<usize, OnPiece>>);

impl Listeners {
    fn all(&self) -> MutexGuard<'_, HashMap<usize, OnPiece>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a callback. Its destructor may call the service, so it must not be dropped while the map is locked.
    fn take(&self, number: usize) -> Option<OnPiece> {
        self.all().remove(&number)
    }

    /// Calls the callback of a request, if there is one. It may call the service but must not wait for it. A callback
    /// that ends its text is not called again.
    fn tell(&self, piece: Piece<'_>) -> ControlFlow<()> {
        let number = piece.request.number();
        let Some(mut listener) = self.take(number) else { return ControlFlow::Continue(()) };
        listener(piece)?;
        self.all().insert(number, listener);
        ControlFlow::Continue(())
    }
}

/// Computes requests until the service is closed.
fn work(mut session: Session, requests: &Requests, listeners: &Listeners) {
    let _closing = Closing(requests, listeners);
    let file = session.model().clone();
    let mut audience = Audience { tokenizer: file.tokenizer().ok(), streams: HashMap::new(), listeners };
    let mut runner = Runner::new(requests, &mut session);
    while requests.wait_for_work() {
        // A failure is reported to its request; other requests can still be computed.
        while runner.step(&mut audience).unwrap_or(false) {}
    }
}

/// Fails all requests when the computing thread ends, also after a panic in a callback.
struct Closing<'a>(&'a Requests, &'a Listeners);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close("the thread that computes requests has ended");
        let listeners = std::mem::take(&mut *self.1.all());
        drop(listeners);
    }
}

/// Turns tokens into pieces of text.
struct Audience<'a> {
    tokenizer: Option<&'a Tokenizer>,
    streams: HashMap<usize, DecodeStream<'a>>,
    listeners: &'a Listeners,
}

impl Watch for Audience<'_> {
    fn saw_token(&mut self, prompt: usize, id: u32) -> ControlFlow<()> {
        let text = self.tokenizer.map(|tokenizer| {
            let stream = self.streams.entry(prompt).or_insert_with(|| tokenizer.stream(true, false));
            stream.push(id)
        });
        let request = RequestId::new(prompt);
        self.listeners.tell(Piece { request, id: Some(id), text: &text.unwrap_or_default() })
    }

    fn ended(&mut self, prompt: usize) {
        let rest = self.streams.remove(&prompt).map(|mut stream| stream.finish()).unwrap_or_default();
        if !rest.is_empty() {
            // Nothing is left to end.
            let _ = self.listeners.tell(Piece { request: RequestId::new(prompt), id: None, text: &rest });
        }
        drop(self.listeners.take(prompt));
    }
}
