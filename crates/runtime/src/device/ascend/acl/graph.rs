//! Work that is kept instead of done, and then asked for as one: with the addresses that it was kept with.
//!
//! It is kept from a stream of its own, on which nothing ever runs, so what other threads ask of the card meanwhile is
//! done as ever.

use super::card::{Card, functions};
use super::library::Library;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

functions! {
    begin_capture = c"aclmdlRICaptureBegin" (stream: *mut c_void, mode: c_int);
    end_capture = c"aclmdlRICaptureEnd" (stream: *mut c_void, model: *mut *mut c_void);
    execute_model = c"aclmdlRIExecuteAsync" (model: *mut c_void, stream: *mut c_void);
    destroy_model = c"aclmdlRIDestroy" (model: *mut c_void);
}

/// `ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL`: calls that cannot be kept are refused to this thread only.
const THREAD_LOCAL: c_int = 1;

/// A stream whose work is kept.
#[derive(Debug)]
pub struct Capture {
    card: Arc<Card>,
    pub(super) stream: *mut c_void,
}

/// Work that was kept.
#[derive(Debug)]
pub struct Graph {
    /// What it was kept from goes behind it: no page says that it may go before.
    capture: Capture,
    model: *mut c_void,
}

// SAFETY: handles may be used from any thread that has made the card's context its own, which each call does first.
unsafe impl Send for Graph {}

// SAFETY: as above; that it ends on the thread it began on is seen to by the one function that begins it (queue.rs).
unsafe impl Send for Capture {}

impl Capture {
    /// Begins one. It ends on the same thread.
    pub fn begin(card: &Arc<Card>) -> Result<Capture, String> {
        let mut stream = null_mut();
        // SAFETY: writes a handle, which is destroyed once.
        unsafe { card.enter()?.create_stream(&raw mut stream) }?;
        let capture = Capture { card: Arc::clone(card), stream };
        // SAFETY: a stream that nothing was asked of.
        unsafe { card.enter()?.begin_capture(stream, THREAD_LOCAL) }?;
        Ok(capture)
    }

    /// Ends it.
    pub fn end(self) -> Result<Graph, String> {
        let mut model = null_mut();
        // SAFETY: the stream that the capture began on; writes a handle, which is destroyed once.
        unsafe { self.card.enter()?.end_capture(self.stream, &raw mut model) }?;
        Ok(Graph { capture: self, model })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; nothing runs on it, and its capture has ended or never began.
        let _told = self.card.enter().and_then(|library| unsafe { library.destroy_stream(self.stream) });
    }
}

impl Graph {
    /// Asks for the work, behind all that the card was asked for before.
    pub fn run(&self) -> Result<(), String> {
        let card = &self.capture.card;
        // SAFETY: work of this card, and its stream; who keeps the graph keeps the memory that it was made with.
        unsafe { card.enter()?.execute_model(self.model, card.stream) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let card = &self.capture.card;
        let _waited = card.wait();
        // SAFETY: made once, destroyed once, and it runs no more.
        let _told = card.enter().and_then(|library| unsafe { library.destroy_model(self.model) });
    }
}
