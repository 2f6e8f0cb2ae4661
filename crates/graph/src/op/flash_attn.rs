use super::soft_max::{expect_mask, expect_max_bias};
use super::{Rule, expect, expect_multiplied, is_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[d, h, t] = sum_j v[d, j, g] p_j` with `p = softmax(s)` over `s_j = cap(scale sum_i k[i, j, g] q[i, t, h]) +
/// slope_h mask[j, t]` and `g = h / (heads / kv heads)`: attention in one operator, for each batch by itself. `cap(a) =
/// softcap tanh(a / softcap)`, or `a` where `softcap` is 0. A position whose mask is -inf weighs exactly 0; a token
/// that attends to no position gives all 0.
///
/// Inputs: `q` an activation or f16 `[D, tokens, heads, batch]`, `k` `[D, positions, kv heads, batch]` and `v` `[E,
/// positions, kv heads, batch]`, f32 or f16, and, optional, `mask` f32 or f16 `[positions, tokens, ...]`, repeated
/// along the two outer dimensions. Output: `[E, heads, tokens, batch]` of the type of `q`, f32 for f16. Source: Dao et
/// al. 2022 ("FlashAttention"); the cap: Gemma Team 2024.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct FlashAttn {
    /// Multiplies the scores: `1 / sqrt(D)` as a rule.
    pub scale: f32,
    /// As in [`SoftMax`](super::SoftMax::max_bias).
    #[serde(default)]
    pub max_bias: f32,
    /// Scores stay between this and its negative; 0 for no limit.
    #[serde(default)]
    pub softcap: f32,
}

impl Rule for FlashAttn {
    const NAMES: &'static [&'static str] = &["flash_attn"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let (q, k, v, mask) = match inputs {
            [q, k, v] => (q, k, v, None),
            [q, k, v, mask] => (q, k, v, Some(mask)),
            others => return Err(format!("takes 3 or 4 inputs, got {}", others.len())),
        };
        expect_multiplied("q", q)?;
        for (what, ty) in [("k", k), ("v", v)] {
            expect(ty.dtype.is_float(), || format!("{what} must be floating point, not {}", ty.dtype))?;
        }
        expect(k.shape[0] == q.shape[0], || format!("k has rows of {}, q of {}", k.shape[0], q.shape[0]))?;
        expect(v.shape.sizes()[1..] == k.shape.sizes()[1..], || {
            format!("v {} must have the positions, heads and batches of k {}", v.shape, k.shape)
        })?;
        let [_, tokens, heads, batch] = q.shape.sizes();
        let [_, positions, kv_heads, kv_batch] = k.shape.sizes();
        expect(kv_heads > 0 && heads.is_multiple_of(kv_heads) && kv_batch == batch, || {
            format!("{heads} heads of {batch} batches do not share k {} evenly", k.shape)
        })?;
        expect_max_bias(self.max_bias, mask)?;
        let softcap = self.softcap;
        expect(softcap.is_finite() && softcap >= 0.0, || {
            format!("softcap must be finite and not negative, not {softcap}")
        })?;
        if let Some(mask) = mask {
            expect_mask(mask, [positions, tokens, heads, batch])?;
        }
        let dtype = if is_activation(q) { q.dtype } else { DType::F32 };
        Ok(TensorType::new(dtype, &[v.shape[0], heads, tokens, batch]))
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let plain = FlashAttn { scale: 0.125, max_bias: 0.0, softcap: 0.0 };
        for kv in [DType::F32, DType::F16] {
            for shape in SHAPES {
                for op in [
                    plain,
                    FlashAttn { scale: 0.3, softcap: 30.0, ..plain },
                    FlashAttn { max_bias: 8.0, ..plain },
                    FlashAttn { max_bias: 8.0, softcap: 5.0, ..plain },
                ] {
                    cases.push(case(op, kv, DType::F32, shape, DType::F16));
                }
                cases.push(case(plain, kv, DType::F16, shape, DType::F32));
                cases.push(Case {
                    inputs: case(plain, kv, DType::F32, shape, DType::F32).inputs[..3].to_vec(),
                    ..Case::new(plain, &[])
                });
            }
            let unseen = case(plain, kv, DType::F32, [16, 16, 5, 4, 2, 2, 1], DType::F32);
            let mut inputs = unseen.inputs;
            inputs[3].1 = Fill::Causal(-2);
            cases.push(Case::new(plain, &inputs));
        }
        cases.push(case(plain, DType::F16, DType::F32, [128, 128, 1024, 1, 32, 8, 1], DType::F16));
        cases.push(case(plain, DType::F16, DType::F32, [64, 64, 300, 65, 8, 2, 1], DType::F16));
        cases
    }
}

/// `[D, E, positions, tokens, heads, kv heads, batch]`.
const SHAPES: [[usize; 7]; 8] = [
    [1, 1, 1, 1, 1, 1, 1],
    [31, 33, 65, 3, 4, 2, 1],
    [64, 64, 33, 7, 6, 3, 2],
    [40, 40, 257, 1, 8, 1, 1],
    [128, 64, 100, 9, 3, 3, 1],
    [16, 16, 64, 0, 2, 2, 1],
    [33, 31, 0, 2, 4, 2, 1],
    [64, 64, 0, 9, 4, 2, 1],
];

fn case(op: FlashAttn, kv: DType, q: DType, shape: [usize; 7], mask: DType) -> Case {
    let [d, e, positions, tokens, heads, kv_heads, batch] = shape;
    let first = positions as i32 - tokens as i32;
    let fill = if op.max_bias > 0.0 { Fill::Distances(first) } else { Fill::Causal(first) };
    Case::new(
        op,
        &[
            (TensorType::new(q, &[d, tokens, heads, batch]), Fill::Normal(1.5)),
            (TensorType::new(kv, &[d, positions, kv_heads, batch]), Fill::Normal(1.0)),
            (TensorType::new(kv, &[e, positions, kv_heads, batch]), Fill::Normal(1.0)),
            (TensorType::new(mask, &[positions, tokens]), fill),
        ],
    )
}
