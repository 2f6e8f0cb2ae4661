//! Faults in the parameters of an operator.

use trueup_graph::op::{Gated, RopePairs};
use trueup_graph::{Graph, Op};

/// Which parameter is wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ParameterFault {
    Epsilon,
    Pairs,
    Base,
    OtherBase,
    Dimensions,
    Scale,
    Function,
}

/// Bases of the layers with and without a sliding window in Gemma 3 (Gemma Team 2025, section 2).
const BASES: [f32; 2] = [10_000.0, 1_000_000.0];

impl ParameterFault {
    /// Whether the operator has the parameter.
    pub fn fits(self, op: &Op, inputs: usize) -> bool {
        // Frequency factors are as many as the pairs that are rotated.
        let fixed = self == ParameterFault::Dimensions && inputs > 2;
        !fixed && self.changed(op).is_some_and(|changed| changed != *op)
    }

    /// Whether the graph has what the fault takes from another node.
    pub fn fits_graph(self, op: &Op, graph: &Graph) -> bool {
        let Some(Op::Rope(changed)) = self.changed(op).filter(|_| self == ParameterFault::OtherBase) else {
            return self != ParameterFault::OtherBase;
        };
        graph.nodes().iter().any(|node| matches!(&node.op, Op::Rope(rope) if rope.base == changed.base))
    }

    /// What else the node needs, for a message.
    pub fn needs(self) -> &'static str {
        if self == ParameterFault::OtherBase { " in a model with RoPE bases 10000 and 1000000" } else { "" }
    }

    /// The operator with the wrong parameter; `None` where it has no such one.
    pub fn changed(self, op: &Op) -> Option<Op> {
        let mut op = op.clone();
        match (self, &mut op) {
            (ParameterFault::Epsilon, Op::RmsNorm(norm)) => norm.epsilon *= 10.0,
            (ParameterFault::Pairs, Op::Rope(rope)) => {
                rope.pairs = match rope.pairs {
                    RopePairs::Neighbours => RopePairs::Halves,
                    RopePairs::Halves => RopePairs::Neighbours,
                }
            }
            (ParameterFault::Base, Op::Rope(rope)) => rope.base *= 10.0,
            (ParameterFault::OtherBase, Op::Rope(rope)) => {
                rope.base = if rope.base == BASES[0] { BASES[1] } else { BASES[0] };
            }
            (ParameterFault::Dimensions, Op::Rope(rope)) => rope.dimensions = rope.dimensions / 4 * 2,
            (ParameterFault::Scale, Op::SoftMax(soft_max)) => soft_max.scale = 1.0,
            (ParameterFault::Scale, Op::KvAttention(attention)) => attention.scale = 1.0,
            (ParameterFault::Function, Op::MulMatGated(fused)) => fused.gated = Gated::Geglu,
            (
                ParameterFault::Epsilon
                | ParameterFault::Pairs
                | ParameterFault::Base
                | ParameterFault::OtherBase
                | ParameterFault::Dimensions
                | ParameterFault::Scale
                | ParameterFault::Function,
                _,
            ) => return None,
        }
        Some(op)
    }
}
