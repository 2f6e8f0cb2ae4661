use super::{Rule, exactly, expect, expect_activation, expect_cache, expect_indices};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `cache[:, rows[t]] = x[:, t]`, rounded to the type of the cache: keys or values of new tokens enter the KV cache.
/// Rows of `q8_0` are what the reference rule of that type makes of them.
///
/// Inputs: `cache` a state `[head size * kv heads, context, sequences]`, floating point or `q8_0`, `x` an activation
/// `[head size * kv heads, tokens]`, `rows` i32 `[tokens]` (see [`Input::KvRows`](crate::Input::KvRows) and
/// `KvRowsWindow`). Output: the cache itself, written in place.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct KvStore;

impl Rule for KvStore {
    const NAMES: &'static [&'static str] = &["kv_store"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [cache, x, rows] = exactly(inputs)?;
        expect_activation("x", &x)?;
        expect_cache("cached elements", &cache, ("rows", cache.shape[0]))?;
        expect(cache.shape[0] == x.shape[0], || {
            format!("the cache has rows of {}, x of {}: their lengths must be equal", cache.shape[0], x.shape[0])
        })?;
        expect_indices("rows", &rows, x.shape[1])?;
        Ok(cache)
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in [DType::F32, DType::F16, DType::Q8_0] {
            let shapes = [
                [1, 1, 1, 1],
                [31, 33, 1, 7],
                [64, 64, 3, 1],
                [257, 16, 2, 32],
                [96, 100, 5, 33],
                [32, 64, 2, 0],
                [1024, 256, 4, 17],
            ];
            let whole = |[width, ..]: &[usize; 4]| width.is_multiple_of(dtype.block_len());
            for [width, context, sequences, tokens] in shapes.into_iter().filter(whole) {
                for fill in [Fill::Normal(1.0), Fill::Normal(3e-6), Fill::Integers(-2048, 2048)] {
                    let cache = (TensorType::new(dtype, &[width, context, sequences]), Fill::Normal(1.0));
                    let x = (TensorType::new(DType::F32, &[width, tokens]), fill);
                    let rows = Fill::Distinct((context * sequences) as i32);
                    let inputs = [cache, x, (TensorType::new(DType::I32, &[tokens]), rows)];
                    // Blocks hold integers with an error.
                    let probe = matches!(fill, Fill::Integers(..)) && !dtype.is_quantized();
                    cases.push(Case { probe, ..Case::new(KvStore, &inputs) });
                }
            }
        }
        cases
    }
}

/// Sizes that attention over a cache of this type is tried on: head size, heads, kv heads, tokens, capacity, context,
/// sequences.
pub(super) fn attention_sizes(cache: DType) -> Vec<[usize; 7]> {
    let sizes = [
        [1, 1, 1, 1, 1, 1, 1],
        [31, 3, 1, 2, 33, 40, 1],
        [64, 8, 2, 7, 64, 128, 3],
        [33, 6, 6, 9, 31, 31, 5],
        [40, 4, 4, 1, 257, 300, 2],
        [128, 16, 4, 3, 192, 256, 2],
        [80, 5, 5, 17, 64, 64, 33],
        [16, 2, 2, 0, 64, 64, 2],
        [128, 32, 8, 1, 2048, 2048, 1],
    ];
    let in_blocks =
        [[32, 3, 1, 2, 33, 40, 1], [32, 1, 1, 1, 1, 1, 1], [96, 6, 6, 9, 31, 31, 5], [64, 2, 2, 0, 64, 64, 2]];
    let more = in_blocks.into_iter().filter(|_| cache.is_quantized());
    let whole = |[size, ..]: &[usize; 7]| size.is_multiple_of(cache.block_len());
    sizes.into_iter().filter(whole).chain(more).collect()
}
