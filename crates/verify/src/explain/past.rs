//! What a node may have been given by mistake: its inputs in the step before, and what other nodes were given shortly before it.
//!
//! ```text
//!   step 4   ffn_norm-3 ─▶ ffn_gate-3          step 5   attn_norm-3 ... ffn_norm-3 ─▶ ffn_gate-3
//!            └──────── of the step before ─────────────────────┼───────────────────────┘
//!                                                 └── of another node
//! ```
//!
//! A buffer that is read before it is written holds one of these. What is kept is bounded: the end of each input, and few tensors.

use crate::bound::Case;
use crate::operand::Data;
use std::collections::{HashMap, VecDeque};
use trueup_graph::{Graph, Node, Op, Origin, ValueId};

/// Elements of one input that are kept of the step before: its last tokens.
const STEP_ELEMENTS_MAX: usize = 1 << 14;

/// Tensors of other nodes that are kept, and elements of each at most.
const RECENT_MAX: usize = 4;
const RECENT_ELEMENTS_MAX: usize = 1 << 20;

/// What was computed before.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Past {
    /// The end of each input of each node in its last step.
    steps: HashMap<(String, usize), Vec<f64>>,
    /// The last inputs of any node, each by the value's name.
    recent: VecDeque<(String, Vec<f64>)>,
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
    /// What each input of the node may have held in place of its own.
    pub fn supposed(&self, case: &Case, graph: &Graph, node: &Node) -> Vec<Supposed> {
        activations(case, graph, node)
            .flat_map(|(input, id, numbers)| {
                let own = &graph.value(id).name;
                let (is, what) = match node.op {
                    Op::MulMat(_) => ("are", "the activations".to_owned()),
                    _ => ("is", format!("the input {own}")),
                };
                let before = self
                    .steps
                    .get(&(node.name.clone(), input))
                    .and_then(|all| all.get(all.len().checked_sub(numbers.len())?..));
                let those = if is == "are" { "those" } else { "that" };
                let before = before.map(|content| Supposed {
                    input,
                    content: content.to_vec(),
                    text: format!("{what} {is} {those} of the step before"),
                });
                let others =
                    self.recent.iter().rev().filter(|(name, content)| name != own && content.len() == numbers.len());
                let others = others.map(|(name, content)| Supposed {
                    input,
                    content: content.clone(),
                    text: format!("{what} {is} {those} of another node: {name} in place of {own}"),
                });
                before.into_iter().chain(others).collect::<Vec<Supposed>>()
            })
            .collect()
    }

    /// Takes note of a node's inputs.
    pub fn add(&mut self, case: &Case, graph: &Graph, node: &Node) {
        for (input, id, numbers) in activations(case, graph, node) {
            let kept = &numbers[numbers.len().saturating_sub(STEP_ELEMENTS_MAX)..];
            self.steps.insert((node.name.clone(), input), kept.to_vec());
            let name = &graph.value(id).name;
            if numbers.len() <= RECENT_ELEMENTS_MAX
                && self.recent.iter().all(|(known, content)| known != name || content != numbers)
            {
                self.recent.retain(|(known, _)| known != name);
                self.recent.push_back((name.clone(), numbers.to_vec()));
                let beyond = self.recent.len().saturating_sub(RECENT_MAX);
                self.recent.drain(..beyond);
            }
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
