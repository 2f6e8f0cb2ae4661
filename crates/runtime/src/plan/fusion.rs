//! Which groups of nodes become one: those that every device with layers computes piece by piece and as a whole.
//!
//! A piece that falls back to another device, or a whole that one of them does not compute, leaves the group as it is. Graphs in f64 are
//! the oracle's, in which every step is to be seen: they stay as they are too.

use crate::device::Device;
use trueup_blocks::DType;
use trueup_graph::fuse::{Candidate, Fused, fuse};
use trueup_graph::{Graph, Node, TensorType};

/// The graph with fused nodes where all `devices` compute them.
pub fn fuse_for(graph: Graph, devices: &[&dyn Device]) -> Fused {
    let computes = |candidate: &Candidate, device: &dyn Device| {
        is_whole(candidate, device) && candidate.pieces.iter().all(|node| is_piece(candidate, node, device))
    };
    fuse(graph, &|candidate| {
        let is_seen = candidate.output.dtype == DType::F64;
        !is_seen && devices.iter().all(|device| computes(candidate, *device))
    })
}

/// Whether the device computes the fused operator.
fn is_whole(candidate: &Candidate, device: &dyn Device) -> bool {
    device.supports(candidate.op, candidate.inputs, &candidate.output).is_ok()
}

/// Whether the device computes one piece.
fn is_piece(candidate: &Candidate, node: &Node, device: &dyn Device) -> bool {
    let ty = |id| candidate.graph.value(id).ty;
    let inputs: Vec<TensorType> = node.inputs.iter().map(|input| ty(*input)).collect();
    device.supports(&node.op, &inputs, &ty(node.output)).is_ok()
}
