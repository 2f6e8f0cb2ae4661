//! Attention over the KV cache by the vendor's fused operator, where the chip has it: queries, the mask, weights and
//! the result are rounded to f16, sums are f32. Each run of tokens of one sequence is asked for alone.

use super::attention::runs;
use super::{Call, ELEMENTWISE, FUNCTION_ULP, expect_f32};
use crate::device::ascend::acl::{Attention, Scalar, Type};
use crate::device::ascend::chip::Chip;
use crate::profile::{Activations, Profile};
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::KvAttention;

/// Heads are of so many elements at most, and of a multiple of [`PIECE`].
const SIZE_MAX: usize = 512;
const PIECE: usize = 16;

/// So many heads share one of the cache at most.
const SHARED_MAX: usize = 64;

/// So many heads there are at most.
const HEADS_MAX: usize = 256;

/// What stands for minus infinity in the mask: its weight is zero as well, and where the operator begins with positions
/// that are all hidden, no number of its own becomes infinite, not even with a score added in f16.
const HIDDEN: Scalar = Scalar::F32(-32768.0);

pub fn profile(op: &KvAttention, inputs: &[TensorType], chip: &Chip) -> Result<Profile, String> {
    let [q, keys, values, ..] = inputs else { return Err("attention has five inputs".to_owned()) };
    if !chip.fused_attention {
        return Err(format!(
            "chip {} has no fused attention operator; attention is composed of other operators",
            chip.name
        ));
    }
    expect_f32("q", q)?;
    let (size, heads) = (q.shape[0], q.shape[1]);
    let kv_heads = keys.shape[0] / size;
    let of_f16 = [keys, values].iter().all(|cache| cache.dtype == DType::F16 && cache.shape.is_dense());
    let why = if !of_f16 {
        "the vendor's attention needs a contiguous f16 cache; attention is composed of other operators"
    } else if op.max_bias != 0.0 {
        "the vendor's attention would round ALiBi slopes to f16; attention is composed of other operators"
    } else if keys.shape[0] != values.shape[0] || !size.is_multiple_of(PIECE) || size > SIZE_MAX {
        "the vendor's attention needs heads of one size, a multiple of 16 up to 512; attention is composed of \
            other operators"
    } else if heads > HEADS_MAX {
        "the vendor's attention supports at most 256 heads; attention is composed of other operators"
    } else if heads > SHARED_MAX * kv_heads {
        "the vendor's attention supports at most 64 query heads per KV head; attention is composed of other \
            operators"
    } else {
        let rounded = Profile { activations: Activations::F16, output: DType::F16, ..ELEMENTWISE };
        return Ok(Profile { function_ulp: FUNCTION_ULP, ..rounded });
    };
    Err(why.to_owned())
}

pub fn compose(op: &KvAttention, call: &Call) -> Result<(), String> {
    let (queue, q, out) = (&call.engine.queue, call.input(0)?, call.output()?);
    let [keys, values] = [call.input(1)?, call.input(2)?];
    let mask = call.input(4)?;
    let (heads, size, positions) = (q.sizes[2], q.sizes[3], mask.sizes[3]);
    let kv_heads = keys.sizes[3] / size;
    for (sequence, first, tokens) in runs(&call.indices(3, keys.sizes[1].unsigned_abs() as usize)?) {
        let queries = call.room(Type::F16, &[1, tokens, heads, size])?;
        queue.copy_to(&queries, &q.clone().part(1, first, tokens))?;
        let [k, v] = [&keys, &values].map(|cache| {
            let rows = cache.clone().part(1, sequence, 1).part(2, 0, positions);
            rows.under(&[1, positions, kv_heads, size])
        });
        // Repeated by heads: the vendor's page wants no strides.
        let shift = call.room(Type::F16, &[1, heads, tokens, positions])?;
        let seen = mask.clone().part(2, first, tokens);
        let finite = call.room(seen.ty, &seen.sizes)?;
        queue.clamp_min(&seen, HIDDEN, &finite)?;
        queue.copy_to(&shift, &finite)?;
        let mixed = call.room(Type::F16, &[1, tokens, heads, size])?;
        queue.attention(&Attention { q: &queries, k: &k, v: &v, shift: &shift, scale: op.scale, out: &mixed })?;
        // No page says what a token that sees nothing gets.
        let hidden = call.room(seen.ty, &[1, seen.sizes[1], tokens, 1])?;
        queue.largest(&seen, &[3], true, &hidden)?;
        let [endless, none] = [call.room(seen.ty, &hidden.sizes)?, call.room(Type::Bool, &hidden.sizes)?];
        queue.neg(&hidden, &endless)?;
        queue.greater(&endless, Scalar::F32(f32::MAX), &none)?;
        queue.fill_where(&mixed, &none.clone().exchanged(1, 2), Scalar::F32(0.0))?;
        let here = out.clone().part(2, first, tokens).split(3, heads);
        queue.copy_to(&here, &mixed.clone().inserted(0))?;
    }
    Ok(())
}
