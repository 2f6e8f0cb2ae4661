//! What a node may have been given by mistake: its inputs in the step before, and what other nodes were given shortly
//! before it.
//!
//! ```text
//!   step 4   ffn_norm-3 ─▶ ffn_gate-3          step 5   attn_norm-3 ... ffn_norm-3 ─▶ ffn_gate-3
//!            └──────── of the step before ─────────────────────┼───────────────────────┘
//!                                                 └── of another node
//! ```
//!
//! A buffer that is read before it is written holds one of these. What is kept is bounded, whatever the model: the end
//! of each value, once for all nodes that read it, and few whole tensors.

use super::kept::Kept;
use crate::bound::Case;
use crate::operand::Data;
use std::collections::{HashMap, VecDeque};
use trueup_graph::{Graph, Node, Op, Origin, TensorType, ValueId};

/// Elements of one value that are kept of the step before, where these are more than one token: its last tokens.
const STEP_ELEMENTS_MAX: usize = 1 << 14;

/// Bytes that are kept of the step before, of all values together.
const STEP_BYTES_MAX: usize = 32 << 20;

/// Tensors of other nodes that are kept, and elements of each at most.
const RECENT_MAX: usize = 4;
const RECENT_ELEMENTS_MAX: usize = 1 << 20;

/// What was computed before.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Past {
    /// The end of each value in the last step that all its readers were looked at in.
    steps: HashMap<String, Kept>,
    /// Bytes of these.
    step_bytes: usize,
    /// The last inputs of any node, each by the value's name.
    recent: VecDeque<(String, Kept)>,
}

/// Another content that an input may have had.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Supposed {
    /// The input's place.
    pub input: usize,
    /// What it held.
    pub content: Vec<f64>,
    /// What that means: a clause without a full stop.
    pub text: String,
}

impl Past {
    /// What each input of the node may have contained instead of the correct values.
    pub fn supposed(&self, case: &Case, graph: &Graph, node: &Node) -> Vec<Supposed> {
        activations(case, graph, node)
            .flat_map(|(input, id, numbers)| {
                let own = &graph.value(id).name;
                let (is, what) = match node.op {
                    Op::MulMat(_) => ("are", "the activations".to_owned()),
                    _ => ("is", format!("the input {own}")),
                };
                let before = self.steps.get(own).and_then(|all| all.end(numbers.len()));
                let those = if is == "are" { "those" } else { "that" };
                let before = before.map(|content| Supposed {
                    input,
                    content,
                    text: format!("{what} {is} {those} of the previous step"),
                });
                let others =
                    self.recent.iter().rev().filter(|(name, content)| name != own && content.len() == numbers.len());
                let others = others.map(|(name, content)| Supposed {
                    input,
                    content: content.numbers(),
                    text: format!("{what} {is} {those} of another node: {name} instead of {own}"),
                });
                before.into_iter().chain(others).collect::<Vec<Supposed>>()
            })
            .collect()
    }

    /// Takes note of the inputs of node `index` of the graph, in a batch of so many tokens.
    pub fn add(&mut self, case: &Case, graph: &Graph, index: usize, tokens: usize) {
        let (now, later) = graph.nodes().split_at(index + 1);
        let Some(node) = now.last() else { return };
        for (_, id, numbers) in activations(case, graph, node) {
            let value = graph.value(id);
            // The nodes behind it are still to be asked what they had in the step before.
            if !later.iter().any(|node| node.inputs.contains(&id)) {
                let share = STEP_BYTES_MAX / size_of::<f32>() / graph.nodes().len();
                let room = share.min(STEP_ELEMENTS_MAX).max(numbers.len() / tokens.max(1));
                self.add_step(&value.name, &value.ty, &numbers[numbers.len().saturating_sub(room)..]);
            }
            if numbers.len() <= RECENT_ELEMENTS_MAX
                && self.recent.iter().all(|(known, content)| *known != value.name || !content.is(numbers))
            {
                self.recent.retain(|(known, _)| *known != value.name);
                self.recent.push_back((value.name.clone(), Kept::new(&value.ty, numbers)));
                let beyond = self.recent.len().saturating_sub(RECENT_MAX);
                self.recent.drain(..beyond);
            }
        }
    }

    /// Puts the end of a value in the place of that of the step before, while there is room for it.
    fn add_step(&mut self, name: &str, ty: &TensorType, end: &[f64]) {
        if let Some(before) = self.steps.remove(name) {
            self.step_bytes -= before.bytes();
        }
        let kept = Kept::new(ty, end);
        if self.step_bytes + kept.bytes() <= STEP_BYTES_MAX {
            self.step_bytes += kept.bytes();
            self.steps.insert(name.to_owned(), kept);
        }
    }
}

/// The inputs that nodes computed: their place, their value and their numbers.
fn activations<'a>(
    case: &'a Case,
    graph: &'a Graph,
    node: &'a Node,
) -> impl Iterator<Item = (usize, ValueId, &'a [f64])> {
    node.inputs.iter().zip(case.inputs).enumerate().filter_map(|(input, (id, operand))| match operand.data {
        Data::Numbers(numbers) if matches!(graph.value(*id).origin, Origin::Node(_)) => Some((input, *id, numbers)),
        Data::Numbers(_) | Data::Integers(_) | Data::Blocks(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_blocks::DType;

    #[test]
    fn what_is_kept_of_a_step_has_a_limit_and_the_later_one_takes_the_place_of_the_earlier() {
        let (mut past, len) = (Past::default(), STEP_BYTES_MAX / size_of::<f32>() / 4);
        let ty = TensorType::new(DType::F32, &[len]);
        for step in 0..3 {
            for value in 0..6 {
                past.add_step(&format!("value-{value}"), &ty, &vec![f64::from(step); len]);
            }
            assert_eq!((past.step_bytes, past.steps.len()), (STEP_BYTES_MAX, 4), "step {step}");
            assert_eq!(past.steps["value-0"].end(1), Some(vec![f64::from(step)]));
        }
    }
}
