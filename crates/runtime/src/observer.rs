//! The hook of execution: an observer chooses nodes and sees their inputs and outputs.
//!
//! ```text
//! execute ... poison the output ─ execute the chosen node ─ sync ─ saw() ─ execute ...
//! ```
//!
//! Execution stops after a chosen node, while its inputs and output are still in the device's memory. Everything
//! between two chosen nodes runs as it does without an observer, at the same memory addresses.

use crate::device::{Device, Step};
use crate::error::Result;
use crate::host_tensor::HostTensor;
use crate::plan::PlannedNode;
use crate::session::TokenPlace;
use trueup_graph::fuse::Pieces;
use trueup_graph::{Graph, Node};

/// Someone who looks at intermediate results.
pub trait Observer {
    /// Whether execution shall stop behind this node.
    fn wants(&self, node: &Node) -> bool;

    /// A wanted node was computed.
    fn saw(&mut self, seen: &Seen<'_>) -> Result<()>;

    /// Whether the output of a wanted node is filled with NaN (bytes 0xFF) before it is computed, so that elements
    /// which are not written show. States, and outputs that share their input's memory, are left alone.
    fn poisons(&self) -> bool {
        true
    }
}

/// A node that was computed, with all that is needed to compute it again elsewhere.
pub struct Seen<'a> {
    /// The graph of this batch.
    pub graph: &'a Graph,
    /// The node's place in the graph.
    pub node: usize,
    /// How many batches the session computed before this one.
    pub batch: usize,
    /// Where the planner put the node, and how the device computes it.
    pub planned: &'a PlannedNode,
    /// The device that computed it.
    pub device: &'a dyn Device,
    /// Inputs and output in that device's memory.
    pub step: &'a Step,
    /// What the node was fused of; `None` where it is as models have it.
    pub fused_of: Option<Pieces<'a>>,
    /// The tokens of this batch: columns of activations.
    pub tokens: &'a [TokenPlace],
}

impl Seen<'_> {
    /// The node itself.
    pub fn node(&self) -> &Node {
        &self.graph.nodes()[self.node]
    }

    /// One of the inputs, as the node had it; the cache of a `kv_store` as the node left it.
    pub fn input(&self, index: usize) -> Result<HostTensor> {
        self.download(&self.step.inputs[index])
    }

    /// All inputs, as the node had them; the cache of a `kv_store` as the node left it.
    pub fn inputs(&self) -> Result<Vec<HostTensor>> {
        self.step.inputs.iter().map(|tensor| self.download(tensor)).collect()
    }

    /// What the node computed.
    pub fn output(&self) -> Result<HostTensor> {
        self.download(&self.step.output)
    }

    fn download(&self, tensor: &crate::device::Tensor) -> Result<HostTensor> {
        let mut bytes = vec![0; tensor.ty.bytes()];
        self.device.download(tensor, &mut bytes)?;
        Ok(HostTensor::stored(tensor.ty, bytes))
    }
}
