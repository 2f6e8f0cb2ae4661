use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

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

    fn cases() -> Vec<Case> {
        let shapes: [(&[usize], &[usize]); 14] = [
            (&[1], &[1]),
            (&[31], &[31]),
            (&[33, 7], &[33, 7]),
            (&[257, 3], &[257]),
            (&[257, 3], &[1]),
            (&[64, 5], &[32, 5]),
            (&[33, 6, 4], &[33, 3]),
            (&[33, 6, 4], &[33, 1, 2]),
            (&[5, 6, 4, 2], &[5, 6, 4, 2]),
            (&[5, 6, 4, 2], &[1, 2, 4, 1]),
            (&[0], &[1]),
            (&[16, 0], &[16]),
            (&[2048, 64], &[2048]),
            (&[8192, 33], &[8192, 33]),
        ];
        let mut cases = Vec::new();
        for (a, b) in shapes {
            for dtype in [DType::F32, DType::F16, DType::Bf16] {
                let (a, b) = (TensorType::new(DType::F32, a), TensorType::new(dtype, b));
                cases.push(Case::new(Add, &[(a, Fill::Normal(1.0)), (b, Fill::Normal(1.0))]));
                cases.push(Case::probe(Add, &[(a, Fill::Integers(-1000, 1000)), (b, Fill::Integers(-100, 100))]));
            }
        }
        cases
    }
}
