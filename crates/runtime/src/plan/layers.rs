//! Placement of layers on several devices: the first device takes as many layers as fit, then the next; the last takes
//! the rest.
//!
//! ```text
//!  inp_embd │ layer 0 │ layer 1 │ layer 2 │ layer 3 │ result_norm, logits
//!  └──────── cuda:0, 6 GiB ───────┘└──────────── cuda:1 ─────────────┘
//! ```
//!
//! The memory use of a device is computed, not estimated: its nodes are laid out as in the plan of the largest batch,
//! and its weights, KV cache and inputs are counted. The first session decides the placement, because weights and
//! cache stay in place.

use super::place::{Answer, answers, place};
use super::{PlannedDevice, WeightUses, cut, plan_device, rooms};
use crate::device::Device;
use crate::error::Result;
use trueup_graph::{Graph, Origin};

/// The part of its free memory that a device keeps free: one in so many bytes. The driver takes some for kernels and
/// graphs.
const FREE_SHARE: u64 = 16;

/// Which device's each layer is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LayerHomes {
    /// For each device but the last the group of nodes behind its own: group 0 stands before the layers, 1 is layer 0.
    ends: Vec<usize>,
}

impl LayerHomes {
    /// Places a graph, which is the largest that will be computed, over devices of which the first `count` take layers
    /// and the others what these cannot compute.
    pub fn fill(graph: &Graph, devices: &[&dyn Device], count: usize) -> Result<LayerHomes> {
        let answers: Vec<Vec<Answer>> = devices.iter().map(|device| answers(graph, *device)).collect();
        let groups = groups(graph).last().map_or(1, |last| last + 1);
        let mut homes = LayerHomes::default();
        for (index, device) in devices.iter().enumerate().take(count.saturating_sub(1)) {
            let free = device.about().memory.map_or(u64::MAX, |(_, free)| free - free / FREE_SHARE);
            let fits = |end: usize| {
                let ends = homes.ends.iter().copied().chain([end]).collect();
                Ok(needed(graph, devices, &answers, count, &LayerHomes { ends }, index)? <= free)
            };
            let first = homes.ends.last().copied().unwrap_or(0);
            let end = last_that(first, groups, fits)?;
            homes.ends.push(end);
        }
        Ok(homes)
    }

    /// The device of each node.
    pub(super) fn of_nodes(&self, graph: &Graph) -> Vec<usize> {
        let home = |group: usize| self.ends.iter().position(|end| group < *end).unwrap_or(self.ends.len());
        groups(graph).into_iter().map(home).collect()
    }
}

/// The largest number from `first` to `last` that `fits`, where each smaller one does too; `first` fits anyway.
fn last_that(first: usize, last: usize, fits: impl Fn(usize) -> Result<bool>) -> Result<usize> {
    let (mut fitting, mut failing) = (first, last + 1);
    while fitting + 1 < failing {
        let middle = fitting.midpoint(failing);
        if fits(middle)? {
            fitting = middle;
        } else {
            failing = middle;
        }
    }
    Ok(fitting)
}

/// The group of each node: what stands before the layers, each layer, what stands behind them.
fn groups(graph: &Graph) -> Vec<usize> {
    let layers = graph.nodes().iter().filter_map(|node| node.layer).max().map_or(0, |last| last + 1);
    let mut group = 0;
    let of = |layer: Option<usize>| {
        group = match layer {
            Some(layer) => group.max(layer + 1),
            None if group == 0 => 0,
            None => layers + 1,
        };
        group
    };
    graph.nodes().iter().map(|node| node.layer).map(of).collect()
}

/// Bytes that a device holds.
fn needed(
    graph: &Graph,
    devices: &[&dyn Device],
    answers: &[Vec<Answer>],
    count: usize,
    homes: &LayerHomes,
    index: usize,
) -> Result<u64> {
    let nodes = place(graph, devices, answers, count, &homes.of_nodes(graph))?;
    let PlannedDevice { arena_bytes, held, .. } = plan_device(graph, &cut(graph, &nodes), index);
    let rooms = rooms(graph, &nodes, index, devices[index]);
    let device = devices[index];
    let taken = |bytes: usize| device.taken_bytes(bytes as u64);
    let uses = WeightUses::new(graph);
    let values = held.into_iter().map(|id| match graph.value(id) {
        value if value.origin == Origin::Weight => uses.bytes(value, device),
        value => taken(value.ty.bytes()),
    });
    Ok(rooms.into_iter().chain([arena_bytes]).map(taken).chain(values).fold(0, u64::saturating_add))
}
