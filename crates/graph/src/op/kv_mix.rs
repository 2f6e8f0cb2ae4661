use super::{Rule, exactly, expect, expect_activation, expect_indices};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};

/// `y[d + head size * h, t] = sum_j V[d, h / (heads / kv heads), j] p[j, t, h]` over the values `V` of the sequence of token `t`: the cached
/// values, weighed by attention, heads side by side.
///
/// Inputs: `p` an activation `[capacity, tokens, heads]`, `values` the cache `[head size * kv heads, context, sequences]`, `sequences` i32
/// `[tokens]`. Output: `[head size * heads, tokens]` of the type of `p`.
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
        expect(values.dtype.is_float(), || format!("values must be floating point, not {}", values.dtype))?;
        let width = values.shape[0];
        expect(
            self.kv_heads > 0 && width.is_multiple_of(self.kv_heads) && heads.is_multiple_of(self.kv_heads),
            || format!("{heads} heads do not share rows of {width} values in {} heads evenly", self.kv_heads),
        )?;
        expect(capacity <= values.shape[1], || {
            format!("capacity {capacity} is more than the context {}", values.shape[1])
        })?;
        expect_indices("sequences", &sequences, tokens)?;
        Ok(TensorType::new(p.dtype, &[width / self.kv_heads * heads, tokens]))
    }
}
