use super::{Rule, exactly, expect, expect_activation};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};

/// `y[m, n] = sum_k w[k, m] x[k, n]`: a weight matrix applied to each token.
///
/// Inputs: `w` `[K, M]` of any stored type, `x` an activation `[K, N]`. Output: `[M, N]` of the type of `x`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct MulMat;

impl Rule for MulMat {
    const NAMES: &'static [&'static str] = &["mul_mat"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [w, x] = exactly(inputs)?;
        expect_activation("x", &x)?;
        expect(w.shape.rows() == w.shape[1], || format!("w must be a matrix, not {w}"))?;
        expect(x.shape.rows() == x.shape[1], || format!("x must be a matrix, not {x}"))?;
        expect(w.shape[0] == x.shape[0], || {
            format!("w has rows of {}, x of {}: they must be as long", w.shape[0], x.shape[0])
        })?;
        Ok(TensorType::new(x.dtype, &[w.shape[1], x.shape[1]]))
    }
}
