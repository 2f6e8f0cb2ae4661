//! Products of queries with cached keys.

use super::{Call, Operand, expect_cache, expect_f32, pieces_min};
use crate::device::cpu::kernel::{self, Rows};
use crate::device::cpu::memory::View;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::KvScores;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("q", &inputs[0])?;
    expect_cache("keys", &inputs[1])?;
    Ok(Profile { lanes: kernel::DOT_LANES, ..Profile::F32 })
}

pub fn compute(op: &KvScores, call: Call) -> Result<(), String> {
    let (q, keys) = (call.inputs[0].floats()?, &call.inputs[1]);
    let [head_size, heads, tokens, _] = call.inputs[0].ty.shape.sizes();
    let sequences = call.inputs[2].indices("sequence", keys.ty.shape[2])?;
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    let heads_per_key = heads / (keys.ty.shape[0] / head_size);
    // y[j, t, h]
    let rows = y.chunks_mut(op.capacity).enumerate();
    call.team.try_each(rows, pieces_min(op.capacity * head_size), |(row, sums)| {
        let (t, h) = (row % tokens, row / tokens);
        let q = Rows::dense(&q[(t * heads + h) * head_size..], 1, head_size);
        match cached_rows(keys, sequences[t], h / heads_per_key, op.capacity, head_size)? {
            CachedRows::F32(keys) => kernel::dots_f32(call.instructions, keys, q, sums),
            CachedRows::F16(keys) => kernel::dots_f16(call.instructions, keys, q, sums),
        }
        Ok(())
    })
}

/// One head's keys or values of one sequence, a row for each position.
pub enum CachedRows<'a> {
    /// f32.
    F32(Rows<'a, f32>),
    /// f16.
    F16(Rows<'a, half::f16>),
}

/// The first `count` positions of a sequence in a cache `[head size * kv heads, context, sequences]`.
pub fn cached_rows<'a>(
    cache: &Operand<'a>,
    sequence: usize,
    head: usize,
    count: usize,
    head_size: usize,
) -> Result<CachedRows<'a>, String> {
    let [width, context, ..] = cache.ty.shape.sizes();
    let start = sequence * context * width + head * head_size;
    match cache.view {
        View::F32(cells) => Ok(CachedRows::F32(Rows::strided(&cells[start..], count, head_size, width))),
        View::F16(cells) => Ok(CachedRows::F16(Rows::strided(&cells[start..], count, head_size, width))),
        View::Bf16(_) | View::Blocks(_) | View::Q4Panels(_) | View::Q8Panels(_) => {
            Err(format!("{} lies in memory that is no KV cache", cache.ty))
        }
    }
}
