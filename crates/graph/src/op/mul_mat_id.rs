use super::mul_mat::{RANDOM_BLOCKS, WEIGHTS};
use super::{Rule, exactly, expect, expect_multiplied, is_activation};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[m, u, t] = sum_k w[k, m, ids[u, t]] x[k, u, t]`: for each token the matrices of the experts that it uses.
///
/// Inputs: `w` `[K, M, experts]` of any stored type, `x` `[K, used, tokens]` an activation or f16, or `[K, 1, tokens]`
/// if all experts of a token have the same input, `ids` i32 `[used, tokens]`. Output: `[M, used, tokens]` of the type
/// of `x`, f32 for f16.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct MulMatId;

impl Rule for MulMatId {
    const NAMES: &'static [&'static str] = &["mul_mat_id"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [w, x, ids] = exactly(inputs)?;
        expect_multiplied("x", &x)?;
        expect(w.shape[0] == x.shape[0], || {
            format!("w has rows of {}, x of {}: their lengths must be equal", w.shape[0], x.shape[0])
        })?;
        let [used, tokens, ..] = ids.shape.sizes();
        expect(ids.dtype == DType::I32 && ids.shape == Shape::new(&[used, tokens]), || {
            format!("ids must be i32[used, tokens], not {ids}")
        })?;
        expect(w.shape[3] == 1, || format!("w must be a stack of matrices, one for each expert, not {w}"))?;
        let fits = x.shape[2] == tokens && x.shape[3] == 1 && (x.shape[1] == used || x.shape[1] == 1);
        expect(fits, || format!("x must be [{0}, {used}, {tokens}] or [{0}, 1, {tokens}], not {x}", w.shape[0]))?;
        let dtype = if is_activation(&x) { x.dtype } else { DType::F32 };
        Ok(TensorType::new(dtype, &[w.shape[1], used, tokens]))
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for (dtype, codes) in WEIGHTS {
            for (k, m, experts, used, tokens) in
                [(32, 1, 1, 1, 1), (64, 31, 4, 2, 3), (256, 33, 8, 2, 9), (96, 13, 5, 5, 1), (128, 16, 3, 1, 17)]
            {
                for seen in [1, used] {
                    let x = (TensorType::new(DType::F32, &[k, seen, tokens]), Fill::Normal(1.0));
                    cases.push(case(dtype, [k, m, experts], Fill::Normal(0.02), x, used, false));
                }
            }
            let half = (TensorType::new(DType::F16, &[64, 2, 3]), Fill::Normal(1.0));
            cases.push(case(dtype, [64, 31, 4], Fill::Normal(0.02), half, 2, false));
            let codes = codes.map_or(Fill::Integers(-8, 8), |(low, high)| Fill::Codes(low, high));
            let x = (TensorType::new(DType::F32, &[256, 2, 7]), Fill::Codes(-127, 127));
            cases.push(case(dtype, [256, 19, 6], codes, x, 2, true));
        }
        for dtype in RANDOM_BLOCKS {
            for (k, m, experts, used, tokens) in [(256, 31, 4, 2, 3), (512, 13, 5, 3, 9)] {
                let x = (TensorType::new(DType::F32, &[k, used, tokens]), Fill::Normal(1.0));
                cases.push(case(dtype, [k, m, experts], Fill::Blocks(0.01), x, used, false));
            }
        }
        for (dtype, k) in [(DType::F32, 33), (DType::F16, 257), (DType::Bf16, 31), (DType::F32, 0)] {
            let x = (TensorType::new(DType::F32, &[k, 3, 2]), Fill::Normal(1.0));
            cases.push(case(dtype, [k, 7, 4], Fill::Normal(0.02), x, 3, false));
            let none = (TensorType::new(DType::F32, &[k, 1, 0]), Fill::Normal(1.0));
            cases.push(case(dtype, [k, 7, 4], Fill::Normal(0.02), none, 3, false));
        }
        let x = (TensorType::new(DType::F32, &[2048, 1, 8]), Fill::Normal(1.0));
        cases.push(case(DType::Q4_0, [2048, 768, 32], Fill::Normal(0.02), x, 8, false));
        cases
    }
}

fn case(dtype: DType, w: [usize; 3], fill: Fill, x: (TensorType, Fill), used: usize, probe: bool) -> Case {
    let ids = TensorType::new(DType::I32, &[used, x.0.shape[2]]);
    let weights = (TensorType::new(dtype, &w), fill);
    Case { probe, ..Case::new(MulMatId, &[weights, x, (ids, Fill::Integers(0, w[2] as i32 - 1))]) }
}
