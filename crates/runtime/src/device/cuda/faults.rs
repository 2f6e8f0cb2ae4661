//! What kernels tell of indices that lie outside of their tensors: words of the host's memory, three for each operator, which cost nothing
//! as long as there is nothing to tell.

use super::driver::{Card, Words};
use std::sync::Arc;
use trueup_graph::Op;

/// Words of `Fault` in `kernels/cuda/device.cuh`: whether it happened, the index, how many there are.
const WORDS: usize = 3;

/// Where kernels tell.
#[derive(Debug)]
pub struct Faults {
    words: Words,
    operators: Vec<&'static str>,
}

impl Faults {
    /// Nothing told yet.
    pub fn new(card: &Arc<Card>) -> Result<Faults, String> {
        let operators = Op::names();
        Ok(Faults { words: Words::new(card, operators.len() * WORDS)?, operators })
    }

    /// Where kernels of an operator tell.
    pub fn address(&self, operator: &str) -> u64 {
        let place = self.operators.iter().position(|name| *name == operator);
        self.words.address(place.unwrap_or_else(|| unreachable!("{operator} is in the list")) * WORDS)
    }

    /// Fails where a kernel told of an index, and forgets that it did. What was launched is told when the card was waited for.
    pub fn look(&self) -> Result<(), String> {
        let happened = |place: &usize| self.words.read(place * WORDS) != 0;
        let Some(place) = (0..self.operators.len()).find(happened) else { return Ok(()) };
        let [index, len] = [1, 2].map(|word| self.words.read(place * WORDS + word));
        (0..self.operators.len()).for_each(|place| self.words.set(place * WORDS, 0));
        Err(format!("{}: index {index} must lie between 0 and {len}, exclusive", self.operators[place]))
    }
}
