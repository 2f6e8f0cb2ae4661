use super::{Rule, exactly, expect, expect_activation};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[j] = exp(s_j - max s) / sum_k exp(s_k - max s)` with `s_j = scale x[j] + mask[j]`, for each innermost row by itself. Where the mask is
/// -inf the result is exactly 0; a row without any other is all 0.
///
/// Inputs: `x` an activation `[capacity, tokens, heads]`, `mask` f32 `[capacity, tokens]`, the same for all heads. Output: the type of `x`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SoftMax {
    /// Multiplies the scores: `1 / sqrt(head size)` as a rule.
    pub scale: f32,
}

impl Rule for SoftMax {
    const NAMES: &'static [&'static str] = &["soft_max"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x, mask] = exactly(inputs)?;
        expect_activation("x", &x)?;
        let wanted = Shape::new(&[x.shape[0], x.shape[1]]);
        expect(mask.dtype == DType::F32 && mask.shape == wanted, || format!("mask must be f32{wanted}, not {mask}"))?;
        Ok(x)
    }
}
