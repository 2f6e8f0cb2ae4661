//! Copies from and to pinned memory. The vendor's plain copies wait for no stream, so none is used: every copy is asked
//! of the stream that computes.

use super::card::{Card, functions};
use super::event::Event;
use super::library::Library;
use super::memory::{Allocation, Pinned};
use crate::device::staging::{self, Half};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

functions! {
    copy = c"aclrtMemcpyAsync" (target: *mut c_void, most: usize, source: *const c_void, bytes: usize, kind: c_int, stream: *mut c_void);
}

/// `ACL_MEMCPY_HOST_TO_DEVICE`.
const HOST_TO_DEVICE: c_int = 1;
/// `ACL_MEMCPY_DEVICE_TO_HOST`.
const DEVICE_TO_HOST: c_int = 2;

pub(super) mod copies {
    use super::Card;
    use std::ffi::{c_int, c_void};

    /// Asks a card for a copy.
    ///
    /// # Safety
    ///
    /// Both places must hold so many bytes until the card's stream has passed.
    pub unsafe fn ask(
        card: &Card,
        (target, bytes): (*mut c_void, usize),
        source: *const c_void,
        kind: c_int,
    ) -> Result<(), String> {
        // SAFETY: as the caller says.
        unsafe { card.enter()?.copy(target, bytes, source, bytes, kind, card.stream) }
    }
}

/// The way of bytes to a card and back.
pub type Transfers = staging::Transfers<Staged>;

/// Pinned memory.
#[derive(Debug)]
pub struct Staged {
    /// The last copy from or to it: waited for before the memory goes.
    done: Event,
    memory: Pinned,
}

impl Half for Staged {
    type Card = Card;
    type Memory = Allocation;

    fn new(card: &Arc<Card>, bytes: usize) -> Result<Staged, String> {
        Ok(Staged { done: Event::new(card)?, memory: Pinned::new(card, bytes)? })
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
        // SAFETY: the target lies within an allocation, which waits before it is freed; what is staged is left alone
        // until the event.
        unsafe { copies::ask(card, (target, len), staged.as_ptr().cast(), HOST_TO_DEVICE) }?;
        self.done.mark()
    }

    fn fetch(&mut self, card: &Card, len: usize, source: &Allocation, first: usize) -> Result<(), String> {
        let (staged, source) = (self.memory.part(0, len), source.place(first, len)?);
        // SAFETY: the source lies within an allocation, which waits before it is freed; what is staged is read behind
        // the event.
        unsafe { copies::ask(card, (staged.as_mut_ptr().cast(), len), source, DEVICE_TO_HOST) }?;
        self.done.mark()
    }
}
