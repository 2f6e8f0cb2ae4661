//! Launches that the card gets all at once.

use super::Card;
use super::kernel::Launch;
use cudarc::driver::{result, sys};
use std::sync::Arc;

/// Launches in their order, as one thing that the card is asked for. What they point to must live as long as it is run.
#[derive(Debug)]
pub struct Graph {
    card: Arc<Card>,
    exec: sys::CUgraphExec,
}

// SAFETY: a graph may be launched and destroyed by any thread that has made its context its own, one at a time: both
// take the graph alone.
unsafe impl Send for Graph {}

impl Graph {
    /// A graph of launches, of which none runs by this.
    pub fn new(card: &Arc<Card>, launches: &[Launch]) -> Result<Graph, String> {
        // A stream of its own: whoever waits for the card's own one meanwhile would spoil the capture.
        let stream = card.call(|| result::stream::create(result::stream::StreamKind::NonBlocking))?;
        let captured = capture(card, stream, launches);
        // SAFETY: made above, and destroyed once.
        let destroyed = card.call(|| unsafe { result::stream::destroy(stream) });
        let exec = captured?;
        let graph = Graph { card: Arc::clone(card), exec };
        destroyed?;
        // What it needs of the card is taken now, so that running it does not fail for want of room.
        // SAFETY: a graph that was made for this card, and the card's own stream.
        card.call(|| unsafe { sys::cuGraphUpload(exec, card.stream).result() })?;
        Ok(graph)
    }

    /// Runs all launches after all work submitted before.
    pub fn run(&mut self) -> Result<(), String> {
        // SAFETY: a graph that was made for this card, on the card's own stream; its kernels' arguments are those of
        // the launches.
        self.card.call(|| unsafe { result::graph::launch(self.exec, self.card.stream) })
    }
}

fn capture(card: &Card, stream: sys::CUstream, launches: &[Launch]) -> Result<sys::CUgraphExec, String> {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: a stream of this card, which nobody else has.
    card.call(|| unsafe { result::stream::begin_capture(stream, mode) })?;
    let launched = launches.iter().try_for_each(|launch| card.run_on(stream, launch));
    // SAFETY: the stream whose capture began above; where a launch failed there may be no graph, which is an error too.
    let captured = card.call(|| unsafe { result::stream::end_capture(stream) }).map(|graph| Captured { card, graph });
    launched?;
    let captured = captured?;
    // SAFETY: the graph that was captured; what is made of it needs it no more.
    card.call(|| unsafe { result::graph::instantiate(captured.graph, sys::CUgraphInstantiate_flags(0)) })
}

/// What was captured, until something that runs is made of it.
struct Captured<'a> {
    card: &'a Card,
    graph: sys::CUgraph,
}

impl Drop for Captured<'_> {
    fn drop(&mut self) {
        // SAFETY: captured once, destroyed once; nothing else knows it.
        let _told = self.card.call(|| unsafe { result::graph::destroy(self.graph) });
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // It may be at work still. What fails has failed before, and was told then.
        let _told = self.card.wait();
        // SAFETY: made once, destroyed once.
        let _told = self.card.call(|| unsafe { result::graph::exec_destroy(self.exec) });
    }
}
