//! Operators one by one: execution stops behind each node, and the time since the last one is the node's.
//!
//! A device may do better where it is not stopped, so that the sum of the times may be more than the time of the phase.

use super::demand::weights_of;
use super::{PhaseReport, prompt_entries};
use crate::error::Result;
use crate::observer::{Observer, Seen};
use crate::session::{Entry, Session};
use crate::work::{Caches, Work};
use serde::Serialize;
use std::cell::Cell;
use std::collections::HashMap;
use std::time::Instant;
use trueup_graph::{Graph, Node, TensorType};

/// Decoded tokens that are looked at.
const DECODED_MAX: usize = 16;

/// The operators of one phase.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PhaseOperators {
    /// `prompt` or `decode`.
    pub phase: &'static str,
    /// Tokens that were computed.
    pub tokens: usize,
    /// The sum of all operators' times.
    pub seconds: f64,
    /// What the same tokens took without a stop, by the median.
    pub whole_seconds: f64,
    /// One entry for each operator on each type and shape, the longest first.
    pub operators: Vec<OperatorTime>,
}

/// One operator on one type and shape of weights; where it has none, of results.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OperatorTime {
    /// The operator's name.
    pub op: &'static str,
    /// The types of its weights; empty where it has none.
    pub weights: String,
    /// The sizes of its first weight, or of its result where it has none, innermost first.
    pub shape: String,
    /// How often it was computed.
    pub calls: usize,
    /// The time of all calls.
    pub seconds: f64,
    /// The share of the sum of all operators.
    pub share: f64,
    /// Bytes that have to be moved, in 10^9 a second; null where there are none.
    pub gb_per_s: Option<f64>,
    /// Multiplications and additions of products, in 10^9 a second; null where there are none.
    pub gop_per_s: Option<f64>,
}

/// Both phases, each beside its time without stops.
pub(super) fn measure(
    session: &mut Session,
    prompt: &[u32],
    following: &[u32],
    [prompt_report, decode_report]: [&PhaseReport; 2],
) -> Result<Vec<PhaseOperators>> {
    session.truncate(0, 0);
    let mut clock = Clock::default();
    session.compute(&prompt_entries(0, prompt), Some(&mut clock))?;
    let prompt = clock.phase("prompt", prompt.len(), prompt_report);
    let mut clock = Clock::default();
    let following = &following[..following.len().min(DECODED_MAX)];
    for token in following {
        session.compute(&[Entry { token: *token, sequence: 0, wants_logits: true }], Some(&mut clock))?;
    }
    Ok(vec![prompt, clock.phase("decode", following.len(), decode_report)])
}

/// What nodes have in common whose times are added up: operator, weights, shape.
type Key = (&'static str, String, String);

/// The sum of several nodes.
#[derive(Clone, Copy, Default)]
struct Sum {
    calls: usize,
    seconds: f64,
    bytes: u64,
    operations: u64,
}

/// Takes the time of each node.
#[derive(Default)]
struct Clock {
    started: Cell<Option<Instant>>,
    sums: HashMap<Key, Sum>,
}

impl Observer for Clock {
    fn wants(&self, node: &Node) -> bool {
        self.started.set(Some(Instant::now()));
        !node.op.is_view()
    }

    fn saw(&mut self, seen: &Seen<'_>) -> Result<()> {
        let seconds = self.started.take().map_or(0.0, |start| start.elapsed().as_secs_f64());
        let (node, graph) = (seen.node(), seen.graph);
        let types: Vec<TensorType> = node.inputs.iter().map(|input| graph.value(*input).ty).collect();
        let output = &graph.value(node.output).ty;
        let work = Work::of_contents(&node.op, caches_of(node), &types, output, |place| seen.input(place))?;
        let sum = self.sums.entry(key(graph, node)).or_default();
        sum.calls += 1;
        sum.seconds += seconds;
        sum.bytes += work.bytes;
        sum.operations += work.operations;
        Ok(())
    }

    fn poisons(&self) -> bool {
        false
    }
}

impl Clock {
    fn phase(self, phase: &'static str, tokens: usize, report: &PhaseReport) -> PhaseOperators {
        let seconds: f64 = self.sums.values().map(|sum| sum.seconds).sum();
        let per_s = |count: u64, seconds: f64| (count > 0).then(|| count as f64 / seconds.max(1e-9) / 1e9);
        let time = |((op, weights, shape), sum): (Key, Sum)| OperatorTime {
            op,
            weights,
            shape,
            calls: sum.calls,
            seconds: sum.seconds,
            share: sum.seconds / seconds.max(f64::MIN_POSITIVE),
            gb_per_s: per_s(sum.bytes, sum.seconds),
            gop_per_s: per_s(sum.operations, sum.seconds),
        };
        let mut operators: Vec<OperatorTime> = self.sums.into_iter().map(time).collect();
        operators.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let whole_seconds = report.seconds.median * tokens as f64 / report.tokens as f64;
        PhaseOperators { phase, tokens, seconds, whole_seconds, operators }
    }
}

/// Whether the keys of a `kv_attention` are its values, too.
fn caches_of(node: &Node) -> Caches {
    match node.inputs.get(1..3) {
        Some([keys, values]) if keys == values => Caches::Shared,
        _ => Caches::Separate,
    }
}

fn key(graph: &Graph, node: &Node) -> Key {
    let weights = weights_of(graph, node);
    let mut types: Vec<&str> = weights.iter().map(|ty| ty.dtype.name()).collect();
    types.dedup();
    let shown = weights.first().unwrap_or(&graph.value(node.output).ty).shape;
    (node.op.name(), types.join(", "), shown.to_string())
}
