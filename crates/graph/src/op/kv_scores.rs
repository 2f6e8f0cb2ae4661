use super::{Rule, exactly, expect, expect_activation, expect_indices};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};

/// `y[j, t, h] = sum_d K[d, h / (heads / kv heads), j] q[d, h, t]` over the keys `K` of the sequence of token `t`: how much each token of
/// the batch looks at each cached position.
///
/// Inputs: `q` an activation `[head size, heads, tokens]`, `keys` the cache `[head size * kv heads, context, sequences]`, `sequences` i32
/// `[tokens]`. Output: `[capacity, tokens, heads]` of the type of `q`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct KvScores {
    /// Positions looked at: the valid length of the longest sequence, rounded up to the unit of plans.
    pub capacity: usize,
}

impl Rule for KvScores {
    const NAMES: &'static [&'static str] = &["kv_scores"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [q, keys, sequences] = exactly(inputs)?;
        expect_activation("q", &q)?;
        let [head_size, heads, tokens, _] = q.shape.sizes();
        expect(keys.dtype.is_float(), || format!("keys must be floating point, not {}", keys.dtype))?;
        let kv_heads = keys.shape[0] / head_size;
        expect(kv_heads > 0 && keys.shape[0].is_multiple_of(head_size) && heads.is_multiple_of(kv_heads), || {
            format!("{heads} heads of {head_size} do not share rows of {} keys evenly", keys.shape[0])
        })?;
        expect(self.capacity > 0 && self.capacity <= keys.shape[1], || {
            format!("capacity {} must lie between 1 and the context {}", self.capacity, keys.shape[1])
        })?;
        expect_indices("sequences", &sequences, tokens)?;
        Ok(TensorType::new(q.dtype, &[self.capacity, tokens, heads]))
    }
}
