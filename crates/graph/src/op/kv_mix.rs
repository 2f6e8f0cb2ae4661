use super::kv_store::attention_sizes;
use super::{Rule, exactly, expect, expect_activation, expect_cache, expect_indices};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[d + head size * h, t] = sum_j V[d, h / (heads / kv heads), j] p[j, t, h]` over the values `V` of the sequence of
/// token `t`: the cached values, weighted by attention, heads side by side.
///
/// Inputs: `p` an activation `[capacity, tokens, heads]`, `values` the cache `[head size * kv heads, context,
/// sequences]`, floating point or `q8_0` with whole blocks in a head, `sequences` i32 `[tokens]`. Output: `[head size *
/// heads, tokens]` of the type of `p`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct KvMix {
    /// Heads of the cache; divides the heads of `p`.
    pub kv_heads: usize,
}

impl Rule for KvMix {
    const NAMES: &'static [&'static str] = &["kv_mix"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [p, values, sequences] = exactly(inputs)?;
        expect_activation("p", &p)?;
        let [capacity, tokens, heads, _] = p.shape.sizes();
        let width = values.shape[0];
        expect(
            self.kv_heads > 0 && width.is_multiple_of(self.kv_heads) && heads.is_multiple_of(self.kv_heads),
            || format!("{heads} heads do not share rows of {width} values in {} heads evenly", self.kv_heads),
        )?;
        expect_cache("values", &values, ("heads", width / self.kv_heads))?;
        expect(capacity <= values.shape[1], || {
            format!("capacity {capacity} is more than the context {}", values.shape[1])
        })?;
        expect_indices("sequences", &sequences, tokens)?;
        Ok(TensorType::new(p.dtype, &[width / self.kv_heads * heads, tokens]))
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in [DType::F32, DType::F16, DType::Q8_0] {
            for [size, heads, kv_heads, tokens, capacity, context, sequences] in attention_sizes(dtype) {
                let fills =
                    [(Fill::Uniform(0.0, 0.1), false), (Fill::Normal(1.0), false), (Fill::Integers(-15, 15), true)];
                // Blocks hold integers with an error.
                for (fill, probe) in fills.into_iter().filter(|(_, probe)| !(*probe && dtype.is_quantized())) {
                    let p = (TensorType::new(DType::F32, &[capacity, tokens, heads]), fill);
                    let values = if probe { fill } else { Fill::Normal(1.0) };
                    let values = (TensorType::new(dtype, &[size * kv_heads, context, sequences]), values);
                    let own = (TensorType::new(DType::I32, &[tokens]), Fill::Integers(0, sequences as i32 - 1));
                    cases.push(Case { probe, ..Case::new(KvMix { kv_heads }, &[p, values, own]) });
                }
            }
        }
        cases
    }
}
