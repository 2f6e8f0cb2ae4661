//! What was asked of a card before, for the host to wait for: a stream of one card does not wait for another card's
//! events. The vendor's published runtime makes a placeholder of such a wait on most chips, and leaves it out where
//! both streams have one number.

use super::card::{Card, functions};
use super::library::Library;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

functions! {
    create_event = c"aclrtCreateEventWithFlag" (event: *mut *mut c_void, flags: u32);
    create_repeated_event = c"aclrtCreateEventExWithFlag" (event: *mut *mut c_void, flags: u32);
    destroy_event = c"aclrtDestroyEvent" (event: *mut c_void);
    record_event = c"aclrtRecordEvent" (event: *mut c_void, stream: *mut c_void);
    wait_for_event = c"aclrtSynchronizeEvent" (event: *mut c_void);
}

/// `ACL_EVENT_SYNC`.
const SYNC: u32 = 1;

/// A mark in a card's stream.
#[derive(Debug)]
pub struct Event {
    card: Arc<Card>,
    event: *mut c_void,
    marked: bool,
    /// Whether it may be marked again: not every version and chip has such events, and others stay reached when they
    /// were reached once.
    is_repeated: bool,
}

// SAFETY: events may be used from any thread that has made their context its own, which each call does first.
unsafe impl Send for Event {}

impl Event {
    /// One that nothing was asked for before.
    pub fn new(card: &Arc<Card>) -> Result<Event, String> {
        let (library, mut event) = (card.enter()?, null_mut());
        // SAFETY: writes a handle, which is destroyed once.
        let is_repeated = unsafe { library.create_repeated_event(&raw mut event, SYNC) }.is_ok();
        if !is_repeated {
            // SAFETY: as above; the first call has made none.
            unsafe { library.create_event(&raw mut event, SYNC) }?;
        }
        Ok(Event { card: Arc::clone(card), event, marked: false, is_repeated })
    }

    /// Stands behind all that the card was asked for until now.
    pub fn mark(&mut self) -> Result<(), String> {
        if self.marked && !self.is_repeated {
            // The old one goes when its mark was passed.
            *self = Event::new(&self.card)?;
        }
        // SAFETY: an event and a stream of one card.
        unsafe { self.card.enter()?.record_event(self.event, self.card.stream) }?;
        self.marked = true;
        Ok(())
    }

    /// Waits until all before the mark is done; not at all where there is none.
    pub fn wait(&self) -> Result<(), String> {
        if !self.marked {
            return Ok(());
        }
        // SAFETY: an event that was recorded.
        unsafe { self.card.enter()?.wait_for_event(self.event) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _waited = self.wait();
        // SAFETY: created once, destroyed once, and done.
        let _told = self.card.enter().and_then(|library| unsafe { library.destroy_event(self.event) });
    }
}
