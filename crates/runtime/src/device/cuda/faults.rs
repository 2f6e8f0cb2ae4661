//! What kernels tell of indices that lie outside of their tensors: words of the host's memory, three for each operator,
//! which cost nothing as long as there is nothing to tell.
//!
//! Several threads may use a card, each with a session of its own. Whose kernels told of an index nobody knows: every
//! thread that has had steps executed since it last looked is told, once.

use super::driver::{Card, Words};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use trueup_graph::Op;

/// Words of `Fault` in `kernels/cuda/device.cuh`: whether it happened, the index, how many there are.
const WORDS: usize = 3;

/// Where kernels tell.
#[derive(Debug)]
pub struct Faults {
    words: Words,
    operators: Vec<&'static str>,
    threads: Mutex<Threads>,
}

/// Who uses the card.
#[derive(Default, Debug)]
struct Threads {
    /// Who has had steps executed, and has not looked since.
    waiting: HashSet<ThreadId>,
    /// Who has to be told what another thread found.
    untold: HashMap<ThreadId, String>,
}

impl Threads {
    /// What a thread that looks is told, where `found` is told by kernels now.
    fn look(&mut self, thread: ThreadId, found: Option<String>) -> Result<(), String> {
        self.waiting.remove(&thread);
        if let Some(found) = &found {
            self.untold.extend(self.waiting.drain().map(|other| (other, found.clone())));
        }
        self.untold.remove(&thread).or(found).map_or(Ok(()), Err)
    }
}

impl Faults {
    /// Nothing reported yet.
    pub fn new(card: &Arc<Card>) -> Result<Faults, String> {
        let operators = Op::names();
        Ok(Faults { words: Words::new(card, operators.len() * WORDS)?, operators, threads: Mutex::default() })
    }

    /// Where kernels of an operator tell.
    pub fn address(&self, operator: &str) -> u64 {
        let place = self.operators.iter().position(|name| *name == operator);
        self.words.address(place.unwrap_or_else(|| unreachable!("{operator} is in the list")) * WORDS)
    }

    /// This thread has steps executed.
    pub fn expect(&self) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).waiting.insert(thread::current().id());
    }

    /// Fails where a kernel told of an index, and forgets that it did. What was launched is told when the card was
    /// waited for.
    pub fn look(&self) -> Result<(), String> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.take();
        threads.look(thread::current().id(), found)
    }

    /// What kernels told since this was asked for last.
    fn take(&self) -> Option<String> {
        let happened = |place: &usize| self.words.read(place * WORDS) != 0;
        let place = (0..self.operators.len()).find(happened)?;
        let [index, len] = [1, 2].map(|word| self.words.read(place * WORDS + word));
        (0..self.operators.len()).for_each(|place| self.words.set(place * WORDS, 0));
        Some(format!("{}: index {index} must be at least 0 and below {len}", self.operators[place]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_that_waits_is_told_once() {
        let (own, other) = (thread::current().id(), thread::spawn(|| ()).thread().id());
        let mut threads = Threads::default();
        let found = || Some("an index".to_owned());
        threads.waiting.extend([own, other]);
        assert_eq!(threads.look(own, found()), Err("an index".to_owned()));
        assert_eq!(threads.look(own, None), Ok(()));
        assert_eq!(threads.look(other, None), Err("an index".to_owned()));
        assert_eq!(threads.look(other, None), Ok(()));
        // Who has looked since its last steps has nothing to do with it.
        threads.waiting.insert(own);
        assert_eq!(threads.look(own, found()), Err("an index".to_owned()));
        assert_eq!(threads.look(other, None), Ok(()));
    }
}
