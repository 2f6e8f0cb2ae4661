//! What computes requests: one batch at a step, of those that run at that moment.
//!
//! ```text
//! step   request 0            request 1                 request 2
//!  0     prompt, all of it
//!  1     one token            prompt, its first piece
//!  2     one token            prompt, the rest
//!  3     (finished)           one token                 prompt, all of it
//! ```

use super::generation::Generation;
use super::requests::Requests;
use super::{Finish, Watch};
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

impl<'a> Runner<'a> {
    /// A runner for the requests to this session.
    pub fn new(requests: &'a Requests, session: &'a mut Session) -> Runner<'a> {
        let free = (0..session.sequences()).collect();
        Runner { requests, session, active: Vec::new(), free }
    }

    /// Computes one batch: a token of each request that is behind its prompt, and as much of prompts as [`SessionOptions::prompt_chunk`]
    /// leaves room for. Requests that wait join before as long as sequences are free; those that end leave behind it. Whether there is more to do.
    ///
    /// What a single request fails by is its result alone. Fails where the device does, or the file has changed; then all requests end so, and
    /// those that come later are computed as ever.
    ///
    /// [`SessionOptions::prompt_chunk`]: crate::SessionOptions::prompt_chunk
    pub fn step(&mut self, watch: &mut dyn Watch) -> Result<bool> {
        self.join();
        self.leave(watch);
        self.compute_batch().inspect_err(|error| self.fail(error, watch))?;
        self.choose(watch);
        self.finish(watch).inspect_err(|error| self.fail(error, watch))?;
        Ok(!self.active.is_empty() || self.requests.has_waiting())
    }

    /// Gives free sequences to those that wait.
    fn join(&mut self) {
        while let Some(sequence) = self.free.front().copied() {
            let Some((number, asked)) = self.requests.take_waiting() else { break };
            match Generation::start(self.session, number, sequence, asked) {
                Ok(generation) => {
                    self.free.pop_front();
                    self.active.push(generation);
                }
                Err(error) => self.requests.finish(number, Err(error)),
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

    fn compute_batch(&mut self) -> Result<()> {
        let running = || self.active.iter().filter(|generation| generation.finish.is_none());
        let decoding = running().filter(|generation| generation.pending() == 1).count();
        // Texts go on even where they fill the batch, and prompts too.
        let mut left = self.session.prompt_chunk().saturating_sub(decoding).max(1);
        let mut entries: Vec<Entry> = Vec::new();
        let mut shares: Vec<(&mut Generation, usize, usize)> = Vec::new();
        for generation in self.active.iter_mut().filter(|generation| generation.finish.is_none()) {
            let begin = entries.len();
            if generation.pending() == 1 {
                entries.extend(generation.entries(1));
            } else {
                entries.extend(generation.entries(left));
                left -= entries.len() - begin;
            }
            let rows = entries[begin..].iter().filter(|entry| entry.wants_logits).count();
            shares.push((generation, entries.len() - begin, rows));
        }
        if entries.is_empty() {
            return Ok(());
        }
        let logits = self.session.compute(&entries, None)?;
        let mut row = 0;
        for (generation, count, rows) in shares {
            generation.take(count, &logits, row..row + rows);
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
            let number = generation.prompt;
            watch.ended(number);
            self.requests.finish(number, Ok(generation.result()));
        }
        Ok(())
    }

    /// Ends all requests.
    fn fail(&mut self, error: &Error, watch: &mut dyn Watch) {
        self.free.extend(self.active.drain(..).map(|generation| generation.sequence));
        self.requests.fail_all(&error.to_string()).into_iter().for_each(|number| watch.ended(number));
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        for generation in &self.active {
            let problem = format!("request {} was not finished, for what computed it has ended", generation.prompt);
            self.requests.finish(generation.prompt, Err(Error::Request(problem)));
        }
    }
}
