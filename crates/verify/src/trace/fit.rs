//! Whether the tensors of a trace can be results of this model: asked of all of them before anything is computed.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

use super::known::expect_place;
use std::collections::HashSet;
use trueup_formats::{Trace, counted, quote};
use trueup_graph::Graph;
use trueup_runtime::{Error, Result};

/// Collects what does not fit.
pub(super) struct Fit<'a> {
    trace: &'a Trace,
    /// Whether shapes must be those of whole results.
    whole: bool,
    seen: usize,
    problems: Vec<String>,
    names: HashSet<String>,
    layers: usize,
}

impl<'a> Fit<'a> {
    /// Before the first step; `whole` for traces that hold each result as it is here.
    pub fn new(trace: &'a Trace, whole: bool) -> Fit<'a> {
        Fit { trace, whole, seen: 0, problems: Vec::new(), names: HashSet::new(), layers: 0 }
    }

    /// Checks the tensors of a step of `tokens` tokens.
    pub fn step(&mut self, step: usize, graph: &Graph, tokens: usize) {
        for node in graph.nodes() {
            self.layers = self.layers.max(node.layer.map_or(0, |layer| layer.saturating_add(1)));
            self.names.insert(node.name.clone());
            let Some(tensor) = self.trace.find(step, &node.name) else { continue };
            self.seen = self.seen.saturating_add(1);
            self.problems.extend(expect_place(tensor, graph, node, tokens, self.whole).err());
        }
    }

    /// Fails where tensors have other shapes than the model's results, or are of layers that it does not have.
    pub fn expect(self) -> Result<()> {
        let path = quote(&self.trace.source().path().to_string_lossy());
        let further = self.trace.tensors().iter().find(|tensor| self.is_further(&tensor.node));
        let problem = match (self.problems.first(), further) {
            (Some(first), _) => {
                let (count, all) = (self.problems.len(), self.seen);
                let verb = if count == 1 { "does" } else { "do" };
                format!("tensor {first} ({count} of {} {verb} not fit)", counted(all, "tensor"))
            }
            (None, Some(tensor)) => {
                let layers = self.layers;
                format!(
                    "tensor {}: expected nodes of {}, found another layer",
                    quote(&tensor.name()),
                    counted(layers, "layer")
                )
            }
            (None, None) => return Ok(()),
        };
        Err(Error::Request(format!("{path}: {problem}; check that the trace was recorded from this model")))
    }

    /// Whether the name is that of a node in a layer after the last.
    fn is_further(&self, name: &str) -> bool {
        let Some((base, layer)) = name.rsplit_once('-') else { return false };
        let layer: Option<usize> = layer.parse().ok();
        layer.is_some_and(|layer| layer >= self.layers) && self.names.contains(&format!("{base}-0"))
    }
}
