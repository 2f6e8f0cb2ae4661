use super::kv_store::attention_sizes;
use super::{Rule, exactly, expect, expect_activation, expect_cache, expect_indices};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[j, t, h] = sum_d K[d, h / (heads / kv heads), j] q[d, h, t]` over the keys `K` of the sequence of token `t`: the
/// attention score of each token for each cached position.
///
/// Inputs: `q` an activation `[head size, heads, tokens]`, `keys` the cache `[head size * kv heads, context,
/// sequences]`, floating point or `q8_0` with whole blocks in a head, `sequences` i32 `[tokens]`. Output: `[capacity,
/// tokens, heads]` of the type of `q`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct KvScores {
    /// Positions to read: the valid length of the longest sequence, rounded up to the unit of plans, and at most the
    /// rows of the cache.
    pub capacity: usize,
}

impl Rule for KvScores {
    const NAMES: &'static [&'static str] = &["kv_scores"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [q, keys, sequences] = exactly(inputs)?;
        expect_activation("q", &q)?;
        let [head_size, heads, tokens, _] = q.shape.sizes();
        expect_cache("keys", &keys, ("heads", head_size))?;
        let kv_heads = keys.shape[0] / head_size;
        expect(kv_heads > 0 && keys.shape[0].is_multiple_of(head_size) && heads.is_multiple_of(kv_heads), || {
            format!("{heads} heads of {head_size} do not share rows of {} keys evenly", keys.shape[0])
        })?;
        expect(self.capacity > 0 && self.capacity <= keys.shape[1], || {
            format!("capacity {} must be between 1 and the context {}", self.capacity, keys.shape[1])
        })?;
        expect_indices("sequences", &sequences, tokens)?;
        Ok(TensorType::new(q.dtype, &[self.capacity, tokens, heads]))
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in [DType::F32, DType::F16, DType::Q8_0] {
            for [size, heads, kv_heads, tokens, capacity, context, sequences] in attention_sizes(dtype) {
                let fills = [(Fill::Normal(1.0), false), (Fill::Integers(-15, 15), true)];
                // Blocks hold integers with an error.
                for (fill, probe) in fills.into_iter().filter(|(_, probe)| !(*probe && dtype.is_quantized())) {
                    let q = (TensorType::new(DType::F32, &[size, heads, tokens]), fill);
                    let keys = (TensorType::new(dtype, &[size * kv_heads, context, sequences]), fill);
                    let own = (TensorType::new(DType::I32, &[tokens]), Fill::Integers(0, sequences as i32 - 1));
                    cases.push(Case { probe, ..Case::new(KvScores { capacity }, &[q, keys, own]) });
                }
            }
        }
        cases
    }
}
