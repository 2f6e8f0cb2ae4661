//! The graphs of a model with several stages, and which of them a step belongs to.
//!
//! ```text
//! encoder    get_rows  rms_norm  mul_mat ...  reshape  kv_scores ...
//! decoder    get_rows  rms_norm  mul_mat ...  reshape  kv_store  ...
//!            └─────────── in common ────────────────┘  └ identifies the graph
//! ```
//!
//! A step names its node by its place in the graph. The graph is known from the first step whose operator only one of
//! them has at this place.

use std::sync::atomic::{AtomicBool, Ordering};
use trueup_blocks::DType;
use trueup_graph::Graph;
use trueup_models::{Batch, Stage};
use trueup_runtime::device::Step;
use trueup_runtime::{ModelFile, Result};

/// Recognizes the steps of one graph among those of two.
pub(super) struct Stages {
    /// For each place, the operator of the graph and that of the other graph; empty if there is only one graph.
    ops: Vec<[Option<&'static str>; 2]>,
    is_own: AtomicBool,
}

impl Stages {
    /// For a model with one graph.
    pub fn one() -> Stages {
        Stages { ops: Vec::new(), is_own: AtomicBool::new(true) }
    }

    /// For graph `own` of these graphs, of which there are at most two.
    pub fn of(graphs: &[Graph], own: usize) -> Stages {
        let other = graphs.iter().enumerate().find(|(number, _)| *number != own).map(|(_, graph)| graph);
        let (Some(graph), Some(other)) = (graphs.get(own), other) else { return Stages::one() };
        let op = |graph: &Graph, place: usize| graph.nodes().get(place).map(|node| node.op.name());
        let count = graph.nodes().len().max(other.nodes().len());
        let ops = (0..count).map(|place| [op(graph, place), op(other, place)]).collect();
        Stages { ops, is_own: AtomicBool::new(false) }
    }

    /// Whether the graph is known when the node at this place is computed.
    pub fn knows(&self, place: usize) -> bool {
        self.ops.is_empty() || self.ops.iter().take(place.saturating_add(1)).any(|[own, other]| own != other)
    }

    /// Notes a step. Pieces of a fused node have its place, but other operators.
    pub fn saw(&self, step: &Step) {
        let Some([own, other]) = self.ops.get(step.node).filter(|[own, other]| own != other) else { return };
        let found = Some(step.op.name());
        if found == *own || found == *other {
            self.is_own.store(found == *own, Ordering::Relaxed);
        }
    }

    /// Whether the last steps were those of the graph.
    pub fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }
}

/// The graphs whose places of nodes all batches of the model share: that of the encoder last, if there is one.
pub(super) fn graphs(model: &ModelFile) -> Result<Vec<Graph>> {
    let spec = model.model().spec();
    let context = spec.context_length();
    let graph = |stage: Stage| {
        let batch = Batch {
            tokens: 1,
            outputs: 1,
            capacity: context,
            context,
            ring: context,
            sequences: 1,
            streams: 1,
            is_long: false,
            stage,
            activation: DType::F32,
            kv: DType::F16,
        };
        Ok(model.model().graph(&batch)?)
    };
    let encoder = spec.has_encoder().then_some(Stage::Encoder);
    [spec.decoder_stage(context)].into_iter().chain(encoder).map(graph).collect()
}
