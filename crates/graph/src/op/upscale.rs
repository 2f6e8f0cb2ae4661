use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[i, j, c, b] = x[i / f_0, j / f_1, c / f_2, b / f_3]`, quotients rounded down: each element repeated, the nearest
/// one's value.
///
/// Input: `x`, an activation. Output: its type with each size multiplied by its factor. Nothing is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Upscale {
    /// How often each dimension's elements are repeated, innermost first; at least 1.
    pub factors: [usize; 4],
}

impl Rule for Upscale {
    const NAMES: &'static [&'static str] = &["upscale"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x] = exactly(inputs)?;
        expect_activation("x", &x)?;
        expect(self.factors.iter().all(|factor| *factor > 0), || {
            format!("factors must be at least 1, not {:?}", self.factors)
        })?;
        let elements = x.shape.sizes().iter().chain(&self.factors).try_fold(1usize, |all, size| all.checked_mul(*size));
        expect(elements.is_some_and(|elements| elements <= isize::MAX as usize / 8), || {
            format!("the number of elements of {x} times {:?} overflows", self.factors)
        })?;
        let sizes: Vec<usize> = x.shape.sizes().iter().zip(self.factors).map(|(size, factor)| size * factor).collect();
        Ok(TensorType::new(x.dtype, &sizes))
    }

    fn cases() -> Vec<Case> {
        let shapes: [&[usize]; 5] = [&[1], &[31, 3], &[7, 5, 3, 2], &[4, 0, 2], &[32, 32, 64]];
        let factors = [[1, 1, 1, 1], [2, 2, 1, 1], [3, 3, 1, 1], [5, 1, 1, 1], [1, 2, 3, 2]];
        let cases = shapes.into_iter().flat_map(|shape| factors.map(|factors| (shape, factors)));
        cases
            .map(|(shape, factors)| {
                Case::probe(Upscale { factors }, &[(TensorType::new(DType::F32, shape), Fill::Normal(1.0))])
            })
            .collect()
    }
}
