use super::{Rule, exactly, expect, expect_activation};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};

/// `y[i] = x[i] / sqrt(mean(x^2) + epsilon) * w[i]`, for each innermost row by itself.
///
/// Inputs: `x` an activation `[n, ...]` (`[width, tokens]`, or `[head size, heads, tokens]` for the norm of heads), `w` `[n]`. Output: the type
/// of `x`. Source: Zhang and Sennrich 2019, equation 4.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct RmsNorm {
    /// Added to the mean of squares; positive.
    pub epsilon: f32,
}

impl Rule for RmsNorm {
    const NAMES: &'static [&'static str] = &["rms_norm"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x, w] = exactly(inputs)?;
        expect_activation("x", &x)?;
        expect(w.dtype.is_float() && w.shape == Shape::new(&[x.shape[0]]), || {
            format!("w must be floating point and [{}], not {w}", x.shape[0])
        })?;
        expect(self.epsilon > 0.0, || format!("epsilon must be positive, not {}", self.epsilon))?;
        Ok(x)
    }
}
