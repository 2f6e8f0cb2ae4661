//! Which groups of nodes become one: those that every device with layers computes piece by piece and as a whole, or
//! leaves to one that does.
//!
//! A piece that falls back to another device, or a whole that one of them does not compute, leaves the group as it is.
//! Graphs in f64 are the oracle's, in which every step is to be seen: they stay as they are too.

use crate::device::{Device, is_on_cache};
use trueup_blocks::DType;
use trueup_graph::fuse::{Candidate, Fused, fuse};
use trueup_graph::{Graph, Node, TensorType};

/// The graph with fused nodes where the devices with layers, which are the first `count`, compute them. Attention over
/// a KV cache that one of these leaves to another device is fused where that one computes it.
pub fn fuse_for(graph: Graph, devices: &[&dyn Device], count: usize) -> Fused {
    let computes = |candidate: &Candidate, device: &dyn Device| {
        is_whole(candidate, device) && candidate.pieces.iter().all(|node| is_piece(candidate, node, device))
    };
    let (with_layers, behind) = devices.split_at(count);
    // As nodes fall back: see place.rs.
    let keeper = |candidate: &Candidate| {
        let others = behind.iter().chain(with_layers);
        others.copied().find(|device| on_cache(candidate).all(|node| is_piece(candidate, node, *device)))
    };
    let is_left = |candidate: &Candidate, device: &dyn Device| {
        let leaves = !is_whole(candidate, device) && on_cache(candidate).all(|node| !is_piece(candidate, node, device));
        let is_attention = on_cache(candidate).next().is_some();
        is_attention && leaves && keeper(candidate).is_some_and(|keeper| computes(candidate, keeper))
    };
    fuse(graph, &|candidate| {
        let is_seen = candidate.output.dtype == DType::F64;
        let fits = |device: &&dyn Device| computes(candidate, *device) || is_left(candidate, *device);
        !is_seen && with_layers.iter().all(fits)
    })
}

/// Pieces on a KV cache.
fn on_cache<'a>(candidate: &'a Candidate<'_>) -> impl Iterator<Item = &'a Node> {
    candidate.pieces.iter().copied().filter(|node| is_on_cache(&node.op))
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
