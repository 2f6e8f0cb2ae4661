use super::{Rule, exactly, expect, expect_activation};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};

/// `y = a + b`; `b` is repeated along dimensions where its size divides the one of `a` (a bias, `[n]` to `[n, tokens]`).
///
/// Inputs: `a` an activation, `b` an activation or an f32 or f16 weight. Output: the type of `a`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Add;

impl Rule for Add {
    const NAMES: &'static [&'static str] = &["add"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [a, b] = exactly(inputs)?;
        expect_activation("a", &a)?;
        expect(b.dtype.is_float(), || format!("b must be floating point, not {}", b.dtype))?;
        expect(b.shape.repeats_to(&a.shape), || format!("b {} cannot be repeated to {}", b.shape, a.shape))?;
        Ok(a)
    }
}
