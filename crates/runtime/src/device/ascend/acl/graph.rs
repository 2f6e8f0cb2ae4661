//! Many operators as one: what a stream was asked for while it was captured, asked for again.

use super::card::{Card, functions};
use super::library::Library;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

functions! {
    begin_capture = c"aclmdlRICaptureBegin" (stream: *mut c_void, mode: c_int);
    end_capture = c"aclmdlRICaptureEnd" (stream: *mut c_void, graph: *mut *mut c_void);
    run_graph = c"aclmdlRIExecuteAsync" (graph: *mut c_void, stream: *mut c_void);
    destroy_graph = c"aclmdlRIDestroy" (graph: *mut c_void);
}

/// `ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL`: other threads may call what they like.
const THIS_THREAD: c_int = 1;

/// What was captured. Addresses are those of then.
#[derive(Debug)]
pub struct Graph {
    card: Arc<Card>,
    graph: *mut c_void,
}

// SAFETY: handles may be used from any thread that has made the card's context its own, which each call does first.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures what the card's stream is asked for by this work, none of which runs.
    pub fn capture(card: &Arc<Card>, work: impl FnOnce() -> Result<(), String>) -> Result<Graph, String> {
        // SAFETY: the card's own stream, which this thread alone asks for work meanwhile.
        unsafe { card.enter()?.begin_capture(card.stream, THIS_THREAD) }?;
        let asked = work();
        let mut graph = null_mut();
        // SAFETY: the stream is being captured; writes a handle, which is destroyed once.
        let ended = unsafe { card.enter()?.end_capture(card.stream, &raw mut graph) };
        let graph = (!graph.is_null()).then(|| Graph { card: Arc::clone(card), graph });
        asked.and(ended)?;
        graph.ok_or_else(|| "nothing was captured".to_owned())
    }

    /// Asks for all of it, behind what the card was asked for before.
    pub fn run(&self) -> Result<(), String> {
        // SAFETY: a graph of this card; what it points to lives as long as it is kept.
        unsafe { self.card.enter()?.run_graph(self.graph, self.card.stream) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _waited = self.card.wait();
        // SAFETY: captured once, destroyed once, and done.
        let _told = self.card.enter().and_then(|library| unsafe { library.destroy_graph(self.graph) });
    }
}
