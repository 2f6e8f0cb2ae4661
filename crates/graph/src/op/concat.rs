use super::{Rule, exactly, expect};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `a` followed by `b` along one dimension: `y[i] = a[i]` if `i[dimension] < a.size`, else `b[i - a.size]` there.
///
/// Inputs: `a` and `b` of one type without blocks, whose sizes differ in that dimension only. Output: that type.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Concat {
    /// From 0 to 3.
    pub dimension: usize,
}

impl Rule for Concat {
    const NAMES: &'static [&'static str] = &["concat"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [a, b] = exactly(inputs)?;
        expect(self.dimension < 4, || format!("dimensions are 0 to 3, not {}", self.dimension))?;
        expect(a.dtype == b.dtype && !a.dtype.is_quantized(), || {
            format!("a {a} and b {b} must have one type, and one without blocks")
        })?;
        let (mut sizes, mut rest) = (a.shape.sizes(), b.shape.sizes());
        rest[self.dimension] = sizes[self.dimension];
        expect(sizes == rest, || format!("a {a} and b {b} may differ in dimension {} only", self.dimension))?;
        sizes[self.dimension] = sizes[self.dimension].saturating_add(b.shape[self.dimension]);
        Ok(TensorType::new(a.dtype, &sizes))
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32] {
            for dimension in 0..4 {
                for (a, size) in [([1, 1, 1, 1], 1), ([33, 7, 1, 1], 31), ([5, 3, 4, 2], 1), ([5, 3, 4, 2], 0)] {
                    let mut b = a;
                    b[dimension] = size;
                    let input = |sizes: [usize; 4]| (TensorType::new(dtype, &sizes), Fill::Integers(-500, 500));
                    cases.push(Case::probe(Concat { dimension }, &[input(a), input(b)]));
                }
            }
        }
        for dimension in [0, 1] {
            let input = (TensorType::new(DType::F32, &[2048, 64]), Fill::Normal(1.0));
            cases.push(Case::new(Concat { dimension }, &[input, input]));
        }
        cases
    }
}
