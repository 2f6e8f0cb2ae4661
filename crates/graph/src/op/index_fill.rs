use super::{Rule, exactly, expect};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `x` with one number at the given places of one dimension: `y[i] = value` where `i[dimension]` is among `index`, else
/// `x[i]`.
///
/// Inputs: `x` of a floating-point type or i32, `index` i32 `[n]`, each within the size of that dimension. Output: the
/// type of `x`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct IndexFill {
    /// From 0 to 3.
    pub dimension: usize,
    /// The number, rounded to the type of `x`.
    pub value: f32,
}

impl Rule for IndexFill {
    const NAMES: &'static [&'static str] = &["index_fill"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x, index] = exactly(inputs)?;
        expect(self.dimension < 4, || format!("dimensions are 0 to 3, not {}", self.dimension))?;
        expect(self.value.is_finite(), || format!("the number must be finite, not {}", self.value))?;
        let known = x.dtype.is_float() || x.dtype == DType::I32;
        expect(known, || format!("x must be floating point or i32, not {}", x.dtype))?;
        expect(index.dtype == DType::I32 && index.shape.rows() == 1, || format!("index must be i32[n], not {index}"))?;
        Ok(x)
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32] {
            for dimension in 0..4 {
                for (sizes, value) in [([7, 1, 1, 1], 5.0), ([33, 31, 1, 1], -2.0), ([5, 4, 3, 2], 0.0)] {
                    for count in [0, 1, sizes[dimension] / 2] {
                        let x = (TensorType::new(dtype, &sizes), Fill::Integers(-99, 99));
                        let index = (TensorType::new(DType::I32, &[count]), Fill::Distinct(sizes[dimension] as i32));
                        cases.push(Case::probe(IndexFill { dimension, value }, &[x, index]));
                    }
                }
            }
        }
        let x = (TensorType::new(DType::F32, &[2048, 64]), Fill::Normal(1.0));
        for (dimension, count) in [(0, 257), (1, 31)] {
            let index = (TensorType::new(DType::I32, &[count]), Fill::Integers(0, 63));
            cases.push(Case::new(IndexFill { dimension, value: 0.1 }, &[x, index]));
        }
        cases
    }
}
