use super::{Rule, exactly, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[j, i] = value` on one side of the diagonal `j = past + i`, elsewhere `x[j, i]`; for each matrix of the two
/// innermost dimensions by itself.
///
/// Inputs: `x` an activation `[positions, tokens, ...]`. Output: the type of `x`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct DiagMask {
    /// Which side is overwritten.
    pub triangle: Triangle,
    /// Tokens before the first one of `x`.
    pub past: usize,
    /// What is written there: -inf before a softmax, 0 after one.
    #[serde(with = "crate::infinite")]
    pub value: f32,
}

/// A side of the diagonal, without the diagonal itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Triangle {
    /// `j > past + i`: positions after the token.
    Upper,
    /// `j < past + i`.
    Lower,
}

impl Rule for DiagMask {
    const NAMES: &'static [&'static str] = &["diag_mask"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x] = exactly(inputs)?;
        expect_activation("x", &x)?;
        Ok(x)
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for triangle in [Triangle::Upper, Triangle::Lower] {
            for value in [f32::NEG_INFINITY, 0.0, -65504.0] {
                for (sizes, past) in [
                    (&[1][..], 0),
                    (&[33, 31], 0),
                    (&[31, 33], 5),
                    (&[257, 7, 3], 250),
                    (&[64, 8, 2, 3], 56),
                    (&[5, 9], 40),
                    (&[0, 3], 0),
                    (&[7, 0], 2),
                ] {
                    let x = (TensorType::new(DType::F32, sizes), Fill::Normal(3.0));
                    cases.push(Case::new(DiagMask { triangle, past, value }, &[x]));
                }
            }
        }
        let layer = (TensorType::new(DType::F32, &[512, 512, 8]), Fill::Normal(1.0));
        cases.push(Case::new(DiagMask { triangle: Triangle::Upper, past: 0, value: f32::NEG_INFINITY }, &[layer]));
        cases
    }
}
