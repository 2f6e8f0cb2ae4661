use super::{Rule, exactly, expect, is_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// A copy of `a` in which the block at `start` is replaced by `b`, or `b` is added to it: `y[start + i] = b[i]` or
/// `a[start + i] + b[i]`, elsewhere `y = a`.
///
/// Inputs: `a` and `b` of one type, for `acc` an activation and for `set` any without blocks; `b` must lie inside `a`.
/// Output: a copy, of the same type and shape as `a`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Overlay {
    /// Whether `b` replaces or is added.
    pub how: Overlaying,
    /// Index in `a` of the first element of `b`.
    pub start: [usize; 4],
}

/// Whether `b` replaces elements of `a` or is added to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlaying {
    /// `b` replaces them.
    Set,
    /// `b` is added to them.
    Acc,
}

impl Rule for Overlay {
    const NAMES: &'static [&'static str] = &["set", "acc"];

    fn name(&self) -> &'static str {
        match self.how {
            Overlaying::Set => "set",
            Overlaying::Acc => "acc",
        }
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [a, b] = exactly(inputs)?;
        expect(a.dtype == b.dtype && !a.dtype.is_quantized(), || {
            format!("a {a} and b {b} must have one type, and one without blocks")
        })?;
        expect(self.how == Overlaying::Set || is_activation(&a), || format!("sums are f32 or f64, not {}", a.dtype))?;
        let inside = |d: usize| self.start[d].checked_add(b.shape[d]).is_some_and(|end| end <= a.shape[d]);
        expect((0..4).all(inside), || format!("b {b} at {:?} is outside a {a}", self.start))?;
        Ok(a)
    }

    fn cases() -> Vec<Case> {
        let places = [
            ([31, 1, 1, 1], [7, 1, 1, 1], [24, 0, 0, 0]),
            ([33, 7, 1, 1], [33, 7, 1, 1], [0; 4]),
            ([33, 7, 1, 1], [5, 3, 1, 1], [28, 4, 0, 0]),
            ([5, 4, 3, 2], [1, 4, 2, 1], [2, 0, 1, 1]),
            ([5, 4, 3, 2], [0, 4, 3, 2], [5, 0, 0, 0]),
            ([257, 33, 1, 1], [257, 1, 1, 1], [0, 31, 0, 0]),
        ];
        let mut cases = Vec::new();
        for (a, b, start) in places {
            for (how, dtype) in [
                (Overlaying::Set, DType::F32),
                (Overlaying::Set, DType::F16),
                (Overlaying::Set, DType::Bf16),
                (Overlaying::Set, DType::I32),
                (Overlaying::Acc, DType::F32),
            ] {
                let typed = |sizes: &[usize], fill| (TensorType::new(dtype, sizes), fill);
                let integers = Fill::Integers(-500, 500);
                cases.push(Case::probe(Overlay { how, start }, &[typed(&a, integers), typed(&b, integers)]));
                if dtype != DType::I32 {
                    let fills = [typed(&a, Fill::Normal(1.0)), typed(&b, Fill::Uniform(-3.0, 3.0))];
                    cases.push(Case::new(Overlay { how, start }, &fills));
                }
            }
        }
        for how in [Overlaying::Set, Overlaying::Acc] {
            let typed = |sizes| (TensorType::new(DType::F32, sizes), Fill::Normal(1.0));
            cases.push(Case::new(Overlay { how, start: [1024, 32, 0, 0] }, &[typed(&[2048, 64]), typed(&[1024, 32])]));
        }
        cases
    }
}
