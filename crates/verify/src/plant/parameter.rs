//! Faults in the parameters of an operator.

use trueup_graph::Op;
use trueup_graph::op::{Gated, RopePairs};

/// Which parameter is wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ParameterFault {
    Epsilon,
    Pairs,
    Base,
    Dimensions,
    Scale,
    Function,
}

impl ParameterFault {
    /// Whether the operator has the parameter.
    pub fn fits(self, op: &Op, inputs: usize) -> bool {
        // Frequency factors are as many as the pairs that are rotated.
        let fixed = self == ParameterFault::Dimensions && inputs > 2;
        !fixed && self.changed(op).is_some_and(|changed| changed != *op)
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
            (ParameterFault::Dimensions, Op::Rope(rope)) => rope.dimensions = rope.dimensions / 4 * 2,
            (ParameterFault::Scale, Op::SoftMax(soft_max)) => soft_max.scale = 1.0,
            (ParameterFault::Scale, Op::KvAttention(attention)) => attention.scale = 1.0,
            (ParameterFault::Function, Op::MulMatGated(fused)) => fused.gated = Gated::Geglu,
            (
                ParameterFault::Epsilon
                | ParameterFault::Pairs
                | ParameterFault::Base
                | ParameterFault::Dimensions
                | ParameterFault::Scale
                | ParameterFault::Function,
                _,
            ) => return None,
        }
        Some(op)
    }
}
