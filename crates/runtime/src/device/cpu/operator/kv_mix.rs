//! Cached values, weighed by attention.

use super::heads::{CachedRows, Heads, cached_rows};
use super::{Call, expect_cache, expect_f32, pieces_min};
use crate::device::cpu::kernel::{self, Rows};
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
    let [capacity, tokens, count, _] = call.inputs[0].ty.shape.sizes();
    let sequences = call.inputs[2].indices("sequence", values.ty.shape[2])?;
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    let size = values.ty.shape[0] / op.kv_heads;
    let heads = Heads { count, group: count / op.kv_heads, sequences: &sequences };
    let pieces = heads.pieces();
    let grain = pieces_min(capacity * size * heads.group);
    // y[d + size * h, t]
    let pieces = heads.dealt(pieces, y.chunks_mut(size), |token, head| head + count * token);
    call.team.try_each(pieces.into_iter(), grain, |(piece, mut rows)| {
        let mut sums = Vec::new();
        for runs in heads.runs(&piece) {
            let (token, head) = runs.first;
            let stride = if runs.along_tokens { capacity } else { capacity * tokens };
            let first = (head * tokens + token) * capacity;
            let weights = |seen| Rows::strided(&p[first..], runs.places.len(), seen, stride);
            let all = weights(capacity);
            let seen = (0..all.count()).map(|query| without_last_zeros(all.row(query))).max().unwrap_or(0);
            sums.resize(size * all.count(), 0.0);
            match cached_rows(values, piece.sequence, piece.kv_head, seen, size)? {
                CachedRows::F32(values) => kernel::mix_f32(call.instructions, values, weights(seen), &mut sums),
                CachedRows::F16(values) => kernel::mix_f16(call.instructions, values, weights(seen), &mut sums),
            }
            for (place, sums) in runs.places.zip(sums.chunks_exact(size)) {
                rows[place].copy_from_slice(sums);
            }
        }
        Ok(())
    })
}

/// How many there are up to the last weight that is not zero: positions that a token may not look at are not read.
fn without_last_zeros(p: &[f32]) -> usize {
    const CHUNK: usize = 32;
    // All bits but the signs'.
    let bits = |chunk: &[f32]| chunk.iter().fold(0, |bits, p| bits | p.to_bits() << 1);
    let empty = p.rchunks(CHUNK).take_while(|chunk| bits(chunk) == 0).count();
    let p = &p[..p.len().saturating_sub(empty * CHUNK)];
    p.iter().rposition(|p| *p != 0.0).map_or(0, |last| last + 1)
}
