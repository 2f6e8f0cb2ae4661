use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// The short convolution along time in front of a state space model, each channel by itself:
/// `y[c, t, s] = sum_k x[t + k, c, s] w[k, c]`.
///
/// Inputs: `x` an activation `[taps - 1 + tokens, channels, sequences]`, starting with the last `taps - 1` inputs of
/// the previous tokens; `w` floating point `[taps, channels]`. Output: `[channels, tokens, sequences]` of the type of
/// `x`. Source: Gu and Dao 2023, section 3.4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SsmConv;

impl Rule for SsmConv {
    const NAMES: &'static [&'static str] = &["ssm_conv"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x, w] = exactly(inputs)?;
        expect_activation("x", &x)?;
        let [len, channels, sequences, one] = x.shape.sizes();
        expect(w.dtype.is_float() && w.shape == Shape::new(&[w.shape[0], channels]), || {
            format!("w must be floating point and [taps, {channels}], not {w}")
        })?;
        expect(one == 1 && w.shape[0] >= 1 && len + 1 >= w.shape[0], || {
            format!("x must be [taps - 1 + tokens, channels, sequences] for the {} taps of w, not {x}", w.shape[0])
        })?;
        Ok(TensorType::new(x.dtype, &[channels, len + 1 - w.shape[0], sequences]))
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for taps in [1, 2, 4, 7] {
            for (tokens, channels, sequences) in
                [(1, 1, 1), (1, 33, 2), (31, 5, 1), (7, 257, 3), (0, 4, 1), (3, 0, 1), (64, 1536, 1)]
            {
                let x = TensorType::new(DType::F32, &[taps - 1 + tokens, channels, sequences]);
                for dtype in [DType::F32, DType::F16] {
                    let w = TensorType::new(dtype, &[taps, channels]);
                    cases.push(Case::new(SsmConv, &[(x, Fill::Normal(1.0)), (w, Fill::Normal(0.5))]));
                    cases.push(Case::probe(SsmConv, &[(x, Fill::Integers(-9, 9)), (w, Fill::Integers(-5, 5))]));
                }
            }
        }
        cases
    }
}
