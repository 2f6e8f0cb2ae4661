//! Attention over the KV cache, and over tensors: products of matrices for each run of tokens of one sequence, which
//! the host knows.

use super::get_rows::{decode, expect_readable};
use super::soft_max::weigh;
use super::{Call, ELEMENTWISE, F16_PRODUCTS, FUNCTION_ULP, KEPT_PRODUCTS, expect_known};
use crate::device::ascend::acl::{Array, Scalar, Type};
use crate::device::ascend::chip::Chip;
use crate::device::ascend::pool::Room;
use crate::device::ascend::split::{Matrix, Split};
use crate::profile::{Activations, Profile, Weights};
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::{FlashAttn, KvMix, KvScores};

pub fn profile(inputs: &[TensorType], chip: &Chip) -> Result<Profile, String> {
    if Split::of(&inputs[1]).is_some() {
        expect_readable("the cache", &inputs[1], chip)?;
        // Codes times scales become f16 before they are multiplied.
        return Ok(Profile { activations: rounding(chip), weights: Weights::F16, ..ELEMENTWISE });
    }
    expect_known("the cache", &inputs[1])?;
    expect_unrounded(&inputs[1], chip)?;
    Ok(Profile { activations: rounding(chip), ..ELEMENTWISE })
}

pub fn profile_whole(inputs: &[TensorType], chip: &Chip) -> Result<Profile, String> {
    inputs.iter().try_for_each(|ty| expect_known("an input", ty))?;
    inputs[1..3].iter().try_for_each(|ty| expect_unrounded(ty, chip))?;
    let activations = rounding(chip);
    Ok(Profile { activations, function_ulp: FUNCTION_ULP, ..ELEMENTWISE })
}

/// Keys and values are not rounded: a cache of f32 needs a chip that multiplies f32.
fn expect_unrounded(ty: &TensorType, chip: &Chip) -> Result<(), String> {
    if ty.dtype == DType::F16 || chip.f32_products {
        return Ok(());
    }
    Err(format!("chip {} would round keys and values from {} to f16; it supports an f16 KV cache", chip.name, ty.dtype))
}

/// Queries and weights are f32, and so is what a cube computes that takes f32: told to take f16, it would round scores
/// to f16 too.
fn math(chip: &Chip) -> i8 {
    if chip.f32_products { KEPT_PRODUCTS } else { F16_PRODUCTS }
}

fn rounding(chip: &Chip) -> Activations {
    if chip.f32_products { Activations::Unchanged } else { Activations::F16 }
}

/// Runs of neighbouring tokens of one sequence: the sequence, the first token, how many.
pub fn runs(sequences: &[i32]) -> Vec<(i64, i64, i64)> {
    let mut first = 0;
    let runs = sequences.chunk_by(|a, b| a == b).map(|run| {
        let here = (i64::from(run[0]), first, run.len() as i64);
        first += run.len() as i64;
        here
    });
    runs.collect()
}

/// The KV cache of one call.
struct Cache {
    /// `[1, sequences, context, heads x size]`.
    rows: Option<Array>,
    /// By sequence, of one in blocks.
    matrices: Vec<Matrix>,
    heads: i64,
}

impl Cache {
    /// The second input, with so many heads side by side.
    fn new(call: &Call, heads: i64) -> Result<Cache, String> {
        if Split::of(call.ty(1)).is_some() {
            return Ok(Cache { rows: None, matrices: call.matrices(1)?, heads });
        }
        Ok(Cache { rows: Some(call.input(1)?), matrices: Vec::new(), heads })
    }

    /// A sequence's rows by heads: `[heads, 1, positions, size]`; of blocks they are decoded, in room that is lent.
    fn of(&self, call: &Call, sequence: i64, capacity: i64) -> Result<(Array, Option<Room>), String> {
        let by_heads = |rows: Array| rows.split(3, self.heads).ordered(&[3, 0, 2, 4]);
        if let Some(rows) = &self.rows {
            return Ok((by_heads(rows.clone().part(1, sequence, 1).part(2, 0, capacity)), None));
        }
        let matrix = self.matrices[sequence as usize].rows(0, capacity);
        let room = call.room(Type::F16, &matrix.codes.sizes)?;
        decode(call, &matrix, &room)?;
        Ok((by_heads(room.clone().inserted(0).inserted(0)), Some(room)))
    }
}

pub fn scores(op: &KvScores, call: &Call) -> Result<(), String> {
    let (q, out) = (call.input(0)?, call.output()?);
    let math = math(call.engine.chip);
    let [width, _, sequences, _] = call.ty(1).shape.sizes();
    let kv_heads = width as i64 / q.sizes[3];
    let cache = Cache::new(call, kv_heads)?;
    for (sequence, first, tokens) in runs(&call.indices(2, sequences)?) {
        let q = q.clone().part(1, first, tokens).split(2, kv_heads).ordered(&[2, 3, 1, 4]);
        let (keys, _room) = cache.of(call, sequence, op.capacity as i64)?;
        let keys = keys.exchanged(2, 3);
        let out = out.clone().part(2, first, tokens).split(1, kv_heads).ordered(&[1, 2, 3, 4]);
        call.dense(&out, |out| call.engine.queue.matmul(&q, &keys, out, math))?;
    }
    Ok(())
}

pub fn mix(op: &KvMix, call: &Call) -> Result<(), String> {
    let (p, out) = (call.input(0)?, call.output()?);
    let math = math(call.engine.chip);
    let (capacity, heads, kv_heads) = (p.sizes[3], p.sizes[1], op.kv_heads as i64);
    let cache = Cache::new(call, kv_heads)?;
    for (sequence, first, tokens) in runs(&call.indices(2, call.ty(1).shape[2])?) {
        let p = p.clone().part(2, first, tokens).split(1, kv_heads).ordered(&[1, 2, 3, 4]);
        let (values, _room) = cache.of(call, sequence, capacity)?;
        let out = out.clone().part(2, first, tokens).split(3, heads).split(3, kv_heads).ordered(&[3, 4, 2, 5]);
        call.dense(&out, |out| call.engine.queue.matmul(&p, &values, out, math))?;
    }
    Ok(())
}

/// Attention over tensors: `q [batch, heads, tokens, D]`, `k` and `v` `[batch, kv heads, positions, ...]`.
pub fn whole(op: &FlashAttn, call: &Call) -> Result<(), String> {
    let (queue, q, k, v, out) = (&call.engine.queue, call.input(0)?, call.input(1)?, call.input(2)?, call.output()?);
    let math = math(call.engine.chip);
    let (kv_heads, positions) = (k.sizes[1], k.sizes[2]);
    if positions == 0 || k.sizes[3] == 0 {
        return queue.zero(&out);
    }
    let grouped = |array: &Array| array.clone().split(1, kv_heads);
    let scores = call.room(Type::F32, &[q.sizes[0], q.sizes[1], q.sizes[2], positions])?;
    let q = call.gathered(&q, Type::F32)?;
    queue.matmul(&grouped(&q), &k.inserted(2).exchanged(3, 4), &grouped(&scores), math)?;
    let capped = call.room(Type::F32, &scores.sizes)?;
    if op.softcap == 0.0 {
        queue.muls(&scores, Scalar::F32(op.scale), &capped)?;
    } else {
        queue.muls(&scores, Scalar::F32(op.scale / op.softcap), &capped)?;
        queue.tanh(&capped, &scores)?;
        queue.muls(&scores, Scalar::F32(op.softcap), &capped)?;
    }
    let mask = if call.inputs() > 3 { Some(call.input_f32(3)?) } else { None };
    weigh(call, &capped, mask.as_deref(), op.max_bias, &scores)?;
    // The output has heads inside of tokens.
    let out = out.exchanged(1, 2);
    call.dense(&grouped(&out), |out| queue.matmul(&grouped(&scores), &v.inserted(2), out, math))
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn neighbouring_tokens_of_a_sequence_are_one_run() {
        assert_eq!(runs(&[3, 3, 0, 3]), [(3, 0, 2), (0, 2, 1), (3, 3, 1)]);
        assert!(runs(&[]).is_empty());
    }
}
