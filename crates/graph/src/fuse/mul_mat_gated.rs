//! Two products of the same activations, followed by a gated activation.

use super::Match;
use crate::graph::{Graph, Node, Origin, ValueId};
use crate::op::{MulMatGated, Op};

/// The match that ends with the gated activation at this index. Both matrices must be weights of the model file.
pub(super) fn find(graph: &Graph, place: usize) -> Option<Match> {
    let Op::Gated(gated) = graph.nodes()[place].op else { return None };
    let [gate, up] = graph.nodes()[place].inputs.as_slice() else { return None };
    let (gate_place, gate) = product(graph, *gate)?;
    let (up_place, up) = product(graph, *up)?;
    if gate_place == up_place || gate.inputs[1] != up.inputs[1] {
        return None;
    }
    let op = MulMatGated { gated }.into();
    let inputs = vec![gate.inputs[0], up.inputs[0], gate.inputs[1]];
    Some(Match { op, inputs, pieces: vec![gate_place.min(up_place), gate_place.max(up_place), place] })
}

/// The `mul_mat` node with a weight that computes this value, if any.
fn product(graph: &Graph, value: ValueId) -> Option<(usize, &Node)> {
    let Origin::Node(place) = graph.value(value).origin else { return None };
    let node = &graph.nodes()[place];
    let is_product = matches!(node.op, Op::MulMat(_)) && graph.value(node.inputs[0]).origin == Origin::Weight;
    is_product.then_some((place, node))
}
