//! Requests: prompts that come at any time and from any thread, each with options of its own, and results that wait for
//! whoever asked.
//!
//! ```text
//! submit ─▶ waiting ─▶ running, in a sequence of its own ─▶ finished ─▶ fetched
//!              └────────────────┴────────── cancel ────────────┴─▶ forgotten
//! ```
//!
//! A list of requests computes nothing; a [`Runner`](super::Runner) does, batch by batch.
//!
//! ```
//! use trueup_runtime::{GenerateOptions, Requests, Result, Runner, Session, Watch};
//!
//! fn texts(session: &mut Session, watch: &mut dyn Watch) -> Result<()> {
//!     let requests = Requests::new(session, 64);
//!     let id = requests.submit(vec![1, 5], GenerateOptions::default())?;
//!     let mut runner = Runner::new(&requests, session);
//!     while runner.step(watch)? {}
//!     assert!(requests.poll(id)?.is_some());
//!     Ok(())
//! }
//! ```

use super::{ContextShift, GenerateOptions, Generated};
use crate::error::{Error, Result};
use crate::model_file::ModelFile;
use crate::sampler::Sampler;
use crate::session::{Session, longer};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trueup_formats::counted;

/// Which request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(usize);

impl RequestId {
    /// The request of that number, if there ever was one.
    pub fn new(number: usize) -> RequestId {
        RequestId(number)
    }

    /// Requests are numbered from 0 in the order in which they were submitted; a [`Watch`](super::Watch) sees these
    /// numbers.
    pub fn number(self) -> usize {
        self.0
    }
}

/// Requests to one session, from any thread.
pub struct Requests {
    model: Arc<ModelFile>,
    context: usize,
    held_max: usize,
    list: Mutex<List>,
    /// Something is waiting or finished, or nothing more will be.
    changed: Condvar,
}

#[derive(Default)]
struct List {
    held: HashMap<usize, State>,
    waiting: VecDeque<usize>,
    /// The number of the next request.
    next: usize,
    /// Why no more are taken.
    closed: Option<String>,
}

/// How far a request is.
enum State {
    Waiting(Asked),
    Running,
    Finished(Result<Generated>),
}

/// What is asked for.
pub(super) struct Asked {
    pub prompt: Vec<u32>,
    /// The text that an encoder reads first. The prompt is then the decoder's first token.
    pub source: Option<Vec<u32>>,
    pub options: GenerateOptions,
    pub sampler: Sampler,
    /// How many tokens stay when the context shifts.
    pub kept: Option<usize>,
}

impl Requests {
    /// A list of at most `held_max` requests: waiting, running, or finished and not fetched yet.
    pub fn new(session: &Session, held_max: usize) -> Requests {
        let (model, context) = (session.model().clone(), session.context());
        Requests { model, context, held_max, list: Mutex::default(), changed: Condvar::new() }
    }

    /// Requests the text that follows a prompt. Fails immediately if the prompt or its options cannot be computed,
    /// where too many requests are held, and where the list is closed.
    pub fn submit(&self, prompt: Vec<u32>, options: GenerateOptions) -> Result<RequestId> {
        let mut list = self.list();
        if let Some(reason) = &list.closed {
            return Err(Error::Request(reason.clone()));
        }
        if list.held.len() >= self.held_max {
            let held = counted(self.held_max, "request");
            return Err(Error::Request(format!(
                "{held} already waiting, running or not fetched; fetch or cancel some first"
            )));
        }
        let number = list.next;
        let asked = self.expect_computable(number, prompt, options)?;
        list.next += 1;
        list.waiting.push_back(number);
        list.held.insert(number, State::Waiting(asked));
        self.changed.notify_all();
        Ok(RequestId(number))
    }

    /// The result if the text has ended, which is then forgotten. Fails as the request did, and where there is none,
    /// since it was fetched or cancelled.
    pub fn poll(&self, id: RequestId) -> Result<Option<Generated>> {
        self.fetch_within(id, Duration::ZERO)
    }

    /// Waits so long for the result at most. Someone else must run requests meanwhile; see [`Requests::poll`].
    pub fn fetch_within(&self, id: RequestId, patience: Duration) -> Result<Option<Generated>> {
        let begun = Instant::now();
        let mut list = self.list();
        loop {
            match list.held.get(&id.0) {
                Some(State::Finished(_)) => break,
                Some(_) => (),
                None => return Err(list.missing(id)),
            }
            let Some(left) = patience.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else {
                return Ok(None);
            };
            list = self.changed.wait_timeout(list, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        match list.held.remove(&id.0) {
            Some(State::Finished(result)) => result.map(Some),
            _ => Err(list.missing(id)),
        }
    }

    /// Forgets a request, whether it waits, runs or is finished. One that runs leaves its sequence before the next
    /// batch. Whether there was one.
    pub fn cancel(&self, id: RequestId) -> bool {
        let mut list = self.list();
        list.waiting.retain(|number| *number != id.0);
        let was_held = list.held.remove(&id.0).is_some();
        self.changed.notify_all();
        was_held
    }

    /// How many requests wait, run, or are finished and not fetched yet.
    pub fn held(&self) -> usize {
        self.list().held.len()
    }

    /// Ends all requests that are not finished, and refuses all that come, for this reason.
    pub fn close(&self, reason: &str) {
        // One lock for both: what is submitted between them would wait for ever.
        let mut list = self.list();
        list.closed.get_or_insert_with(|| reason.to_owned());
        list.fail_all(reason);
        self.changed.notify_all();
    }

    /// Waits until a request does; false where none will, for the list is closed.
    pub fn wait_for_work(&self) -> bool {
        let mut list = self.list();
        while list.waiting.is_empty() && list.closed.is_none() {
            list = self.changed.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
        list.closed.is_none()
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.list().waiting.is_empty()
    }

    /// The request that waits longest, which runs from now on.
    pub(super) fn take_waiting(&self) -> Option<(usize, Asked)> {
        let mut list = self.list();
        let number = list.waiting.pop_front()?;
        match list.held.insert(number, State::Running) {
            Some(State::Waiting(asked)) => Some((number, asked)),
            _ => None,
        }
    }

    /// Whether somebody waits for a request that runs.
    pub(super) fn is_wanted(&self, number: usize) -> bool {
        matches!(self.list().held.get(&number), Some(State::Running))
    }

    /// Keeps what came of a request that runs, unless nobody waits for it.
    pub(super) fn finish(&self, number: usize, result: Result<Generated>) {
        if let Some(state @ State::Running) = self.list().held.get_mut(&number) {
            *state = State::Finished(result);
        }
        self.changed.notify_all();
    }

    /// Ends all requests that are not finished, and gives their numbers.
    pub(super) fn fail_all(&self, problem: &str) -> Vec<usize> {
        let failed = self.list().fail_all(problem);
        self.changed.notify_all();
        failed
    }

    fn expect_computable(&self, number: usize, prompt: Vec<u32>, options: GenerateOptions) -> Result<Asked> {
        self.model.expect_generation()?;
        let (len, context) = (prompt.len(), self.context);
        let what = if self.held_max == 1 { "the prompt".to_owned() } else { format!("prompt {number}") };
        if len == 0 {
            return Err(Error::Request(format!("{what} has no tokens; pass text or at least one id")));
        }
        if len > context {
            let problem = format!("{what} has {}, more than the context of {context}", counted(len, "token"));
            let longer = longer(context < self.model.model().spec().context_max());
            return Err(Error::Request(format!("{problem}; {longer}shorten the prompt")));
        }
        prompt.iter().try_for_each(|token| self.model.expect_token(*token))?;
        let (source, prompt) = match self.model.model().spec().decoder_start() {
            None => (None, prompt),
            Some(start) => (Some(prompt), vec![start]),
        };
        let shift = |shift: ContextShift| shift.kept(&self.model, context, number, &prompt);
        let kept = options.context_shift.map(shift).transpose()?;
        let sampler = Sampler::new(options.sampling, &prompt)?;
        Ok(Asked { prompt, source, options, sampler, kept })
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    fn fail_all(&mut self, problem: &str) -> Vec<usize> {
        self.waiting.clear();
        let unfinished = self.held.iter_mut().filter(|(_, state)| !matches!(state, State::Finished(_)));
        let failed = unfinished.map(|(number, state)| {
            *state = State::Finished(Err(Error::Request(problem.to_owned())));
            *number
        });
        failed.collect()
    }

    fn missing(&self, id: RequestId) -> Error {
        let why = if id.0 < self.next { "was fetched or cancelled already" } else { "was never submitted" };
        Error::Request(format!("request {} {why}", id.0))
    }
}
