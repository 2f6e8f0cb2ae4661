//! A place in what a card was asked for, which can be waited for.

use super::Card;
use cudarc::driver::{result, sys};
use std::sync::Arc;

/// The end of what had been asked for when it was marked.
#[derive(Debug)]
pub struct Event {
    card: Arc<Card>,
    event: sys::CUevent,
}

// SAFETY: events may be used from any thread that has made their context its own, which each call does first.
unsafe impl Send for Event {}
// SAFETY: as above; the driver's functions may be called by several threads at once.
unsafe impl Sync for Event {}

impl Event {
    /// An event that marks nothing yet.
    pub fn new(card: &Arc<Card>) -> Result<Event, String> {
        let event = card.call(|| result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING))?;
        Ok(Event { card: Arc::clone(card), event })
    }

    /// Marks all that its card was asked for so far.
    pub fn mark(&self) -> Result<(), String> {
        // SAFETY: an event and a stream of one context.
        self.card.call(|| unsafe { result::event::record(self.event, self.card.stream) })
    }

    pub(super) fn handle(&self) -> sys::CUevent {
        self.event
    }

    /// Waits until what was marked is done; at once where nothing was.
    pub fn wait(&self) -> Result<(), String> {
        // SAFETY: an event that is there.
        self.card.call(|| unsafe { result::event::synchronize(self.event) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; the driver keeps what is not done yet.
        let _told = self.card.call(|| unsafe { result::event::destroy(self.event) });
    }
}
