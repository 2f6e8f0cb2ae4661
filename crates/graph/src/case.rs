//! The cases of the operator suite: for each operator, the types of inputs and their contents. Data only; `verify`
//! fills, computes and judges them.

use crate::op::Op;
use crate::shape::{Strides, TensorType};
use serde::{Deserialize, Serialize};

/// One computation of one operator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// What is computed.
    pub op: Op,
    /// The inputs, in the operator's order. The numbers of a view fill the whole of its source ([`TensorType::held`]).
    pub inputs: Vec<(TensorType, Fill)>,
    /// Whether all inputs are integers so small that no sum or product of them is rounded: the result must be exact to
    /// the bit.
    pub probe: bool,
    /// Whether inputs exceed the range of f16, or are infinite at masked positions. The case is skipped on devices that
    /// round activations to f16.
    pub wide: bool,
}

impl Case {
    /// A case whose result is judged by noise and bounds.
    pub fn new(op: impl Into<Op>, inputs: &[(TensorType, Fill)]) -> Case {
        Case { op: op.into(), inputs: inputs.to_vec(), probe: false, wide: false }
    }

    /// A case whose result is judged bit for bit.
    pub fn probe(op: impl Into<Op>, inputs: &[(TensorType, Fill)]) -> Case {
        Case { probe: true, ..Case::new(op, inputs) }
    }

    /// The same computation with one input replaced by a strided view. Each dense floating-point input with arbitrary
    /// values gives up to three cases: the first two dimensions transposed in memory, rows that are part of longer
    /// rows, and every second element. Cases that the operator rejects are omitted.
    pub fn strided(&self) -> Vec<Case> {
        let places = (0..self.inputs.len()).filter(|place| {
            let (ty, fill) = &self.inputs[*place];
            let free = matches!(fill, Fill::Normal(_) | Fill::Uniform(..) | Fill::Integers(..) | Fill::Constant(_));
            free && ty.dtype.is_float() && ty.shape.is_dense() && ty.shape.elements() > 0
        });
        let views = places.flat_map(|place| views(&self.inputs[place].0).map(|view| (place, view)));
        let views = views.filter(|(_, view)| !view.shape.is_dense());
        let cases = views.map(|(place, view)| {
            let mut case = self.clone();
            case.inputs[place].0 = view;
            case
        });
        let takes = |case: &Case| case.op.infer(&case.inputs.iter().map(|(ty, _)| *ty).collect::<Vec<_>>()).is_ok();
        cases.filter(takes).collect()
    }
}

/// Maximum number of cases per operator that are repeated on views.
const SEEN_CASES: usize = 5;

/// Maximum number of elements in the inputs of these cases.
const SEEN_ELEMENTS_MAX: usize = 1 << 14;

/// All cases, followed by evenly spaced cases of each operator on views, if the operator accepts views.
pub(crate) fn with_views(mut cases: Vec<Case>) -> Vec<Case> {
    let mut views: Vec<(&'static str, Vec<Vec<Case>>)> = Vec::new();
    for case in &cases {
        let elements: usize = case.inputs.iter().map(|(ty, _)| ty.shape.elements()).sum();
        let strided = if elements <= SEEN_ELEMENTS_MAX { case.strided() } else { Vec::new() };
        if !strided.is_empty() {
            match views.iter_mut().find(|(name, _)| *name == case.op.name()) {
                Some((_, known)) => known.push(strided),
                None => views.push((case.op.name(), vec![strided])),
            }
        }
    }
    for (_, of_operator) in &mut views {
        let distance = of_operator.len().div_ceil(SEEN_CASES);
        cases.extend(of_operator.drain(..).step_by(distance).flatten());
    }
    cases
}

/// Views of the sizes of `ty`.
fn views(ty: &TensorType) -> [TensorType; 3] {
    let [n0, n1, n2, _] = ty.shape.sizes();
    let view = |offset, steps| TensorType { shape: ty.shape.seen_by(Strides { offset, steps }), ..*ty };
    let long = n0 + 3;
    [
        view(0, [n1, 1, n0 * n1, n0 * n1 * n2]),
        view(2, [1, long, long * n1, long * n1 * n2]),
        view(1, [2, 2 * n0, 2 * n0 * n1, 2 * n0 * n1 * n2]),
    ]
}

/// How a tensor is filled. Values depend on the seed of the case and are rounded to the tensor's type, or encoded if it
/// is a block type.
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
    /// As `Causal`, and -inf for positions `window` (the second number) or more before `first + token` too: a sliding
    /// window.
    Window(i32, i32),
    /// A mask over the rows of a ring, `[rows, tokens]`: 0 for the rows of the `window` (the second number) positions
    /// up to `first + token`, else -inf. Position `p` is in row `p % rows`.
    Ring(i32, i32),
    /// As `Causal`, and -inf at every n-th position, where n is the second number.
    Holes(i32, i32),
    /// As `Normal`, but every n-th row (n is the second number) is infinite, at the positions that `Holes` masks.
    Endless(f64, i32),
    /// As `Causal`, and `j - first - token` instead of 0: distances, which the slopes of ALiBi are multiplied with.
    Distances(i32),
    /// Integers between two inclusive bounds. In each run of 32 elements of a row, the first is the lower bound and the
    /// second the upper bound. If the bounds are the smallest and largest code of a block type, each block gets scale 1
    /// and stores all values exactly.
    Codes(i32, i32),
    /// Random block bytes, except the scales, which are normally distributed around 0 with this standard deviation.
    Blocks(f64),
}
