//! Limits of one rendering.
//!
//! ```text
//! steps  nodes, expressions, and the items and bytes that they look at     limits time
//! bytes  text and containers that are created, whether they live or not    limits memory
//! ```

use super::problem::{Checked, Problem};
use std::cell::Cell;

/// Steps of one rendering, plus a number for each byte of the conversation.
const STEPS: u64 = 1 << 22;
const STEPS_PER_BYTE: u64 = 256;
/// Bytes that one rendering may create, plus a number for each byte of the conversation.
const BYTES: u64 = 1 << 23;
const BYTES_PER_BYTE: u64 = 256;
/// Bytes of text that cost one step.
const BYTES_PER_STEP: usize = 16;
/// Bytes that a value in a container costs.
const VALUE_BYTES: usize = 32;

/// What is left for one rendering.
#[derive(Debug)]
pub(crate) struct Budget {
    steps: Cell<u64>,
    bytes: Cell<u64>,
}

impl Budget {
    /// The budget for a conversation of this many bytes.
    pub(crate) fn new(conversation_bytes: usize) -> Budget {
        let conversation = u64::try_from(conversation_bytes).unwrap_or(u64::MAX);
        let of = |base: u64, per_byte: u64| Cell::new(base.saturating_add(conversation.saturating_mul(per_byte)));
        Budget { steps: of(STEPS, STEPS_PER_BYTE), bytes: of(BYTES, BYTES_PER_BYTE) }
    }

    /// Counts steps.
    pub(crate) fn step(&self, count: usize) -> Checked<()> {
        take(&self.steps, count, "the template takes too many steps")
    }

    /// Counts looking through this many bytes of text.
    pub(crate) fn read(&self, bytes: usize) -> Checked<()> {
        self.step(bytes.div_euclid(BYTES_PER_STEP).saturating_add(1))
    }

    /// Counts text that is created.
    pub(crate) fn text(&self, bytes: usize) -> Checked<()> {
        self.read(bytes)?;
        take(&self.bytes, bytes, "the template creates too much text")
    }

    /// Counts a container with this many values.
    pub(crate) fn values(&self, count: usize) -> Checked<()> {
        self.step(count)?;
        let bytes = count.saturating_add(1).saturating_mul(VALUE_BYTES);
        take(&self.bytes, bytes, "the template creates too many values")
    }
}

fn take(left: &Cell<u64>, count: usize, problem: &str) -> Checked<()> {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    match left.get().checked_sub(count) {
        Some(rest) => {
            left.set(rest);
            Ok(())
        }
        None => Err(Problem::new(problem)),
    }
}
