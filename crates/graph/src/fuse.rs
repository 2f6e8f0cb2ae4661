//! Fusion: replaces several nodes of a graph by one operator that computes the result of the last.
//!
//! ```text
//!   x ─┬─ ffn_gate-0 (mul_mat) ─┐
//!      └─ ffn_up-0   (mul_mat) ─┴─ ffn_swiglu-0 (swiglu) ─▶      x ─── ffn_swiglu-0 (mul_mat_swiglu) ─▶
//! ```
//!
//! Each fused operator has a pattern: one file in `fuse/` and one line in `PATTERNS`. A group is fused only if no
//! other node reads its intermediate results, and only if the caller accepts the operator on those types. So a device
//! without the fused operator gets the separate ones. f64 graphs are not fused.
//!
//! The fused node has the name of the group's last node. The parts stay known; when the fused node fails, `verify`
//! computes them to find the faulty one.

mod kv_attention;
mod mul_mat_gated;

use crate::graph::{Graph, Node, Origin, ValueId};
use crate::op::Op;
use crate::shape::TensorType;
use std::collections::HashMap;

/// Nodes that match a pattern.
#[derive(Clone, PartialEq, Debug)]
struct Match {
    op: Op,
    /// Values of the unfused graph, in the operator's order.
    inputs: Vec<ValueId>,
    /// Indices of the nodes in the unfused graph, ascending; the last one's value is the result.
    pieces: Vec<usize>,
}

/// Finds the match that ends with the node at this index.
type Pattern = fn(&Graph, usize) -> Option<Match>;

/// All fused operators.
const PATTERNS: &[Pattern] = &[kv_attention::find, mul_mat_gated::find];

/// A group of nodes that the caller can accept or refuse to fuse.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The unfused graph.
    pub graph: &'a Graph,
    /// The operator that would replace all nodes.
    pub op: &'a Op,
    /// Types of its inputs.
    pub inputs: &'a [TensorType],
    /// The type of its result.
    pub output: TensorType,
    /// The nodes, in order.
    pub pieces: Vec<&'a Node>,
}

impl Candidate<'_> {
    /// The name that the fused node would have: that of the last node.
    pub fn name(&self) -> &str {
        self.pieces.last().map_or("", |node| node.name.as_str())
    }
}

/// A fused node and the nodes that it replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its index in the fused graph.
    pub node: usize,
    /// Indices of its nodes in the unfused graph, ascending.
    pub pieces: Vec<usize>,
}

/// A graph with fused nodes, and the graph before fusion.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Fused {
    /// The graph to compute.
    pub graph: Graph,
    /// The graph before fusion; empty if nothing was fused.
    pub unfused: Graph,
    /// The fused nodes, in order.
    pub groups: Vec<Group>,
}

impl Fused {
    /// A graph in which nothing is fused.
    pub fn none(graph: Graph) -> Fused {
        Fused { graph, ..Fused::default() }
    }

    /// The nodes that were fused into the node at this index of the fused graph; `None` if it is not a fused node.
    pub fn pieces(&self, node: usize) -> Option<Pieces<'_>> {
        let place = self.groups.binary_search_by_key(&node, |group| group.node).ok()?;
        Some(Pieces { graph: &self.unfused, places: &self.groups[place].pieces })
    }

    /// The fused node that contains the unfused node with this name, including the last node of a group.
    pub fn holder(&self, piece: &str) -> Option<&Node> {
        let holds = |group: &&Group| group.pieces.iter().any(|place| self.unfused.nodes()[*place].name == piece);
        self.groups.iter().find(holds).map(|group| &self.graph.nodes()[group.node])
    }
}

/// The nodes that were fused into one.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    /// Their graph, whose values have the same names as in the fused graph.
    pub graph: &'a Graph,
    places: &'a [usize],
}

impl<'a> Pieces<'a> {
    /// The nodes, in order.
    pub fn nodes(self) -> impl Iterator<Item = &'a Node> {
        self.places.iter().map(move |place| &self.graph.nodes()[*place])
    }
}

/// Fuses every group that `accepts` takes.
pub fn fuse(graph: Graph, accepts: &dyn Fn(&Candidate) -> bool) -> Fused {
    let readers = readers(&graph);
    let mut taken = vec![false; graph.nodes().len()];
    let mut matches: HashMap<usize, Match> = HashMap::new();
    for place in 0..graph.nodes().len() {
        let free =
            |found: &Match| found.pieces.iter().all(|piece| !taken[*piece]) && is_closed(&graph, &readers, found);
        let found = PATTERNS.iter().filter_map(|pattern| pattern(&graph, place)).find(|found| free(found));
        if let Some(found) = found.filter(|found| accepted(&graph, found, accepts)) {
            found.pieces.iter().for_each(|piece| taken[*piece] = true);
            matches.insert(place, found);
        }
    }
    if matches.is_empty() {
        return Fused::none(graph);
    }
    rebuild(graph, &taken, &matches)
}

/// How many nodes read each value.
fn readers(graph: &Graph) -> Vec<usize> {
    let mut readers = vec![0; graph.values().len()];
    graph.nodes().iter().flat_map(|node| &node.inputs).for_each(|input| readers[input.index()] += 1);
    readers
}

/// Whether a match can be fused: all results except the last are read only within the group, no node is an alias, and
/// no node between the first and the last writes memory that the group reads. States may be written before the first
/// node and after the last.
fn is_closed(graph: &Graph, readers: &[usize], found: &Match) -> bool {
    let nodes = || found.pieces.iter().map(|piece| &graph.nodes()[*piece]);
    let Some((last, inner)) = found.pieces.split_last() else { return false };
    let reads = |value: ValueId| nodes().flat_map(|node| &node.inputs).filter(|input| **input == value).count();
    let inside = inner.iter().map(|piece| graph.nodes()[*piece].output).all(|value| {
        let count = readers[value.index()];
        count > 0 && count == reads(value)
    });
    let between = &graph.nodes()[found.pieces[0]..*last];
    let is_read = |memory: ValueId| found.inputs.iter().any(|input| memory_of(graph, *input) == memory);
    inside
        && nodes().all(|node| !node.op.is_alias())
        && !between.iter().filter_map(|node| written(graph, node)).any(is_read)
}

/// The value whose memory a node overwrites in place, if any.
fn written(graph: &Graph, node: &Node) -> Option<ValueId> {
    let in_place = node.op.is_alias() && !node.op.is_view();
    node.inputs.first().filter(|_| in_place).map(|first| memory_of(graph, *first))
}

/// The value that owns a value's memory: the value itself, unless it is an alias.
fn memory_of(graph: &Graph, value: ValueId) -> ValueId {
    let mut value = value;
    while let Origin::Node(place) = graph.value(value).origin {
        let node = &graph.nodes()[place];
        match node.inputs.first().filter(|_| node.op.is_alias()) {
            Some(first) => value = *first,
            None => break,
        }
    }
    value
}

fn accepted(graph: &Graph, found: &Match, accepts: &dyn Fn(&Candidate) -> bool) -> bool {
    let inputs: Vec<TensorType> = found.inputs.iter().map(|input| graph.value(*input).ty).collect();
    let Some(last) = found.pieces.last().map(|piece| &graph.nodes()[*piece]) else { return false };
    let output = graph.value(last.output).ty;
    if found.op.infer(&inputs).ok() != Some(output) {
        return false;
    }
    let pieces = found.pieces.iter().map(|piece| &graph.nodes()[*piece]).collect();
    accepts(&Candidate { graph, op: &found.op, inputs: &inputs, output, pieces })
}

/// Builds the fused graph: each match replaces its last node, and its other nodes are removed.
fn rebuild(unfused: Graph, taken: &[bool], matches: &HashMap<usize, Match>) -> Fused {
    let mut graph = Graph::default();
    let mut moved: Vec<Option<ValueId>> = vec![None; unfused.values().len()];
    let mut groups = Vec::new();
    for (id, value) in unfused.iter_values() {
        let Origin::Node(place) = value.origin else {
            moved[id.index()] = Some(graph.copy(value));
            continue;
        };
        let node = &unfused.nodes()[place];
        let found = matches.get(&place);
        if taken[place] && found.is_none() {
            continue;
        }
        let (op, inputs) = found.map_or((&node.op, &node.inputs), |found| (&found.op, &found.inputs));
        let inputs: Vec<ValueId> = inputs.iter().filter_map(|input| moved[input.index()]).collect();
        if let Some(found) = found {
            groups.push(Group { node: graph.nodes().len(), pieces: found.pieces.clone() });
        }
        let renewed = Node { op: op.clone(), inputs, ..node.clone() };
        moved[id.index()] = Some(graph.append(renewed, value.ty));
    }
    Fused { graph, unfused, groups }
}
