//! Copies from card to card, ordered by events that the host waits for.

use super::card::{Card, functions};
use super::event::Event;
use super::library::Library;
use super::memory::Allocation;
use super::staging::copies;
use std::ffi::c_int;
use std::sync::{Arc, PoisonError};

functions! {
    can_reach = c"aclrtDeviceCanAccessPeer" (can: *mut i32, card: i32, peer: i32);
    open_to = c"aclrtDeviceEnablePeerAccess" (peer: i32, flags: u32);
}

/// `ACL_MEMCPY_DEVICE_TO_DEVICE`.
const DEVICE_TO_DEVICE: c_int = 3;

impl Card {
    /// Whether this card and the other reach each other's memory, which they do from now on if they can. They are asked
    /// once.
    pub fn reaches(&self, other: &Card) -> Result<bool, String> {
        if self.number() == other.number() {
            return Ok(true);
        }
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reaches) = peers.get(&other.number()) {
            return Ok(*reaches);
        }
        let reaches = self.opens(other)?;
        peers.insert(other.number(), reaches);
        Ok(reaches)
    }

    fn opens(&self, other: &Card) -> Result<bool, String> {
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

/// The way from another card to this one: what orders copies, and stays for the next.
#[derive(Debug)]
pub struct Link {
    card: Arc<Card>,
    other: Arc<Card>,
    /// All that the other was asked for before.
    written: Event,
    /// The copy.
    taken: Event,
}

impl Link {
    /// To a card, from another one.
    pub fn new(card: &Arc<Card>, other: &Arc<Card>) -> Result<Link, String> {
        let (written, taken) = (Event::new(other)?, Event::new(card)?);
        Ok(Link { card: Arc::clone(card), other: Arc::clone(other), written, taken })
    }

    /// Whether it is the way between these.
    pub fn is_of(&self, card: &Arc<Card>, other: &Arc<Card>) -> bool {
        Arc::ptr_eq(&self.card, card) && Arc::ptr_eq(&self.other, other)
    }

    /// Whether anybody but this has the other card: a card that nobody has is given back.
    pub fn is_used(&self) -> bool {
        // This link has it, and so has the event in it.
        Arc::strong_count(&self.other) > 2
    }

    /// Does a copy behind all that both cards were asked for before; what the other is asked for next finds it done.
    /// The host waits for both, for no card can.
    pub fn around(&mut self, copy: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        self.written.mark()?;
        self.written.wait()?;
        copy()?;
        self.taken.mark()?;
        self.taken.wait()
    }
}

impl Allocation {
    /// Takes bytes of memory that this card reaches, behind all that this card was asked for before.
    pub fn copy_from(&self, first: usize, source: &Allocation, from: usize, bytes: usize) -> Result<(), String> {
        let (target, origin) = (self.place(first, bytes)?, source.place(from, bytes)?);
        // SAFETY: both lie within allocations, which wait before they are freed.
        unsafe { copies::ask(self.card(), (target, bytes), origin, DEVICE_TO_DEVICE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::ascend::acl::card;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static ASKED: AtomicUsize = AtomicUsize::new(0);

    /// The third card is reached by none.
    extern "C" fn can_reach(can: *mut i32, card: i32, peer: i32) -> c_int {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a place for a number.
        unsafe { *can = i32::from(card < 2 && peer < 2) };
        0
    }

    extern "C" fn open_to(_: i32, _: u32) -> c_int {
        ASKED.fetch_add(1, Ordering::Relaxed);
        0
    }

    /// A product that two cards divide copies its activations each time.
    #[test]
    fn cards_are_asked_once_whether_they_reach_each_other() {
        let library = card::tests::library(&[
            (c"aclrtDeviceCanAccessPeer", can_reach as extern "C" fn(*mut i32, i32, i32) -> c_int as usize),
            (c"aclrtDeviceEnablePeerAccess", open_to as extern "C" fn(i32, u32) -> c_int as usize),
        ]);
        let cards = [0, 1, 2].map(|number| Card::open(&library, number).unwrap());
        let reaches = |other: usize| (cards[0].reaches(&cards[other]), ASKED.swap(0, Ordering::Relaxed));
        assert_eq!([reaches(1), reaches(1)], [(Ok(true), 4), (Ok(true), 0)]);
        assert_eq!([reaches(2), reaches(2), reaches(0)], [(Ok(false), 1), (Ok(false), 0), (Ok(true), 0)]);
    }
}
