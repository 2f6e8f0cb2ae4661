//! Cached values, weighed by attention.

use super::heads::{BlockRows, CachedRows, DECODED, Heads, Run, cached_rows};
use super::{Call, expect_f32, expect_kv_cache, pieces_min};
use crate::profile::Profile;
use std::iter::StepBy;
use std::ops::Range;
use trueup_graph::TensorType;
use trueup_graph::op::KvMix;
use trueup_kernels::Instructions;
use trueup_kernels::{self as kernel, Rows};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("p", &inputs[0])?;
    expect_kv_cache("values", &inputs[1])?;
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
        let runs: Vec<Weights> = heads.runs(&piece).map(|run| Weights::new(p, [capacity, tokens], run)).collect();
        let seen = runs.iter().map(|run| run.seen).max().unwrap_or(0);
        match cached_rows(values, piece.sequence, piece.kv_head, seen, size)? {
            CachedRows::F32(values) => mix(size, runs, &mut rows, |positions, weights, sums| {
                kernel::mix_f32(call.instructions, values.part(positions), weights, sums);
            }),
            CachedRows::F16(values) => mix(size, runs, &mut rows, |positions, weights, sums| {
                kernel::mix_f16(call.instructions, values.part(positions), weights, sums);
            }),
            CachedRows::Q8_0(values) => mix_decoded(call.instructions, &values, &runs, &mut rows),
        }
        Ok(())
    })
}

/// The mixtures of all runs by a kernel, in rows of `size`.
fn mix(size: usize, runs: Vec<Weights>, rows: &mut [&mut [f32]], kernel: impl Fn(Range<usize>, Rows<f32>, &mut [f32])) {
    let mut sums = Vec::new();
    for run in runs {
        sums.clear();
        sums.resize(size * run.places.len(), 0.0);
        kernel(0..run.seen, run.of(0..run.seen), &mut sums);
        for (place, sums) in run.places.zip(sums.chunks_exact(size)) {
            rows[place].copy_from_slice(sums);
        }
    }
}

/// The weights of a run of queries: rows at equal distances.
struct Weights<'a> {
    /// From the first query's on.
    p: &'a [f32],
    stride: usize,
    places: StepBy<Range<usize>>,
    /// How many positions there are up to the last one that any of them looks at.
    seen: usize,
}

impl<'a> Weights<'a> {
    /// Of `p[j, t, h]`, with so many `j` and `t`.
    fn new(p: &'a [f32], [capacity, tokens]: [usize; 2], run: Run) -> Weights<'a> {
        let (token, head) = run.first;
        let stride = if run.along_tokens { capacity } else { capacity * tokens };
        let p = &p[(head * tokens + token) * capacity..];
        let all = Rows::strided(p, run.places.len(), capacity, stride);
        let seen = (0..all.count()).map(|query| without_last_zeros(all.row(query))).max().unwrap_or(0);
        Weights { p, stride, places: run.places, seen }
    }

    /// Those of some positions.
    fn of(&self, positions: Range<usize>) -> Rows<'a, f32> {
        Rows::strided(&self.p[positions.start..], self.places.len(), positions.len(), self.stride)
    }
}

/// The mixtures of values in blocks, of which some positions are decoded at a time: a multiple of those whose sum the
/// kernel adds to the total, so that the order is that of values which lie decoded.
fn mix_decoded(instructions: Instructions, values: &BlockRows, runs: &[Weights], rows: &mut [&mut [f32]]) {
    rows.iter_mut().for_each(|row| row.fill(0.0));
    let seen = runs.iter().map(|run| run.seen).max().unwrap_or(0);
    let (mut room, mut sums) = (Vec::new(), Vec::new());
    for first in (0..seen).step_by(DECODED) {
        let positions = first..seen.min(first + DECODED);
        let looks = |run: &&Weights| {
            let weights = run.of(positions.clone());
            (0..weights.count()).any(|query| weights.row(query).iter().any(|weight| *weight != 0.0))
        };
        let mut looking = runs.iter().filter(looks).peekable();
        if looking.peek().is_none() {
            continue;
        }
        let values = values.decoded(instructions, positions.clone(), &mut room);
        for run in looking {
            sums.clear();
            run.places.clone().for_each(|place| sums.extend_from_slice(rows[place]));
            kernel::mix_f32(instructions, values, run.of(positions.clone()), &mut sums);
            for (place, sums) in run.places.clone().zip(sums.chunks_exact(values.len())) {
                rows[place].copy_from_slice(sums);
            }
        }
    }
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
