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

/// How long a wait for a result lasts before it begins again.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A running batch of one model, which requests join and leave. Dropping it stops it after the current batch.
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

/// Hears a text as it comes, on the service's thread, and can end it. It must not wait for a result of the same service.
pub type OnPiece = Box<dyn FnMut(Piece<'_>) -> ControlFlow<()> + Send>;

/// The text generated after a prompt.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The text without special tokens; empty where the model has no tokenizer. Bytes at its end that are no whole character are U+FFFD, or nothing where
    /// its listener ended it.
    pub text: String,
    /// The ids, why there are no more, times and logits.
    pub generated: Generated,
}

impl Service {
    /// Begins to serve: as many requests at once as `options` has sequences, and at most `held_max` that wait, run, or are not fetched.
    pub fn start(model: &Model, options: &SessionOptions, held_max: usize) -> Result<Service> {
        let session = Session::new(model.weights().clone(), options)?;
        let requests = Arc::new(Requests::new(&session, held_max));
        let listeners = Arc::new(Listeners::default());
        let (of_worker, heard) = (requests.clone(), listeners.clone());
        let worker = thread::Builder::new().name("trueup-service".to_owned());
        let worker = worker.spawn(move || work(session, &of_worker, &heard));
        let worker = worker.map_err(|error| Error::Request(format!("no thread to compute requests: {error}")))?;
        Ok(Service { model: model.clone(), requests, listeners, worker: Some(worker) })
    }

    /// Requests the text that follows a prompt. Fails immediately if it cannot be computed: see [`Requests::submit`].
    pub fn submit(&self, prompt: &str, options: GenerateOptions, on_piece: Option<OnPiece>) -> Result<RequestId> {
        let ids = self.model.file().tokenizer()?.encode(prompt, true)?;
        self.submit_ids(ids, options, on_piece)
    }

    /// Requests the text that follows token ids. No ids are added.
    pub fn submit_ids(&self, ids: Vec<u32>, options: GenerateOptions, on_piece: Option<OnPiece>) -> Result<RequestId> {
        // Held until the listener is known, since the first token may come at once.
        let mut listeners = self.listeners.all();
        let id = self.requests.submit(ids, options)?;
        if let Some(on_piece) = on_piece {
            listeners.insert(id.number(), on_piece);
        }
        Ok(id)
    }

    /// Waits for a result, which is then forgotten. Fails as the request did, and where there is none, since it was fetched or cancelled.
    pub fn fetch(&self, id: RequestId) -> Result<Answer> {
        loop {
            if let Some(answer) = self.fetch_within(id, PATIENCE)? {
                return Ok(answer);
            }
        }
    }

    /// Waits so long for a result at most; `Duration::ZERO` only looks.
    pub fn fetch_within(&self, id: RequestId, patience: Duration) -> Result<Option<Answer>> {
        let generated = self.requests.fetch_within(id, patience)?;
        Ok(generated.map(|generated| Answer { text: self.text(&generated), generated }))
    }

    /// Cancels a request that waits, runs or is finished, and wakes its waiters. Returns whether it existed.
    pub fn cancel(&self, id: RequestId) -> bool {
        let listener = self.listeners.take(id.number());
        let was_held = self.requests.cancel(id);
        drop(listener);
        was_held
    }

    /// Ends all requests that are not finished and refuses all that come; whoever waits for one is told. The thread that computes ends behind the batch in
    /// work, and dropping the service waits for it.
    pub fn close(&self) {
        self.requests.close("the service was closed before generation ended");
    }

    /// What a listener hears of a text: of one that it ended, no characters that are not whole.
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
        // A listener that drops the last of its service cannot wait for its own thread.
        if let Some(worker) = self.worker.take().filter(|worker| worker.thread().id() != thread::current().id()) {
            // What it panicked with was printed then, and its requests have failed.
            let _ = worker.join();
        }
    }
}

/// Those who hear texts as they come, by the numbers of their requests.
#[derive(Default)]
struct Listeners(Mutex<HashMap<usize, OnPiece>>);

impl Listeners {
    fn all(&self) -> MutexGuard<'_, HashMap<usize, OnPiece>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one away. What it holds may do anything with the service when it is dropped, so nobody drops it while all are locked.
    fn take(&self, number: usize) -> Option<OnPiece> {
        self.all().remove(&number)
    }

    /// Tells one of them, if there is one, which may then do anything with the service but wait. One that ends its text hears no more of it.
    fn tell(&self, piece: Piece<'_>) -> ControlFlow<()> {
        let number = piece.request.number();
        let Some(mut listener) = self.take(number) else { return ControlFlow::Continue(()) };
        listener(piece)?;
        self.all().insert(number, listener);
        ControlFlow::Continue(())
    }
}

/// Computes requests until there will be no more.
fn work(mut session: Session, requests: &Requests, listeners: &Listeners) {
    let _closing = Closing(requests, listeners);
    let file = session.model().clone();
    let mut audience = Audience { tokenizer: file.tokenizer().ok(), streams: HashMap::new(), listeners };
    let mut runner = Runner::new(requests, &mut session);
    while requests.wait_for_work() {
        // Whoever asked is told of a failure, and others may come.
        while runner.step(&mut audience).unwrap_or(false) {}
    }
}

/// Lets nobody wait for a thread that is gone, by a listener's panic too.
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
