use super::{Rule, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[j] = exp(s_j - max s) / sum_k exp(s_k - max s)` with `s_j = scale x[j] + slope mask[j]`, for each innermost row
/// by itself. If the mask is -inf, the result is exactly 0; if the whole mask of a row is -inf, the row is all 0.
///
/// The slope of head `h` is 1 if `max_bias` is 0, else, with `n = 2^floor(log2 heads)`, `2^(-max_bias (h + 1) / n)` for
/// the first `n` heads and `2^(-max_bias (2 (h - n) + 1) / (2 n))` for the others (Press et al. 2022, "ALiBi", section
/// 3 and the code published with it).
///
/// Inputs: `x` an activation `[capacity, tokens, heads, batch]` and, optional, `mask` f32 or f16 `[capacity, tokens,
/// ...]`, repeated along the two outer dimensions. Output: the type of `x`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SoftMax {
    /// Multiplies the scores: `1 / sqrt(head size)` as a rule.
    pub scale: f32,
    /// The largest exponent of ALiBi's slopes, 8 in the paper; 0 has all slopes 1.
    #[serde(default)]
    pub max_bias: f32,
}

impl Rule for SoftMax {
    const NAMES: &'static [&'static str] = &["soft_max"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let (x, mask) = match inputs {
            [x] => (x, None),
            [x, mask] => (x, Some(mask)),
            others => return Err(format!("takes 1 or 2 inputs, got {}", others.len())),
        };
        expect_activation("x", x)?;
        expect_max_bias(self.max_bias, mask)?;
        let Some(mask) = mask else { return Ok(*x) };
        expect_mask(mask, x.shape.sizes())?;
        Ok(*x)
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for sizes in
            [[1, 1, 1, 1], [31, 2, 3, 1], [33, 5, 1, 2], [64, 4, 2, 1], [257, 3, 4, 1], [1000, 1, 8, 1], [7, 9, 12, 1]]
        {
            let x = (TensorType::new(DType::F32, &sizes), Fill::Normal(8.0));
            let mask = |dtype, fill| (TensorType::new(dtype, &sizes[..2]), fill);
            let first = sizes[0] as i32 - sizes[1] as i32;
            for scale in [1.0, 0.125, 0.3] {
                let op = SoftMax { scale, max_bias: 0.0 };
                cases.push(Case::new(op, &[x]));
                for dtype in [DType::F32, DType::F16] {
                    cases.push(Case::new(op, &[x, mask(dtype, Fill::Causal(first))]));
                }
                cases.push(Case::new(op, &[x, mask(DType::F32, Fill::Window(first, 5))]));
                cases.push(Case::new(op, &[x, mask(DType::F16, Fill::Uniform(-9.0, 0.0))]));
            }
            for max_bias in [8.0, 4.5] {
                let op = SoftMax { scale: 0.3, max_bias };
                cases.push(Case::new(op, &[x, mask(DType::F32, Fill::Distances(first))]));
                cases.push(Case::new(op, &[x, mask(DType::F16, Fill::Distances(first))]));
            }
        }
        cases.extend(special());
        cases
    }
}

/// Rows that attend to nothing, separate masks for each head and batch, no elements, and the sizes of real layers.
fn special() -> Vec<Case> {
    let op = SoftMax { scale: 0.3, max_bias: 0.0 };
    let x = |sizes: &[usize]| (TensorType::new(DType::F32, sizes), Fill::Normal(8.0));
    let mask = |sizes: &[usize], fill| (TensorType::new(DType::F32, sizes), fill);
    vec![
        Case::new(op, &[x(&[33, 4, 2]), mask(&[33, 4], Fill::Causal(-2))]),
        Case::new(op, &[x(&[9, 4, 6, 2]), mask(&[9, 4, 3, 2], Fill::Uniform(-3.0, 3.0))]),
        Case::new(op, &[x(&[9, 4, 6, 2]), mask(&[9, 4, 1, 2], Fill::Uniform(-3.0, 3.0))]),
        Case::new(op, &[x(&[0, 4]), mask(&[0, 4], Fill::Causal(0))]),
        Case::new(op, &[x(&[9, 0])]),
        Case::new(op, &[(TensorType::new(DType::F32, &[65, 3]), Fill::Constant(3.0))]),
        // Scores whose exponentials are beyond f32.
        Case::new(
            SoftMax { scale: 1.0, max_bias: 0.0 },
            &[(TensorType::new(DType::F32, &[33, 7]), Fill::Normal(100.0))],
        ),
        Case::new(
            SoftMax { scale: 0.088_388_35, max_bias: 0.0 },
            &[x(&[4096, 1, 32]), mask(&[4096, 1], Fill::Causal(4000))],
        ),
        Case::new(
            SoftMax { scale: 0.125, max_bias: 8.0 },
            &[x(&[512, 64, 32]), mask(&[512, 64], Fill::Distances(448))],
        ),
    ]
}

/// Biases need positions, which the mask holds.
pub(super) fn expect_max_bias(max_bias: f32, mask: Option<&TensorType>) -> Result<(), String> {
    expect(max_bias.is_finite() && max_bias >= 0.0, || {
        format!("max_bias must be finite and not negative, not {max_bias}")
    })?;
    expect(max_bias == 0.0 || mask.is_some(), || format!("max_bias {max_bias} needs a mask that it multiplies"))
}

/// A mask over scores of these sizes, `[capacity, tokens, heads, batch]`.
pub(super) fn expect_mask(mask: &TensorType, scores: [usize; 4]) -> Result<(), String> {
    let [capacity, tokens, heads, batch] = scores;
    let [columns, rows, mask_heads, mask_batch] = mask.shape.sizes();
    let repeats = |size: usize, target: usize| size > 0 && target.is_multiple_of(size);
    let fits = [columns, rows] == [capacity, tokens] && repeats(mask_heads, heads) && repeats(mask_batch, batch);
    expect(matches!(mask.dtype, DType::F32 | DType::F16) && fits, || {
        format!("mask must be f32 or f16 and [{capacity}, {tokens}], not {mask}")
    })
}
