use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[i] = x[i] / sqrt(mean(x^2) + epsilon) * w[i]`, for each innermost row by itself.
///
/// Inputs: `x` an activation `[n, ...]` (`[width, tokens]`, or `[head size, heads, tokens]` for the norm of heads), `w`
/// `[n]`. Output: the type of `x`. Source: Zhang and Sennrich 2019, equation 4.
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

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for weights in [DType::F32, DType::F16, DType::Bf16] {
            for epsilon in [1e-5, 1e-6, 1e-2] {
                for sizes in [&[1][..], &[31, 2], &[33, 7], &[128, 5, 3], &[257, 1, 2, 3], &[2048, 9], &[1000, 33]] {
                    let w = (TensorType::new(weights, &sizes[..1]), Fill::Normal(1.0));
                    let x = (TensorType::new(DType::F32, sizes), Fill::Normal(3.0));
                    cases.push(Case::new(RmsNorm { epsilon }, &[x, w]));
                }
            }
        }
        let op = RmsNorm { epsilon: 1e-5 };
        let ones = |len| (TensorType::new(DType::F32, &[len]), Fill::Constant(1.0));
        // Numbers whose squares are below epsilon, one-sided ones, zeros, no rows, and the size of a real layer.
        for (sizes, fill) in [
            ([64, 3], Fill::Normal(1e-6)),
            ([64, 3], Fill::Uniform(90.0, 110.0)),
            ([33, 2], Fill::Constant(0.0)),
            ([33, 0], Fill::Normal(1.0)),
            ([0, 3], Fill::Normal(1.0)),
            ([8192, 64], Fill::Normal(1.0)),
        ] {
            cases.push(Case::new(op, &[(TensorType::new(DType::F32, &sizes), fill), ones(sizes[0])]));
        }
        cases
    }
}
