//! Results that are infinite because the declared type is too narrow: no fault of the arithmetic, but what comes of
//! them is no number.
//!
//! ```text
//!   K of 1e5 ──kv_store──▶ inf in a cache of f16 ──kv_scores──▶ inf ──soft_max──▶ NaN        named: kv_store, not soft_max
//! ```

use crate::next::verify_again;
use crate::precision::Precision;
use crate::report::{NodeReport, Report};
use trueup_formats::significant;

/// The first node, by order of computation, with results beyond the range of its declared type.
pub(crate) struct Overflow<'a> {
    /// The node.
    pub node: &'a NodeReport,
    /// Its place among the nodes.
    pub place: usize,
    /// How many elements are beyond the range, in all runs.
    count: u64,
}

impl<'a> Overflow<'a> {
    /// The first there is.
    pub fn first(report: &'a Report) -> Option<Overflow<'a>> {
        let count = |node: &NodeReport| node.phases.iter().map(|phase| phase.range_exceeded).sum::<u64>();
        report.nodes.iter().enumerate().find_map(|(place, node)| {
            let count = count(node);
            (count > 0).then_some(Overflow { node, place, count })
        })
    }

    /// The first, where it lies before the node named `later`.
    pub fn before(report: &'a Report, later: &str) -> Option<Overflow<'a>> {
        let overflow = Overflow::first(report)?;
        let place = report.nodes.iter().position(|node| node.node == later)?;
        (overflow.place < place).then_some(overflow)
    }

    /// What happened: a clause without a full stop.
    pub fn clause(&self) -> String {
        let NodeReport { node, op, layer, phases, .. } = self.node;
        let layer = layer.map_or(String::new(), |layer| format!(" in layer {layer}"));
        let exceeded = phases.iter().find(|phase| phase.range_exceeded > 0);
        let range = exceeded.map_or(String::new(), |phase| {
            let max = Precision::of(phase.output).max;
            let max = significant(max, 4);
            format!(" of {} ({max})", phase.output)
        });
        let (count, place) = (self.count, if self.in_cache() { "infinite in the KV cache" } else { "infinite" });
        let (elements, exceed, are) =
            if count == 1 { ("element", "exceeds", "is") } else { ("elements", "exceed", "are") };
        format!("{count} {elements} of {node} ({op}){layer} {exceed} the range{range} and {are} {place}")
    }

    /// What to do about it.
    pub fn next(&self, report: &Report) -> String {
        if self.in_cache() {
            format!("use a wider KV cache type: {}", verify_again(report, None, "--kv f32"))
        } else {
            let NodeReport { node, device, .. } = self.node;
            format!("have {device} store the result of {node} in a wider type, such as bf16 or f32")
        }
    }

    fn in_cache(&self) -> bool {
        self.node.op == "kv_store"
    }
}
