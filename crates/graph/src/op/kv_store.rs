use super::{Rule, exactly, expect, expect_activation, expect_indices};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

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

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in [DType::F32, DType::F16] {
            for [width, context, sequences, tokens] in [
                [1, 1, 1, 1],
                [31, 33, 1, 7],
                [64, 64, 3, 1],
                [257, 16, 2, 32],
                [96, 100, 5, 33],
                [32, 64, 2, 0],
                [1024, 256, 4, 17],
            ] {
                for fill in [Fill::Normal(1.0), Fill::Normal(3e-6), Fill::Integers(-2048, 2048)] {
                    let cache = (TensorType::new(dtype, &[width, context, sequences]), Fill::Normal(1.0));
                    let x = (TensorType::new(DType::F32, &[width, tokens]), fill);
                    let rows = Fill::Distinct((context * sequences) as i32);
                    let inputs = [cache, x, (TensorType::new(DType::I32, &[tokens]), rows)];
                    let probe = matches!(fill, Fill::Integers(..));
                    cases.push(Case { probe, ..Case::new(KvStore, &inputs) });
                }
            }
        }
        cases
    }
}
