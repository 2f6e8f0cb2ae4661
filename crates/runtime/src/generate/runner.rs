//! Computes requests: each step is one batch of the requests that run at that moment.
//!
//! ```text
//! step   request 0            request 1                 request 2
//!  0     the whole prompt
//!  1     one token            first part of the prompt
//!  2     one token            rest of the prompt
//!  3     (finished)           one token                 the whole prompt
//! ```
//!
//! Running texts get their token in every batch; prompts share the rest of it.

use super::generation::Generation;
use super::requests::Requests;
use super::{Finish, Generated, Watch};
use crate::error::{Error, Result};
use crate::session::{Entry, Session};
use std::collections::VecDeque;

/// Computes the requests of a list on a session. What it has begun when it is dropped ends with an error.
pub struct Runner<'a> {
    requests: &'a Requests,
    session: &'a mut Session,
    active: Vec<Generation>,
    /// Sequences that no request has.
    free: VecDeque<usize>,
}

/// The part of a generation in a batch.
struct Share {
    /// Which of those that are active.
    active: usize,
    /// Tokens of it.
    count: usize,
    /// Tokens that its sequence holds before.
    before: usize,
}

impl<'a> Runner<'a> {
    /// A runner for the requests to this session.
    pub fn new(requests: &'a Requests, session: &'a mut Session) -> Runner<'a> {
        let free = (0..session.sequences()).collect();
        Runner { requests, session, active: Vec::new(), free }
    }

    /// Computes one batch: a token of each request that is behind its prompt, and as much of prompts as
    /// [`SessionOptions::prompt_chunk`] leaves room for. Requests that wait join before as long as sequences are free;
    /// those that end leave behind it. Whether there is more to do.
    ///
    /// What a single request fails by is its result alone, and so is the lack of memory for its tokens. Fails where the
    /// device does, or the file has changed; then all requests end so, and those that come later are computed as ever.
    ///
    /// [`SessionOptions::prompt_chunk`]: crate::SessionOptions::prompt_chunk
    pub fn step(&mut self, watch: &mut dyn Watch) -> Result<bool> {
        self.join(watch);
        self.leave(watch);
        self.compute_batch().inspect_err(|error| self.fail(error, watch))?;
        self.choose(watch);
        self.finish(watch).inspect_err(|error| self.fail(error, watch))?;
        Ok(!self.active.is_empty() || self.requests.has_waiting())
    }

    /// Gives free sequences to those that wait.
    fn join(&mut self, watch: &mut dyn Watch) {
        while let Some(sequence) = self.free.front().copied() {
            let Some((number, asked)) = self.requests.take_waiting() else { break };
            match Generation::start(self.session, number, sequence, asked) {
                Ok(generation) => {
                    self.free.pop_front();
                    self.active.push(generation);
                }
                Err(error) => end(self.requests, number, Err(error), watch),
            }
        }
    }

    /// Takes the sequences of those that nobody waits for.
    fn leave(&mut self, watch: &mut dyn Watch) {
        for generation in &mut self.active {
            if watch.is_cancelled(generation.prompt) {
                generation.finish = Some(Finish::Stopped);
            }
        }
        let is_gone = |generation: &Generation| !self.requests.is_wanted(generation.prompt);
        for generation in self.active.extract_if(.., |generation| is_gone(generation)) {
            watch.ended(generation.prompt);
            self.free.push_back(generation.sequence);
        }
    }

    /// Computes a batch, and its shares one by one where there is no memory for all of them: what fails then is the
    /// result of one request.
    fn compute_batch(&mut self) -> Result<()> {
        let shares = self.shares();
        let Err(error) = self.compute(&shares) else { return Ok(()) };
        if !matches!(error, Error::NoRoom(_)) {
            return Err(error);
        }
        for share in &shares {
            // Rows may be lost where a cache could not grow.
            let is_lost = self.session.len(self.active[share.active].sequence) != share.before;
            let outcome = match (is_lost, shares.len()) {
                (false, 2..) => self.compute(std::slice::from_ref(share)),
                _ => Err(Error::NoRoom(Box::new(Error::Request(error.to_string())))),
            };
            match outcome {
                Err(error @ Error::NoRoom(_)) => {
                    let generation = &mut self.active[share.active];
                    generation.finish = Some(Finish::Stopped);
                    self.requests.finish(generation.prompt, Err(error));
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Who has a part in the next batch.
    fn shares(&self) -> Vec<Share> {
        let running = || self.active.iter().enumerate().filter(|(_, generation)| generation.finish.is_none());
        let decoding = running().filter(|(_, generation)| generation.pending() == 1).count();
        // Texts go on even where they fill the batch, and prompts too.
        let mut left = self.session.prompt_chunk().saturating_sub(decoding).max(1);
        let share = |(active, generation): (usize, &Generation)| {
            let count = if generation.pending() == 1 { 1 } else { generation.pending().min(left) };
            left -= if generation.pending() == 1 { 0 } else { count };
            Share { active, count, before: self.session.len(generation.sequence) }
        };
        running().map(share).collect()
    }

    /// Computes the tokens of some.
    fn compute(&mut self, shares: &[Share]) -> Result<()> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut rows = Vec::with_capacity(shares.len());
        for Share { active, count, .. } in shares {
            let begin = entries.len();
            entries.extend(self.active[*active].entries(*count));
            rows.push(entries[begin..].iter().filter(|entry| entry.wants_logits).count());
        }
        if entries.is_empty() {
            return Ok(());
        }
        let logits = self.session.compute(&entries, None)?;
        let mut row = 0;
        for (Share { active, count, .. }, rows) in shares.iter().zip(rows) {
            self.active[*active].take(*count, &logits, row..row + rows);
            row += rows;
        }
        Ok(())
    }

    /// Chooses a token for each whose tokens are computed.
    fn choose(&mut self, watch: &mut dyn Watch) {
        for generation in self.active.iter_mut().filter(|generation| generation.finish.is_none()) {
            if generation.pending() > 0 {
                continue;
            }
            if let Err(error) = generation.choose(self.session, watch) {
                self.requests.finish(generation.prompt, Err(error));
                generation.finish = Some(Finish::Stopped);
            }
        }
    }

    /// Keeps the results of those that have ended.
    fn finish(&mut self, watch: &mut dyn Watch) -> Result<()> {
        let has_ended = |generation: &mut Generation| generation.finish.is_some();
        let is_mapped = self.session.weights().held().mapped_bytes > 0;
        if is_mapped && self.active.iter_mut().any(has_ended) {
            // What is read while it computes may have been written to meanwhile.
            self.session.model().unwritten()?;
        }
        for generation in self.active.extract_if(.., has_ended) {
            self.free.push_back(generation.sequence);
            end(self.requests, generation.prompt, Ok(generation.result()), watch);
        }
        Ok(())
    }

    /// Ends all requests.
    fn fail(&mut self, error: &Error, watch: &mut dyn Watch) {
        self.free.extend(self.active.drain(..).map(|generation| generation.sequence));
        self.requests.fail_all(&error.to_string()).into_iter().for_each(|number| watch.ended(number));
    }
}

/// Keeps what came of a request, unless that is known already, when everyone was told that it has ended.
fn end(requests: &Requests, number: usize, result: Result<Generated>, watch: &mut dyn Watch) {
    watch.ended(number);
    requests.finish(number, result);
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        for generation in &self.active {
            let problem = format!("request {} was not finished, because its generator was stopped", generation.prompt);
            self.requests.finish(generation.prompt, Err(Error::Request(problem)));
        }
    }
}
