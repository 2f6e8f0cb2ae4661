//! What was asked of a card before.
//!
//! Two kinds, by what the vendor's published runtime does with them:
//!
//! ```text
//! aclrtCreateEventExWithFlag    marked again and again; a stream's wait for it is left out where both streams have one number, also on two cards
//! aclrtCreateEventWithFlag      stays reached when it was reached once, so it is marked once; a stream's wait for it is always asked for
//! ```

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
    make_stream_wait = c"aclrtStreamWaitEvent" (stream: *mut c_void, event: *mut c_void);
}

/// `ACL_EVENT_SYNC`: streams may wait for it.
const SYNC: u32 = 1;

/// A mark in a card's stream.
#[derive(Debug)]
pub struct Event {
    card: Arc<Card>,
    event: *mut c_void,
    marked: bool,
    /// Whether it may be marked again: not every version and chip has such events.
    is_repeated: bool,
}

// SAFETY: events may be used from any thread that has made their context its own, which each call does first.
unsafe impl Send for Event {}

impl Event {
    /// One that the host waits for, mark after mark.
    pub fn for_host(card: &Arc<Card>) -> Result<Event, String> {
        let mut event = null_mut();
        // SAFETY: writes a handle, which is destroyed once.
        match unsafe { card.enter()?.create_repeated_event(&raw mut event, SYNC) } {
            Ok(()) => Ok(Event { card: Arc::clone(card), event, marked: false, is_repeated: true }),
            Err(_) => Event::for_card(card),
        }
    }

    /// One that another card waits for, marked once.
    pub fn for_card(card: &Arc<Card>) -> Result<Event, String> {
        let mut event = null_mut();
        // SAFETY: writes a handle, which is destroyed once.
        unsafe { card.enter()?.create_event(&raw mut event, SYNC) }?;
        Ok(Event { card: Arc::clone(card), event, marked: false, is_repeated: false })
    }

    /// Stands behind all that the card was asked for until now.
    pub fn mark(&mut self) -> Result<(), String> {
        if self.marked && !self.is_repeated {
            // The old one goes when its mark was passed.
            *self = Event::for_card(&self.card)?;
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

    /// Makes another card's work from now on wait for the mark.
    pub fn before(&self, card: &Card) -> Result<(), String> {
        // SAFETY: an event that was recorded, and a stream of a card.
        unsafe { card.enter()?.make_stream_wait(card.stream, self.event) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _waited = self.wait();
        // SAFETY: created once, destroyed once, and done.
        let _told = self.card.enter().and_then(|library| unsafe { library.destroy_event(self.event) });
    }
}
