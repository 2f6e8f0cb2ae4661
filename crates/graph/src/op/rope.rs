use super::{Rule, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// Rotates pairs of elements of each head by an angle that grows with the position.
///
/// Inputs: `x` an activation `[head size, heads, tokens]`, `positions` i32 `[tokens]` or `[tokens, 2]`, and, optional,
/// `factors` f32 `[dimensions / 2]`, which divide the frequencies. Output: the type of `x`.
///
/// With `t_i = position * base^(-2 i / dimensions) / factors[i]` for pair `i` (Su et al. 2021, equation 34), the angle
/// `a_i` and the magnitude `s` follow from the scaling; then
///
/// ```text
/// y_1 = s (x_1 cos a_i - x_2 sin a_i)        y_2 = s (x_1 sin a_i + x_2 cos a_i)
/// ```
///
/// Elements from `dimensions` on stay as they are. With `positions` of two rows, `[tokens, 2]`, elements `dimensions
/// ..` to `2 dimensions` are rotated as the first ones are, by the second row of positions: the two-dimensional
/// positions of GLM (Du et al. 2022, section 2.2).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rope {
    /// Which two elements are a pair.
    pub pairs: RopePairs,
    /// How many elements of each head are rotated; even, at most the head size.
    pub dimensions: usize,
    /// The base of the frequencies ("theta"); positive.
    pub base: f32,
    /// How angles are changed for contexts longer than the trained one.
    pub scaling: RopeScaling,
}

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RopePairs {
    /// `(2 i, 2 i + 1)`: GGUF's "normal".
    Neighbours,
    /// `(i, i + dimensions / 2)`: GGUF's "neox".
    Halves,
}

/// How angles are changed for contexts longer than the trained one.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum RopeScaling {
    /// `a_i = t_i`, `s = 1`.
    None,
    /// `a_i = t_i / factor`, `s = 1`.
    Linear {
        /// How much longer the context is.
        factor: f32,
    },
    /// Peng et al. 2023 ("YaRN"): `a_i = t_i ((1 - r_i) / factor + r_i)` with the ramp `r_i = 1 - clamp((i - low) /
    /// max(0.001, high - low), 0, 1)`, where `low = max(0, floor(c(beta_fast)))`, `high = min(dimensions - 1,
    /// ceil(c(beta_slow)))` and `c(b) = dimensions ln(original_context / (2 pi b)) / (2 ln base)`. `s = magnitude`.
    Yarn {
        /// How much longer the context is.
        factor: f32,
        /// The context the model was trained with.
        original_context: u32,
        /// Rotations above which a frequency stays.
        beta_fast: f32,
        /// Rotations below which a frequency is divided by `factor`.
        beta_slow: f32,
        /// What cosine and sine are multiplied by; `1 + 0.1 ln factor` in the paper.
        magnitude: f32,
    },
    /// Ding et al. 2024 ("LongRoPE"): `a_i = t_i`, `s = magnitude`. The model's short or long factors are the third
    /// input.
    Long {
        /// What cosine and sine are multiplied by; `sqrt(1 + ln(longer) / ln(original context))` in the models
        /// published with the paper.
        magnitude: f32,
    },
}

impl Rule for Rope {
    const NAMES: &'static [&'static str] = &["rope"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let (x, positions, factors) = match inputs {
            [x, positions] => (x, positions, None),
            [x, positions, factors] => (x, positions, Some(factors)),
            others => return Err(format!("takes 2 or 3 inputs, got {}", others.len())),
        };
        expect_activation("x", x)?;
        let rows = positions.shape[1];
        let fits = positions.dtype == DType::I32
            && positions.shape == Shape::new(&[x.shape[2], rows])
            && matches!(rows, 1 | 2);
        expect(fits, || format!("positions must be i32[{0}] or i32[{0}, 2], not {positions}", x.shape[2]))?;
        expect(self.dimensions.is_multiple_of(2) && self.dimensions * rows <= x.shape[0], || {
            let dimensions = self.dimensions * rows;
            format!("{dimensions} RoPE dimensions must be even and at most the head size {}", x.shape[0])
        })?;
        if let Some(factors) = factors {
            let fits = factors.dtype.is_float() && factors.shape == Shape::new(&[self.dimensions / 2]);
            expect(fits, || format!("factors must be [{}], not {factors}", self.dimensions / 2))?;
        }
        Ok(*x)
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for pairs in [RopePairs::Neighbours, RopePairs::Halves] {
            for (base, scaling) in SCALINGS {
                let far = Fill::Integers(0, 131_071);
                for (head_size, dimensions, heads, positions) in [
                    ([64, 5, 3], 64, Fill::Counting(0)),
                    ([33, 1, 31], 20, far),
                    ([80, 7, 1], 32, Fill::Counting(4095)),
                    ([128, 2, 9], 128, far),
                ]
                .map(|(sizes, dimensions, positions)| (sizes[0], dimensions, sizes, positions))
                {
                    let op = Rope { pairs, dimensions, base, scaling };
                    let x = (TensorType::new(DType::F32, &heads), Fill::Normal(1.0));
                    let tokens = (TensorType::new(DType::I32, &heads[2..]), positions);
                    let factors = (TensorType::new(DType::F32, &[dimensions / 2]), Fill::Uniform(1.0, 30.0));
                    cases.push(Case::new(op, &[x, tokens, factors]));
                    cases.push(Case::new(op, &[x, tokens]));
                    if head_size >= 2 * dimensions {
                        let both = (TensorType::new(DType::I32, &[heads[2], 2]), far);
                        cases.push(Case::new(op, &[x, both]));
                    }
                }
            }
            cases.extend(special(pairs));
        }
        cases
    }
}

/// Bases and scalings of published models.
const SCALINGS: [(f32, RopeScaling); 5] = [
    (10_000.0, RopeScaling::None),
    (500_000.0, RopeScaling::None),
    (10_000.0, RopeScaling::Linear { factor: 8.0 }),
    (
        1_000_000.0,
        RopeScaling::Yarn {
            factor: 4.0,
            original_context: 32768,
            beta_fast: 32.0,
            beta_slow: 1.0,
            magnitude: 1.138_629_4,
        },
    ),
    (10_000.0, RopeScaling::Long { magnitude: 1.190_238 }),
];

/// Heads of GLM's two rows of positions, nothing rotated, nothing at all, positions before the first, and the sizes of
/// a real layer.
fn special(pairs: RopePairs) -> Vec<Case> {
    let rope = |dimensions| Rope { pairs, dimensions, base: 10_000.0, scaling: RopeScaling::None };
    let x = |sizes: &[usize]| (TensorType::new(DType::F32, sizes), Fill::Normal(1.0));
    let positions = |sizes: &[usize], fill| (TensorType::new(DType::I32, sizes), fill);
    vec![
        Case::new(rope(64), &[x(&[128, 32, 5]), positions(&[5, 2], Fill::Integers(0, 2047))]),
        Case::new(rope(6), &[x(&[13, 3, 7]), positions(&[7, 2], Fill::Integers(0, 9))]),
        Case::new(rope(0), &[x(&[33, 2, 3]), positions(&[3], Fill::Counting(7))]),
        Case::new(rope(2), &[x(&[2, 1, 1]), positions(&[1], Fill::Counting(1))]),
        Case::new(rope(8), &[x(&[8, 2, 0]), positions(&[0], Fill::Counting(0))]),
        Case::new(rope(32), &[x(&[32, 3, 9]), positions(&[9], Fill::Integers(-50, -1))]),
        Case::probe(rope(32), &[(x(&[32, 3, 9]).0, Fill::Integers(-99, 99)), positions(&[9], Fill::Constant(0.0))]),
        Case::new(rope(128), &[x(&[128, 32, 64]), positions(&[64], Fill::Counting(4000))]),
    ]
}
