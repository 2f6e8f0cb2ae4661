//! Cached values, weighed by attention.

use super::kv_scores::{CachedRows, cached_rows};
use super::{Call, expect_cache, expect_f32, pieces_min};
use crate::device::cpu::kernel;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::KvMix;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("p", &inputs[0])?;
    expect_cache("values", &inputs[1])?;
    Ok(Profile { lanes: 1, ..Profile::F32 })
}

pub fn compute(op: &KvMix, call: Call) -> Result<(), String> {
    let (p, values) = (call.inputs[0].floats()?, &call.inputs[1]);
    let [capacity, tokens, heads, _] = call.inputs[0].ty.shape.sizes();
    let sequences = call.inputs[2].indices("sequence", values.ty.shape[2])?;
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    let head_size = values.ty.shape[0] / op.kv_heads;
    let heads_per_value = heads / op.kv_heads;
    // y[d + head size * h, t]
    let pieces = y.chunks_mut(head_size).enumerate();
    call.team.try_each(pieces, pieces_min(capacity * head_size), |(piece, sums)| {
        let (t, h) = (piece / heads, piece % heads);
        let p = without_last_zeros(&p[(h * tokens + t) * capacity..][..capacity]);
        match cached_rows(values, sequences[t], h / heads_per_value, p.len(), head_size)? {
            CachedRows::F32(values) => kernel::mix_f32(call.instructions, values, p, sums),
            CachedRows::F16(values) => kernel::mix_f16(call.instructions, values, p, sums),
        }
        Ok(())
    })
}

/// Up to the last weight that is not zero: positions that a token may not look at are not read.
fn without_last_zeros(p: &[f32]) -> &[f32] {
    &p[..p.iter().rposition(|p| *p != 0.0).map_or(0, |last| last + 1)]
}
