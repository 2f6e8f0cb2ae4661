//! Attention over the KV cache: scores of cached keys, their softmax, and the weighted sum of cached values.

use super::Match;
use crate::graph::{Graph, Node, Origin, ValueId};
use crate::op::{KvAttention, Op};

/// The match that ends with the `kv_mix` node at this index. Keys and values must belong to the same sequences and have
/// the same number of heads. A softmax without a mask does not match: it would need a full cache, which no model has.
pub(super) fn find(graph: &Graph, place: usize) -> Option<Match> {
    let last = &graph.nodes()[place];
    let (Op::KvMix(mix), [weights, values, sequences]) = (&last.op, last.inputs.as_slice()) else { return None };
    let (soft_max_place, soft_max) = node(graph, *weights)?;
    let (Op::SoftMax(rule), [scores, mask]) = (&soft_max.op, soft_max.inputs.as_slice()) else { return None };
    let (scores_place, scores) = node(graph, *scores)?;
    let (Op::KvScores(_), [q, keys, of_keys]) = (&scores.op, scores.inputs.as_slice()) else { return None };
    let kv_heads = graph.value(*keys).ty.shape[0].checked_div(graph.value(*q).ty.shape[0])?;
    if of_keys != sequences || kv_heads != mix.kv_heads {
        return None;
    }
    let op = KvAttention { scale: rule.scale, max_bias: rule.max_bias }.into();
    let inputs = vec![*q, *keys, *values, *sequences, *mask];
    Some(Match { op, inputs, pieces: vec![scores_place, soft_max_place, place] })
}

/// The node that computes a value.
fn node(graph: &Graph, value: ValueId) -> Option<(usize, &Node)> {
    let Origin::Node(place) = graph.value(value).origin else { return None };
    Some((place, &graph.nodes()[place]))
}
