//! The plan of a graph: the device of each node, the copies between devices, and the place of every result in memory.
//!
//! ```text
//! Graph ─ fusion: groups that the main device computes at once
//!       ─ placement: a device for each node
//!       ─ segments: runs of nodes on one device, with the copies at their start
//!       ─ memory: offsets by liveness ─ Plan
//!
//! segment 0 (cpu)   inp_embd attn_norm-0 Qcur-0 ...      arena of cpu   │ inp_embd │ attn_norm-0 │ Qcur-0 │ ...
//! segment 1 (ref)   copy Qcur-0; Qcur_rope-0             arena of ref   │ Qcur-0 │ Qcur_rope-0 │
//! ```
//!
//! With several devices, layers are placed one after the other (`layers.rs`), and each segment contains the layers of
//! one device. Weights, states and inputs have separate buffers. Planning allocates and computes nothing.

mod fusion;
mod layers;
mod memory;
mod place;
mod report;

use crate::device::{Device, Rooms};
use crate::error::Result;
pub use fusion::fuse_for;
pub use layers::LayerHomes;
use memory::{Lifetime, lay_out};
pub use place::PlannedNode;
use place::{Answer, answers, root};
pub use report::{DecodedWeights, PlanReport, ReportedDevice, ReportedNode};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use trueup_blocks::DType;
use trueup_graph::fuse::{Fused, Pieces};
use trueup_graph::{Graph, Op, Origin, TensorType, Value, ValueId};

/// What is to be computed where, and where results lie.
#[derive(Clone, Debug)]
pub struct Plan {
    fused: Fused,
    nodes: Vec<PlannedNode>,
    pieces: Vec<Piece>,
    devices: Vec<PlannedDevice>,
    /// The rows of each sequence that the KV cache can grow to, and those of a ring; `None` if it does not grow.
    cache_max: Option<(usize, usize)>,
}

/// Nodes that one device computes without a break.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The device, by its place in the list.
    pub device: usize,
    /// The nodes, by their places in the graph.
    pub nodes: Range<usize>,
    /// What other devices computed and this one needs, with the device that has it; copied before the first node.
    pub copies: Vec<(ValueId, usize)>,
}

/// What a device holds.
#[derive(Clone, Default, Debug)]
struct PlannedDevice {
    name: String,
    /// Roots of values in the arena, and where they lie.
    offsets: BTreeMap<ValueId, usize>,
    arena_bytes: usize,
    /// Each of the node that takes most of it.
    rooms: Rooms,
    /// Weights, states and inputs that its nodes read.
    held: BTreeSet<ValueId>,
    /// Weights that the device stores as another type, by their type.
    decoded: Vec<DecodedWeights>,
}

/// Where a value lies on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the arena, at this offset.
    Arena(usize),
    /// In the buffer of this value, which is a weight, a state or an input.
    Own(ValueId),
}

impl Plan {
    /// Plans a graph. `devices` are the main one and, perhaps, one to fall back on; every node goes to the first that
    /// computes it.
    ///
    /// # Errors
    /// No device computes a node: the number of such nodes, and the devices' reasons for the first one.
    pub fn new(graph: Graph, devices: &[&dyn Device]) -> Result<Plan> {
        Plan::over(Fused::none(graph), devices, 1, &LayerHomes::default())
    }

    /// Plans a graph whose layers have their homes on the first `count` devices; the others compute what these cannot.
    pub fn over(fused: Fused, devices: &[&dyn Device], count: usize, homes: &LayerHomes) -> Result<Plan> {
        let graph = &fused.graph;
        let answers: Vec<Vec<Answer>> = devices.iter().map(|device| answers(graph, *device)).collect();
        let nodes = place::place(graph, devices, &answers, count, &homes.of_nodes(graph))?;
        let pieces = cut(graph, &nodes);
        let planned = devices.iter().enumerate().map(|(index, device)| {
            let planned = plan_device(graph, &pieces, index);
            PlannedDevice {
                name: device.name(),
                rooms: rooms(graph, &nodes, index, *device),
                decoded: decoded(graph, &planned.held, *device),
                ..planned
            }
        });
        let devices = planned.collect();
        Ok(Plan { fused, nodes, pieces, devices, cache_max: None })
    }

    /// The plan with a KV cache that grows to `room` rows for each sequence; [rings](trueup_graph::StateKind::Ring) to
    /// `ring` rows.
    pub fn with_cache_max(self, room: usize, ring: usize) -> Plan {
        Plan { cache_max: Some((room, ring)), ..self }
    }

    /// What is computed.
    pub fn graph(&self) -> &Graph {
        &self.fused.graph
    }

    /// What a node of the graph was fused of, by its place; `None` of a node that is not fused.
    pub fn fused_of(&self, node: usize) -> Option<Pieces<'_>> {
        self.fused.pieces(node)
    }

    /// One entry for each node of the graph.
    pub fn nodes(&self) -> &[PlannedNode] {
        &self.nodes
    }

    /// Runs of nodes on one device, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// How many devices there are.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// Size of a device's arena.
    pub fn arena_bytes(&self, device: usize) -> usize {
        self.devices[device].arena_bytes
    }

    /// Scratch memory of a device in addition to the tensors, as far as it grows with the model or the context.
    pub fn scratch_bytes(&self, device: usize) -> usize {
        self.rooms(device).into_iter().fold(0, usize::saturating_add)
    }

    /// The rooms in which it keeps that: see [`Device::scratch_bytes`].
    pub fn rooms(&self, device: usize) -> Rooms {
        self.devices[device].rooms
    }

    /// Weights, states and inputs that a device's nodes read.
    pub fn held(&self, device: usize) -> impl Iterator<Item = ValueId> {
        self.devices[device].held.iter().copied()
    }

    /// Where a value that a device computes or reads lies on it.
    pub fn place(&self, value: ValueId, device: usize) -> Place {
        let offsets = &self.devices[device].offsets;
        let place = offsets.get(&value).or_else(|| offsets.get(&root(self.graph(), value)));
        place.map_or_else(|| Place::Own(root(self.graph(), value)), |offset| Place::Arena(*offset))
    }

    /// The plan for people and scripts.
    pub fn report(&self) -> PlanReport {
        PlanReport::new(self)
    }
}

/// Cuts the graph where the device changes.
fn cut(graph: &Graph, nodes: &[PlannedNode]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (index, planned) in nodes.iter().enumerate() {
        match pieces.last_mut() {
            Some(piece) if piece.device == planned.device => piece.nodes.end = index + 1,
            _ => pieces.push(Piece { device: planned.device, nodes: index..index + 1, copies: Vec::new() }),
        }
    }
    let mut copied: BTreeSet<(ValueId, usize)> = BTreeSet::new();
    for piece in &mut pieces {
        for input in graph.nodes()[piece.nodes.clone()].iter().flat_map(|node| &node.inputs) {
            let Some(home) = home(graph, nodes, *input) else { continue };
            // What an alias shows is seen in a copy of the whole.
            let root = root(graph, *input);
            if home != piece.device && copied.insert((root, piece.device)) {
                piece.copies.push((root, home));
            }
        }
    }
    pieces
}

/// The device in whose arena a value is computed; `None` for values with buffers of their own.
fn home(graph: &Graph, nodes: &[PlannedNode], value: ValueId) -> Option<usize> {
    match graph.value(root(graph, value)).origin {
        Origin::Node(index) => Some(nodes[index].device),
        Origin::Input(_) | Origin::Weight | Origin::State(_) => None,
    }
}

/// What the nodes of a graph do with its weights.
pub(crate) struct WeightUses<'g>(HashMap<&'g str, WeightUse>);

/// What all nodes do that read one weight.
#[derive(Clone, Copy)]
struct WeightUse {
    is_multiplied: bool,
    is_gathered: bool,
}

impl<'g> WeightUses<'g> {
    pub fn new(graph: &'g Graph) -> WeightUses<'g> {
        let mut uses = HashMap::new();
        for node in graph.nodes() {
            let is_multiplied = matches!(node.op, Op::MulMat(_) | Op::MulMatGated(_));
            let is_gathered = matches!(node.op, Op::GetRows(_));
            let values = node.inputs.iter().map(|input| graph.value(*input));
            for weight in values.filter(|value| value.origin == Origin::Weight) {
                let all = uses.entry(weight.name.as_str()).or_insert(WeightUse { is_multiplied, is_gathered });
                all.is_multiplied &= is_multiplied;
                all.is_gathered &= is_gathered;
            }
        }
        WeightUses(uses)
    }

    /// Bytes that a device takes for a weight.
    pub fn bytes(&self, weight: &Value, device: &dyn Device) -> u64 {
        let is_multiplied = self.0.get(weight.name.as_str()).is_none_or(|all| all.is_multiplied);
        device.weight_bytes(&weight.ty, is_multiplied)
    }

    /// Whether a weight is a table of which rows are taken alone, as an embedding is that is not the head too.
    pub fn is_gathered(&self, weight: &Value) -> bool {
        self.0.get(weight.name.as_str()).is_none_or(|all| all.is_gathered)
    }
}

/// The weights among these values that a device stores as another type, by their type.
fn decoded(graph: &Graph, held: &BTreeSet<ValueId>, device: &dyn Device) -> Vec<DecodedWeights> {
    let uses = WeightUses::new(graph);
    let mut all: BTreeMap<DType, DecodedWeights> = BTreeMap::new();
    for weight in held.iter().map(|id| graph.value(*id)).filter(|value| value.origin == Origin::Weight) {
        let (dtype, stored_as) = (weight.ty.dtype, device.weight_type(weight.ty.dtype));
        if stored_as != dtype {
            let sums = all.entry(dtype).or_insert(DecodedWeights { dtype, stored_as, bytes: 0, device_bytes: 0 });
            sums.bytes = sums.bytes.saturating_add(weight.ty.bytes() as u64);
            sums.device_bytes = sums.device_bytes.saturating_add(uses.bytes(weight, device));
        }
    }
    all.into_values().collect()
}

/// The rooms that a device takes beside the tensors for its nodes, each for the node that needs most of it.
fn rooms(graph: &Graph, nodes: &[PlannedNode], index: usize, device: &dyn Device) -> Rooms {
    let own = graph.nodes().iter().zip(nodes).filter(|(_, planned)| planned.device == index);
    own.fold(Rooms::default(), |mut rooms, (node, _)| {
        let types: Vec<TensorType> = node.inputs.iter().map(|input| graph.value(*input).ty).collect();
        let needed = device.scratch_bytes(&node.op, &types);
        rooms.iter_mut().zip(needed).for_each(|(room, needed)| *room = needed.max(*room));
        rooms
    })
}

/// Lifetimes and buffers on one device. Time counts nodes; copies happen at the first node of their piece.
fn plan_device(graph: &Graph, pieces: &[Piece], device: usize) -> PlannedDevice {
    let end = graph.nodes().len();
    let mut lifetimes: BTreeMap<ValueId, Lifetime> = BTreeMap::new();
    let mut held = BTreeSet::new();
    let used: BTreeSet<ValueId> = graph.nodes().iter().flat_map(|node| &node.inputs).copied().collect();
    for piece in pieces {
        let at = piece.nodes.start;
        for (value, from) in &piece.copies {
            if piece.device == device {
                lifetimes.insert(*value, Lifetime { bytes: graph.value(*value).ty.bytes(), first: at, last: at });
            } else if *from == device {
                extend(&mut lifetimes, root(graph, *value), at);
            }
        }
        if piece.device != device {
            continue;
        }
        for (index, node) in graph.nodes().iter().enumerate().take(piece.nodes.end).skip(at) {
            if !node.op.is_alias() {
                let bytes = graph.value(node.output).ty.bytes();
                lifetimes.insert(node.output, Lifetime { bytes, first: index, last: index });
            }
            for value in node.inputs.iter().chain([&node.output]) {
                let owner = if lifetimes.contains_key(value) { *value } else { root(graph, *value) };
                if !extend(&mut lifetimes, owner, index) {
                    held.insert(owner);
                }
            }
            if !used.contains(&node.output) {
                extend(&mut lifetimes, root(graph, node.output), end);
            }
        }
    }
    let mut ordered: Vec<(ValueId, Lifetime)> = lifetimes.into_iter().collect();
    ordered.sort_by_key(|(value, lifetime)| (lifetime.first, *value));
    let layout = lay_out(&ordered.iter().map(|(_, lifetime)| *lifetime).collect::<Vec<_>>());
    let offsets = ordered.iter().map(|(value, _)| *value).zip(layout.offsets).collect();
    PlannedDevice { offsets, arena_bytes: layout.arena_bytes, held, ..PlannedDevice::default() }
}

/// Lets a value live until step `last`; whether it lies in the arena at all.
fn extend(lifetimes: &mut BTreeMap<ValueId, Lifetime>, value: ValueId, last: usize) -> bool {
    let lifetime = lifetimes.get_mut(&value);
    lifetime.map(|lifetime| lifetime.last = lifetime.last.max(last)).is_some()
}

/// Bytes of all values of one origin that a device holds.
fn held_bytes(plan: &Plan, device: usize, of: impl Fn(Origin) -> bool) -> usize {
    let values = plan.held(device).map(|value| plan.graph().value(value));
    values.filter(|value| of(value.origin)).map(|value| TensorType::bytes(&value.ty)).sum()
}

#[cfg(test)]
mod tests;
