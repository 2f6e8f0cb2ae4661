//! Copies from and to pinned memory, asked of the stream that computes.

use super::memory::Pinned;
use super::{Allocation, Card, Event};
use crate::device::staging::{self, Half};
use cudarc::driver::result;
use std::sync::Arc;

/// The way of bytes to a card and back.
pub type Transfers = staging::Transfers<Staged>;

/// Pinned memory.
#[derive(Debug)]
pub struct Staged {
    memory: Pinned,
    /// The last copy from or to it.
    done: Event,
}

impl Half for Staged {
    type Card = Card;
    type Memory = Allocation;

    fn new(card: &Arc<Card>, bytes: usize) -> Result<Staged, String> {
        Ok(Staged { memory: Pinned::new(card, bytes)?, done: Event::new(card)? })
    }

    fn part(&mut self, first: usize, len: usize) -> &mut [u8] {
        self.memory.part(first, len)
    }

    fn wait(&self) -> Result<(), String> {
        self.done.wait()
    }

    fn send(
        &mut self,
        card: &Card,
        (from, len): (usize, usize),
        target: &Allocation,
        first: usize,
    ) -> Result<(), String> {
        let (staged, target) = (self.memory.part(from, len), target.place(first, len)?);
        // SAFETY: the bytes lie within an allocation, which waits before it is freed; what is staged is left alone
        // until the event.
        card.call(|| unsafe { result::memcpy_htod_async(target, staged, card.stream) })?;
        self.done.mark()
    }

    fn fetch(&mut self, card: &Card, len: usize, source: &Allocation, first: usize) -> Result<(), String> {
        let (staged, source) = (self.memory.part(0, len), source.place(first, len)?);
        // SAFETY: the bytes lie within an allocation, which waits before it is freed; what is staged is read behind the
        // event.
        card.call(|| unsafe { result::memcpy_dtoh_async(staged, source, card.stream) })?;
        self.done.mark()
    }
}
