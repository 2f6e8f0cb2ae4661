//! Copies from card to card, ordered by events.

use super::card::{Card, functions};
use super::event::Event;
use super::library::Library;
use super::memory::Allocation;
use super::staging::copies;
use std::ffi::c_int;
use std::sync::Arc;

functions! {
    can_reach = c"aclrtDeviceCanAccessPeer" (can: *mut i32, card: i32, peer: i32);
    open_to = c"aclrtDeviceEnablePeerAccess" (peer: i32, flags: u32);
}

/// `ACL_MEMCPY_DEVICE_TO_DEVICE`.
const DEVICE_TO_DEVICE: c_int = 3;

impl Card {
    /// Whether this card and the other reach each other's memory, which they do from now on if they can.
    pub fn reaches(&self, other: &Card) -> Result<bool, String> {
        if self.number() == other.number() {
            return Ok(true);
        }
        for (from, to) in [(self, other), (other, self)] {
            let library = from.enter()?;
            let mut can = 0;
            // SAFETY: writes a number.
            unsafe { library.can_reach(&raw mut can, from.number(), to.number()) }?;
            if can == 0 {
                return Ok(false);
            }
            // SAFETY: both cards are in use. It was opened before where this fails, or the copy will say so.
            let _opened = unsafe { library.open_to(to.number(), 0) };
        }
        Ok(true)
    }
}

impl Allocation {
    /// Takes bytes of another card, behind all that both cards were asked for before; what the other is asked for next waits until they are taken.
    pub fn copy_from(&self, first: usize, source: &Allocation, from: usize, bytes: usize) -> Result<(), String> {
        let (target, origin) = (self.place(first, bytes)?, source.place(from, bytes)?);
        let (card, other): (&Arc<Card>, &Arc<Card>) = (self.card(), source.card());
        let is_far = !Arc::ptr_eq(card, other);
        if is_far {
            let mut written = Event::new(other)?;
            written.mark()?;
            written.before(card)?;
            // Neither event may go before the card has passed it: dropping waits.
            self.copy_here(target, origin, bytes)?;
            let mut taken = Event::new(card)?;
            taken.mark()?;
            return taken.before(other);
        }
        self.copy_here(target, origin, bytes)
    }

    fn copy_here(
        &self,
        target: *mut std::ffi::c_void,
        source: *mut std::ffi::c_void,
        bytes: usize,
    ) -> Result<(), String> {
        // SAFETY: both lie within allocations, which wait before they are freed.
        unsafe { copies::ask(self.card(), (target, bytes), source, DEVICE_TO_DEVICE) }
    }
}
