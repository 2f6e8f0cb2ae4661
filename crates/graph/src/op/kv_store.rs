use super::{Rule, exactly, expect, expect_activation, expect_indices};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};

/// `cache[:, rows[t]] = x[:, t]`, rounded to the type of the cache: keys or values of new tokens enter the KV cache.
///
/// Inputs: `cache` a state `[head size * kv heads, context, sequences]`, `x` an activation `[head size * kv heads, tokens]`, `rows` i32
/// `[tokens]` (see [`Input::KvRows`](crate::Input::KvRows)). Output: the cache itself, written in place.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct KvStore;

impl Rule for KvStore {
    const NAMES: &'static [&'static str] = &["kv_store"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [cache, x, rows] = exactly(inputs)?;
        expect_activation("x", &x)?;
        expect(cache.dtype.is_float(), || format!("the cache must be floating point, not {}", cache.dtype))?;
        expect(cache.shape[0] == x.shape[0], || {
            format!("the cache has rows of {}, x of {}: they must be as long", cache.shape[0], x.shape[0])
        })?;
        expect_indices("rows", &rows, x.shape[1])?;
        Ok(cache)
    }
}
