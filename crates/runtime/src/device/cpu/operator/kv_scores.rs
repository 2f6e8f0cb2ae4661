//! Products of queries with cached keys.

use super::heads::{CachedRows, Heads, POSITIONS, cached_rows};
use super::{Call, expect_f32, expect_kv_cache, pieces_min};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::KvScores;
use trueup_kernels::{self as kernel, Rows};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("q", &inputs[0])?;
    expect_kv_cache("keys", &inputs[1])?;
    Ok(Profile { lanes: 1, ..Profile::F32 })
}

pub fn compute(op: &KvScores, call: Call) -> Result<(), String> {
    let (q, keys) = (call.inputs[0].floats()?, &call.inputs[1]);
    let [size, count, tokens, _] = call.inputs[0].ty.shape.sizes();
    let sequences = call.inputs[2].indices("sequence", keys.ty.shape[2])?;
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    let heads = Heads { count, group: count / (keys.ty.shape[0] / size), sequences: &sequences };
    let pieces = heads.pieces();
    let grain = pieces_min(op.capacity * size * heads.group);
    // y[j, t, h]
    let pieces = heads.dealt(pieces, y.chunks_mut(op.capacity), |token, head| token + tokens * head);
    call.team.try_each(pieces.into_iter(), grain, |(piece, mut rows)| {
        let mut queries = Vec::with_capacity(rows.len() * size);
        for (token, head) in heads.queries(&piece) {
            queries.extend_from_slice(&q[(token * count + head) * size..][..size]);
        }
        let queries = Rows::dense(&queries, rows.len(), size);
        let cached = cached_rows(keys, piece.sequence, piece.kv_head, op.capacity, size)?;
        let (mut sums, mut room) = (vec![0.0; POSITIONS * rows.len()], Vec::new());
        for first in (0..op.capacity).step_by(POSITIONS) {
            let positions = first..op.capacity.min(first + POSITIONS);
            let sums = &mut sums[..positions.len() * rows.len()];
            match &cached {
                CachedRows::F32(keys) => {
                    kernel::key_scores_f32(call.instructions, keys.part(positions.clone()), queries, sums);
                }
                CachedRows::F16(keys) => {
                    kernel::key_scores_f16(call.instructions, keys.part(positions.clone()), queries, sums);
                }
                CachedRows::Q8_0(keys) => {
                    let keys = keys.decoded(call.instructions, positions.clone(), &mut room);
                    kernel::key_scores_f32(call.instructions, keys, queries, sums);
                }
            }
            for (row, sums) in rows.iter_mut().zip(sums.chunks_exact(positions.len())) {
                row[positions.clone()].copy_from_slice(sums);
            }
        }
        Ok(())
    })
}
