use super::{Rule, exactly, expect};
use crate::case::{Case, Fill};
use crate::shape::{Shape, Strides, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// Moves elements of `x` without changing them. Below, `n` are the sizes of `x` and `i` the indices of the output's
/// dimensions.
///
/// Input: `x` of any type without blocks. Output: that type; of `permute`, `transpose` and `view` it is a view of the
/// memory of `x`. The names are ggml's, and PyTorch's for what ggml lacks.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Arrange {
    /// Dimension `d` of `x` becomes dimension `to[d]` of the output: `y[i] = x[i[to[0]], i[to[1]], i[to[2]],
    /// i[to[3]]]`.
    Permute {
        /// Each of 0 to 3 once.
        to: [usize; 4],
    },
    /// The two innermost dimensions exchanged: `y[i] = x[i[1], i[0], i[2], i[3]]`.
    Transpose,
    /// A part of `x`, or the whole in another order: `y[i]` is element `offset + sum over d of i[d] strides[d]` of `x`,
    /// counted innermost first.
    View {
        /// The first element.
        offset: usize,
        /// The stride of each dimension, in elements; 0 repeats the same element.
        strides: [usize; 4],
        /// The output's sizes.
        shape: Shape,
    },
    /// `y[i] = x[i mod n]`: `x`, tiled.
    Repeat {
        /// The output's sizes, multiples of those of `x`.
        shape: Shape,
    },
    /// Each element of one dimension several times in a row: `y[i] = x[floor(i / times)]` there (PyTorch's
    /// `repeat_interleave`).
    RepeatInterleave {
        /// From 0 to 3.
        dimension: usize,
        /// How often, at least 1.
        times: usize,
    },
    /// Zeros around `x`: `y[i] = x[i - before]`.
    Pad {
        /// Zeros before the first element of each dimension.
        before: [usize; 4],
        /// Zeros after the last element of each dimension.
        after: [usize; 4],
    },
    /// Elements shifted out at the end of a dimension re-enter at its start: `y[i] = x[(i - shifts) mod n]`.
    Roll {
        /// For each dimension, how far.
        shifts: [i64; 4],
    },
}

impl Rule for Arrange {
    const NAMES: &'static [&'static str] =
        &["permute", "transpose", "view", "repeat", "repeat_interleave", "pad", "roll"];

    fn name(&self) -> &'static str {
        match self {
            Arrange::Permute { .. } => "permute",
            Arrange::Transpose => "transpose",
            Arrange::View { .. } => "view",
            Arrange::Repeat { .. } => "repeat",
            Arrange::RepeatInterleave { .. } => "repeat_interleave",
            Arrange::Pad { .. } => "pad",
            Arrange::Roll { .. } => "roll",
        }
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x] = exactly(inputs)?;
        expect(!x.dtype.is_quantized(), || {
            format!("elements of {} share blocks and cannot be moved separately", x.dtype)
        })?;
        let sizes = self.sizes(&x.shape)?;
        let elements = sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size));
        expect(elements.is_some(), || format!("the number of elements of {sizes:?} overflows"))?;
        Ok(TensorType::new(x.dtype, &sizes))
    }

    fn cases() -> Vec<Case> {
        const SHAPES: [&[usize]; 6] = [&[1], &[31], &[33, 7], &[5, 3, 2], &[4, 3, 5, 2], &[257, 33]];
        let mut cases = Vec::new();
        for dtype in [DType::F32, DType::F16, DType::I32] {
            let input = |sizes: &[usize]| [(TensorType::new(dtype, sizes), Fill::Integers(-999, 999))];
            for sizes in SHAPES {
                let ops = members(&Shape::new(sizes));
                cases.extend(ops.into_iter().map(|op| Case::probe(op, &input(sizes))));
            }
            for op in members(&Shape::new(&[5, 0, 3])) {
                cases.push(Case::probe(op, &input(&[5, 0, 3])));
            }
        }
        for op in members(&Shape::new(&[128, 16, 64])) {
            cases.push(Case::new(op, &[(TensorType::new(DType::F32, &[128, 16, 64]), Fill::Normal(1.0))]));
        }
        cases
    }
}

impl Arrange {
    /// Whether the output is a view.
    pub(super) fn is_view(&self) -> bool {
        match self {
            Arrange::Permute { .. } | Arrange::Transpose | Arrange::View { .. } => true,
            Arrange::Repeat { .. } | Arrange::RepeatInterleave { .. } | Arrange::Pad { .. } | Arrange::Roll { .. } => {
                false
            }
        }
    }

    /// The output, of these sizes, as a view of `x` if the operator is a view.
    pub(super) fn seen(&self, x: &Shape, output: Shape) -> Result<Shape, String> {
        let Strides { offset, mut steps } = x.strides();
        match self {
            Arrange::Permute { to } => {
                to.iter().zip(x.strides().steps).for_each(|(target, step)| steps[*target] = step)
            }
            Arrange::Transpose => steps.swap(0, 1),
            Arrange::View { offset, strides, .. } => {
                expect(x.is_dense(), || format!("expected a contiguous x, found {x}; copy it with `cpy` first"))?;
                return Ok(output.seen_by(Strides { offset: *offset, steps: *strides }));
            }
            Arrange::Repeat { .. } | Arrange::RepeatInterleave { .. } | Arrange::Pad { .. } | Arrange::Roll { .. } => {
                return Ok(output);
            }
        }
        Ok(output.seen_by(Strides { offset, steps }))
    }

    fn sizes(&self, x: &Shape) -> Result<[usize; 4], String> {
        let mut sizes = x.sizes();
        match self {
            Arrange::Permute { to } => {
                expect((0..4).all(|dimension| to.contains(&dimension)), || {
                    format!("a permutation has each of 0 to 3 once, not {to:?}")
                })?;
                to.iter().zip(x.sizes()).for_each(|(target, size)| sizes[*target] = size);
            }
            Arrange::Transpose => sizes.swap(0, 1),
            Arrange::View { offset, strides, shape } => {
                let last = shape.sizes().into_iter().zip(strides).try_fold(*offset, |last, (size, stride)| {
                    last.checked_add(size.saturating_sub(1).checked_mul(*stride)?)
                });
                let inside = shape.elements() == 0 || last.is_some_and(|last| last < x.elements());
                expect(inside, || format!("{shape} at {offset} with strides {strides:?} is outside {x}"))?;
                sizes = shape.sizes();
            }
            Arrange::Repeat { shape } => {
                let fits = |(size, target): (usize, usize)| size == target || (size > 0 && target.is_multiple_of(size));
                let all = x.sizes().into_iter().zip(shape.sizes()).all(fits);
                expect(all, || format!("{x} cannot be broadcast to {shape}"))?;
                sizes = shape.sizes();
            }
            Arrange::RepeatInterleave { dimension, times } => {
                expect(*dimension < 4, || format!("dimensions are 0 to 3, not {dimension}"))?;
                expect(*times > 0, || "elements are repeated at least 1 time, not 0".to_owned())?;
                sizes[*dimension] = sizes[*dimension].saturating_mul(*times);
            }
            Arrange::Pad { before, after } => {
                for (size, (before, after)) in sizes.iter_mut().zip(before.iter().zip(after)) {
                    *size = size.saturating_add(*before).saturating_add(*after);
                }
            }
            Arrange::Roll { .. } => {}
        }
        Ok(sizes)
    }
}

/// Each member with the parameters that change what it does, for an input of this shape.
fn members(x: &Shape) -> Vec<Arrange> {
    let [a, b, c, d] = x.sizes();
    let mut members = vec![Arrange::Transpose];
    for to in [[0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3], [2, 0, 1, 3], [1, 2, 0, 3], [3, 2, 1, 0], [0, 1, 3, 2]] {
        members.push(Arrange::Permute { to });
    }
    let (offset, half) = (a - a.div_ceil(2), [a.div_ceil(2), b, c, d]);
    members.push(Arrange::View { offset, strides: [1, a, a * b, a * b * c], shape: Shape::new(&half) });
    members.push(Arrange::View { offset: 0, strides: [a, 2, 0, 0], shape: Shape::new(&[b, a.div_ceil(2), 2]) });
    members.push(Arrange::View { offset: 0, strides: [0, 1, a, a * b], shape: Shape::new(&[3, a, b, c]) });
    for shape in [[a, b, c, d], [2 * a, b, c, d], [a, 3 * b, c, 2 * d]] {
        members.push(Arrange::Repeat { shape: Shape::new(&shape) });
    }
    for (dimension, times) in [(0, 1), (0, 3), (1, 2), (2, 3), (3, 2)] {
        members.push(Arrange::RepeatInterleave { dimension, times });
    }
    for (before, after) in [([0; 4], [1, 0, 0, 0]), ([3, 0, 1, 0], [0, 2, 0, 1]), ([0; 4], [0; 4])] {
        members.push(Arrange::Pad { before, after });
    }
    for shifts in [[1, 0, 0, 0], [-1, 2, 0, 0], [40, -7, 1, 1], [0; 4]] {
        members.push(Arrange::Roll { shifts });
    }
    members
}
