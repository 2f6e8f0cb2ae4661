use super::{Rule, exactly, expect};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// A contiguous copy of `x` in another type; ggml's `dup` and `cont` are the cast to the type of `x`.
///
/// Input: `x` of a floating-point type, i32, i64 or a block type. Output: the same shape in type `to`: floating point
/// is rounded once, to nearest, ties to even; integers are truncated toward zero, saturated if out of range, and 0 for
/// NaN; for block types, each row is rounded to f32 and encoded by the reference rule of its type.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cast {
    /// The type of the output.
    pub to: DType,
}

impl Rule for Cast {
    const NAMES: &'static [&'static str] = &["cpy"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x] = exactly(inputs)?;
        for dtype in [x.dtype, self.to] {
            let known = matches!(dtype, DType::I32 | DType::I64) || dtype.codec().is_some();
            expect(known, || format!("this version has no codec for {dtype}"))?;
            let divides = x.shape[0].is_multiple_of(dtype.block_len());
            expect(divides, || format!("blocks of {dtype} do not divide rows of {}", x.shape[0]))?;
        }
        Ok(TensorType { dtype: self.to, shape: x.shape })
    }

    fn cases() -> Vec<Case> {
        use DType::{Bf16, F16, F32, I32, I64, Q4_0, Q8_0};
        let types = [F32, F16, Bf16, I32, I64, Q4_0, Q8_0];
        let mut cases = Vec::new();
        for from in types {
            for to in types {
                let blocks = from.is_quantized() || to.is_quantized();
                let shapes: [&[usize]; 4] = if blocks {
                    [&[32], &[96, 3], &[64, 0], &[32, 3, 2, 2]]
                } else {
                    [&[1], &[31, 3], &[33, 0], &[7, 3, 2, 2]]
                };
                let fill =
                    if matches!(from, I32 | I64) { Fill::Integers(-100_000, 100_000) } else { Fill::Normal(30.0) };
                cases.extend(shapes.map(|sizes| Case::new(Cast { to }, &[(TensorType::new(from, sizes), fill)])));
            }
        }
        for to in types {
            let zeros = TensorType::new(F32, &[64, 2]);
            cases.push(Case::probe(Cast { to }, &[(zeros, Fill::Constant(0.0))]));
            cases.push(Case::new(Cast { to }, &[(TensorType::new(F32, &[2048, 64]), Fill::Uniform(-6.0, 6.0))]));
        }
        cases
    }
}
