//! What the operator suite tries: for each operator, types of inputs and what they are filled with. Data only; the suite of the verifier
//! fills, computes and judges.

use crate::op::Op;
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};

/// One computation of one operator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// What is computed.
    pub op: Op,
    /// The inputs, in the operator's order.
    pub inputs: Vec<(TensorType, Fill)>,
    /// Whether all inputs are integers so small that no sum or product of them is rounded: the result must be exact to the bit.
    pub probe: bool,
}

impl Case {
    /// A case whose result is judged by noise and bounds.
    pub fn new(op: impl Into<Op>, inputs: &[(TensorType, Fill)]) -> Case {
        Case { op: op.into(), inputs: inputs.to_vec(), probe: false }
    }

    /// A case whose result is judged bit for bit.
    pub fn probe(op: impl Into<Op>, inputs: &[(TensorType, Fill)]) -> Case {
        Case { probe: true, ..Case::new(op, inputs) }
    }
}

/// What a tensor is filled with. Numbers are rounded to the tensor's type, block types hold what their codec makes of them; all follow from
/// the seed of the case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Fill {
    /// Normally distributed around 0 with this standard deviation.
    Normal(f64),
    /// Evenly distributed between two bounds.
    Uniform(f64, f64),
    /// Integers between two bounds, both included.
    Integers(i32, i32),
    /// Integers from 0 to below this one, none of them twice.
    Distinct(i32),
    /// The first number, then each one larger by 1.
    Counting(i32),
    /// The same number everywhere.
    Constant(f64),
    /// A mask over `[positions, tokens]`: 0 where position `j` is at most `first + token`, else -inf.
    Causal(i32),
    /// As `Causal`, and -inf for positions `window` (the second number) or more before `first + token` too: a sliding window.
    Window(i32, i32),
    /// As `Causal`, and `j - first - token` instead of 0: distances, which the slopes of ALiBi are multiplied with.
    Distances(i32),
    /// Integers between two bounds, both included; of each 32 along a row the first is the lower and the second the upper bound. Where
    /// these are the ends of a block type's codes, all numbers are codes of a block with scale 1 and are stored exactly.
    Codes(i32, i32),
}
