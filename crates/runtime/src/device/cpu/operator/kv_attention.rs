//! Fused attention over the KV cache: the scores of some queries, their softmax and the weighted values stay in a
//! core's cache.
//!
//! ```text
//!                positions 0 ... 63 │ 64 ... 127 │ 128 ... 145      tiles of 64 that no token sees are skipped
//! token 12       ┌──────────────────────────────────────┐
//!   ...          │ scores of a group of heads, row by row │ ─▶ softmax ─▶ times values
//! token 23       └──────────────────────────────────────┘
//! ```
//!
//! Each of the three steps gives the bits of its separate operator: a masked position has weight 0, and adding zeros
//! does not change a sum.

use super::heads::{CachedRows, DECODED, POSITIONS, QUERIES, cached_rows};
use super::soft_max::{Masks, slope};
use super::{Call, Operand, cells, expect_f32, expect_kv_cache, pieces_min};
use crate::profile::Profile;
use std::ops::Range;
use trueup_graph::TensorType;
use trueup_graph::op::KvAttention;
use trueup_kernels::Instructions;
use trueup_kernels::{self as kernel, Rows};

/// Scores of a piece, about: they stay in a core's second level cache ...
const SCORES: usize = 1 << 17;

/// ... unless that leaves fewer queries than these: 16 MiB of a thread for 128 Ki positions.
const QUERIES_MIN: usize = 32;

/// What the positions that are looked at are a multiple of, if there are as many: kernels have no rests then.
const LANES: usize = 16;

/// Queries of a piece up to which values are mixed as they lie in blocks: kernels widen their codes for each few
/// queries again.
const QUERIES_OF_BLOCKS: usize = 18;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("q", &inputs[0])?;
    expect_kv_cache("keys", &inputs[1])?;
    expect_kv_cache("values", &inputs[2])?;
    Ok(Profile { lanes: 1, function_ulp: kernel::EXPONENTIAL_ULP, ..Profile::F32 })
}

pub fn compute(op: &KvAttention, call: Call) -> Result<(), String> {
    let [size, heads, ..] = call.inputs[0].ty.shape.sizes();
    let [keys, values] = [&call.inputs[1], &call.inputs[2]];
    let kv_heads = keys.ty.shape[0] / size;
    let (group, width) = (heads / kv_heads, values.ty.shape[0] / kv_heads);
    let sequences = call.inputs[3].indices("sequence", keys.ty.shape[2])?;
    let capacity = call.inputs[4].ty.shape[0];
    let masks = Masks::of(Some(&call.inputs[4]), capacity)?;
    let (q, instructions) = (call.inputs[0].floats()?, call.instructions);
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    let attention = Attention { op, instructions, q, keys, values, masks, size, width, heads, group };
    let pieces = pieces(&sequences, [heads, group], capacity, call.team.threads());
    let together = pieces.first().map_or(group, |piece| piece.heads.len());
    let grain = pieces_min(2 * capacity * size * together);
    let dealt = dealt(pieces, y, together * width, heads / together);
    // The last tokens of a prompt see the most: what is left at the end is small.
    call.team.try_each(dealt.into_iter().rev(), grain, |(piece, rows)| {
        call.spares.rooms.with(|room| attention.compute(&piece, room, rows))
    })
}

/// Some tokens of one sequence, and some heads that share one of the cache.
#[derive(Clone, PartialEq, Debug)]
struct Piece {
    tokens: Range<usize>,
    sequence: usize,
    heads: Range<usize>,
}

/// Most tokens of a piece.
fn tokens_max(capacity: usize, group: usize) -> usize {
    ((SCORES / capacity.max(1)).clamp(QUERIES_MIN, QUERIES) / group.max(1)).max(1)
}

/// Bytes of the rooms of so many threads, at most.
pub fn scratch_bytes(inputs: &[TensorType], instructions: Instructions, threads: usize) -> usize {
    let [q, keys, values, _, mask] = inputs else { return 0 };
    let ([size, heads, tokens, _], capacity) = (q.shape.sizes(), mask.shape[0]);
    let kv_heads = keys.shape[0].checked_div(size).unwrap_or(0).max(1);
    let (group, width) = (heads / kv_heads, values.shape[0] / kv_heads);
    let queries = tokens_max(capacity, group).min(tokens) * group;
    let in_blocks = [keys, values].iter().any(|cache| cache.dtype.block_len() > 1);
    let decoded = match (in_blocks, kernel::reads_blocks(instructions)) {
        (true, false) => DECODED * (size.max(width) + queries),
        (true, true) if queries > QUERIES_OF_BLOCKS => DECODED * width,
        (true, true) | (false, _) => 0,
    };
    threads.min(heads * tokens) * (queries * (size + capacity + width) + decoded) * size_of::<f32>()
}

/// All pieces, tokens outermost; each has as many heads. A group of heads is cut where there would be fewer pieces than
/// threads.
fn pieces(sequences: &[usize], [heads, group]: [usize; 2], capacity: usize, threads: usize) -> Vec<Piece> {
    let tokens_max = tokens_max(capacity, group);
    let runs = || sequences.chunk_by(|a, b| a == b);
    let whole: usize = runs().map(|run| run.len().div_ceil(tokens_max)).sum::<usize>() * (heads / group);
    let parts = threads.div_ceil(whole.max(1)).min(group);
    let together = (1..=group / parts).rev().find(|count| group.is_multiple_of(*count)).unwrap_or(1);
    let mut pieces = Vec::new();
    let mut start = 0;
    for run in runs() {
        let end = start + run.len();
        for first in (start..end).step_by(tokens_max) {
            let of_heads = |head| Piece {
                tokens: first..end.min(first + tokens_max),
                sequence: run[0],
                heads: head..head + together,
            };
            pieces.extend((0..heads).step_by(together).map(of_heads));
        }
        start = end;
    }
    pieces
}

/// A piece and, for each of its tokens, where the results of its heads go.
type Dealt<'a> = (Piece, Vec<&'a mut [f32]>);

/// Deals the result out: `parts` rows of `len` for each token, one for every piece that the token lies in.
fn dealt(pieces: Vec<Piece>, y: &mut [f32], len: usize, parts: usize) -> Vec<Dealt<'_>> {
    let mut rows: Vec<Option<&mut [f32]>> = y.chunks_mut(len).map(Some).collect();
    let deal = |piece: Piece| {
        let part = piece.heads.start / piece.heads.len();
        let own = piece.tokens.clone().filter_map(|token| rows[part + parts * token].take()).collect();
        (piece, own)
    };
    pieces.into_iter().map(deal).collect()
}

/// What a piece is computed in, kept from one piece to the next.
#[derive(Default, Debug)]
pub struct Room {
    /// The queries, dense.
    queries: Vec<f32>,
    /// Scores of all queries, later their weights.
    scores: Vec<f32>,
    /// The results.
    mixed: Vec<f32>,
    /// Some keys or values that the cache has in blocks.
    decoded: Vec<f32>,
    /// Their scores.
    part: Vec<f32>,
}

#[cfg(test)]
impl Room {
    /// What it takes.
    pub fn bytes(&self) -> usize {
        let Room { queries, scores, mixed, decoded, part } = self;
        [queries, scores, mixed, decoded, part].iter().map(|cells| cells.capacity() * size_of::<f32>()).sum()
    }
}

/// The operator on its tensors.
struct Attention<'a> {
    op: &'a KvAttention,
    instructions: Instructions,
    q: &'a [f32],
    keys: &'a Operand<'a>,
    values: &'a Operand<'a>,
    masks: Masks<'a>,
    /// Of a head of keys.
    size: usize,
    /// Of a head of values.
    width: usize,
    heads: usize,
    /// Heads that share one of the cache.
    group: usize,
}

impl Attention<'_> {
    fn compute(&self, piece: &Piece, room: &mut Room, rows: Vec<&mut [f32]>) -> Result<(), String> {
        let runs = self.seen(piece);
        let Some(seen) = runs.first().zip(runs.last()).map(|(first, last)| first.start..last.end) else {
            rows.into_iter().for_each(|row| row.fill(0.0));
            return Ok(());
        };
        self.score(piece, &seen, &runs, room)?;
        self.soften(piece, &seen, room);
        self.mix(piece, &seen, &runs, room)?;
        let len = piece.heads.len() * self.width;
        rows.into_iter().zip(room.mixed.chunks(len)).for_each(|(row, mixed)| row.copy_from_slice(mixed));
        Ok(())
    }

    /// The positions that a query of the piece may look at, as runs of whole tiles; the last run ends at whole lanes.
    /// There is usually one run, and there are two if a window wraps around the end of a ring.
    fn seen(&self, piece: &Piece) -> Vec<Range<usize>> {
        let (mut tiles, mut end, mut capacity) = (Vec::new(), 0, 0);
        for token in piece.tokens.clone() {
            for head in piece.heads.clone().take(self.masks.heads()) {
                let mask = self.masks.row([token, head, 0], 1.0);
                end = end.max(show(&mask, &mut tiles));
                capacity = mask.len();
            }
        }
        runs(&tiles, end.next_multiple_of(LANES).min(capacity))
    }

    /// `scores[j, i] = key j . query i` for the positions in `runs`, and 0 for the other positions in `seen`.
    fn score(&self, piece: &Piece, seen: &Range<usize>, runs: &[Range<usize>], room: &mut Room) -> Result<(), String> {
        let (count, len) = (piece.tokens.len() * piece.heads.len(), piece.heads.len() * self.size);
        let queries = cells(&mut room.queries, count * self.size);
        for (token, queries) in piece.tokens.clone().zip(queries.chunks_exact_mut(len.max(1))) {
            queries.copy_from_slice(&self.q[(token * self.heads + piece.heads.start) * self.size..][..len]);
        }
        let queries = Rows::dense(queries, count, self.size);
        let keys = cached_rows(self.keys, piece.sequence, piece.heads.start / self.group, seen.end, self.size)?;
        let scores = cells(&mut room.scores, count * seen.len());
        if runs.len() > 1 {
            scores.fill(0.0);
        }
        match keys {
            CachedRows::F32(keys) => score_runs(seen, runs, queries, scores, |run, queries, scores| {
                kernel::key_scores_f32(self.instructions, keys.part(run), queries, scores);
            }),
            CachedRows::F16(keys) => score_runs(seen, runs, queries, scores, |run, queries, scores| {
                kernel::key_scores_f16(self.instructions, keys.part(run), queries, scores);
            }),
            CachedRows::Q8_0(keys) if kernel::reads_blocks(self.instructions) => {
                score_runs(seen, runs, queries, scores, |run, queries, scores| {
                    kernel::key_scores_q8_0(self.instructions, keys.blocks(run), queries, scores);
                });
            }
            CachedRows::Q8_0(keys) => {
                let part = cells(&mut room.part, count * DECODED);
                let parts = runs.iter().flat_map(|run| run.clone().step_by(DECODED).map(move |first| (first, run.end)));
                for (first, end) in parts {
                    let positions = first..end.min(first + DECODED);
                    let part = &mut part[..count * positions.len()];
                    let keys = keys.decoded(self.instructions, positions, &mut room.decoded);
                    kernel::key_scores_f32(self.instructions, keys, queries, part);
                    let rows = scores.chunks_exact_mut(seen.len()).zip(part.chunks_exact(keys.count()));
                    rows.for_each(|(row, part)| row[first - seen.start..][..part.len()].copy_from_slice(part));
                }
            }
        }
        Ok(())
    }

    /// Scores become weights.
    fn soften(&self, piece: &Piece, seen: &Range<usize>, room: &mut Room) {
        let queries = piece.tokens.clone().flat_map(|token| piece.heads.clone().map(move |head| (token, head)));
        for ((token, head), scores) in queries.zip(room.scores.chunks_exact_mut(seen.len())) {
            let mask = self.masks.row([token, head, 0], slope(self.op.max_bias, head, self.heads));
            kernel::soft_max(self.instructions, scores, &mask[seen.clone()], self.op.scale);
        }
    }

    /// `mixed[d, i] = sum_j weights[j, i] values[d, j]` over the positions in `runs`. All other positions in `seen`
    /// have weight 0.
    fn mix(&self, piece: &Piece, seen: &Range<usize>, runs: &[Range<usize>], room: &mut Room) -> Result<(), String> {
        let count = piece.tokens.len() * piece.heads.len();
        let mixed = cells(&mut room.mixed, count * self.width);
        mixed.fill(0.0);
        let weights = &room.scores[..count * seen.len()];
        let weights_of =
            |run: &Range<usize>| Rows::strided(&weights[run.start - seen.start..], count, run.len(), seen.len());
        let values = cached_rows(self.values, piece.sequence, piece.heads.start / self.group, seen.end, self.width)?;
        for run in runs {
            match &values {
                CachedRows::F32(values) => {
                    kernel::mix_f32(self.instructions, values.part(run.clone()), weights_of(run), mixed);
                }
                CachedRows::F16(values) => {
                    kernel::mix_f16(self.instructions, values.part(run.clone()), weights_of(run), mixed);
                }
                CachedRows::Q8_0(values) if kernel::reads_blocks(self.instructions) && count <= QUERIES_OF_BLOCKS => {
                    kernel::mix_q8_0(self.instructions, values.blocks(run.clone()), weights_of(run), mixed);
                }
                CachedRows::Q8_0(values) => {
                    for first in run.clone().step_by(DECODED) {
                        let positions = first..run.end.min(first + DECODED);
                        let weights = weights_of(&positions);
                        let values = values.decoded(self.instructions, positions, &mut room.decoded);
                        kernel::mix_f32(self.instructions, values, weights, mixed);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Computes the scores of each run and writes them at the run's offset in `scores`, which covers the positions `seen`.
/// `compute` takes positions, queries and the slice for their scores.
fn score_runs<'a>(
    seen: &Range<usize>,
    runs: &[Range<usize>],
    queries: Rows<'a, f32>,
    scores: &mut [f32],
    compute: impl Fn(Range<usize>, Rows<'a, f32>, &mut [f32]),
) {
    if let [run] = runs {
        return compute(run.clone(), queries, scores);
    }
    for (place, scores) in scores.chunks_exact_mut(seen.len()).enumerate() {
        for run in runs {
            let scores = &mut scores[run.start - seen.start..][..run.len()];
            compute(run.clone(), queries.part(place..place + 1), scores);
        }
    }
}

/// Marks the tiles with at least one unmasked position, and returns the end of the last unmasked position, or 0.
fn show(mask: &[f32], tiles: &mut Vec<bool>) -> usize {
    let is_shown = |mask: &f32| *mask != f32::NEG_INFINITY;
    tiles.resize(tiles.len().max(mask.len().div_ceil(POSITIONS)), false);
    let mut end = 0;
    for (place, (tile, chunk)) in tiles.iter_mut().zip(mask.chunks(POSITIONS)).enumerate() {
        // In most tiles, the first position is unmasked or all are masked.
        if chunk.first().is_some_and(is_shown) || !chunk.iter().fold(true, |hidden, mask| hidden & !is_shown(mask)) {
            *tile = true;
            end = place * POSITIONS + chunk.iter().rposition(is_shown).map_or(0, |last| last + 1);
        }
    }
    end
}

/// The runs of marked tiles, up to `end`.
fn runs(tiles: &[bool], end: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (place, _) in tiles.iter().enumerate().filter(|(_, is_shown)| **is_shown) {
        let tile = place * POSITIONS..end.min((place + 1) * POSITIONS);
        match runs.last_mut() {
            Some(run) if run.end == tile.start => run.end = tile.end,
            Some(_) | None => runs.push(tile),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_of_every_token_is_in_one_piece_of_its_sequence() {
        let sequences = [[0; 100].as_slice(), &[3], &[1; 7], &[0]].concat();
        for (heads, group) in [(1, 1), (8, 1), (32, 4), (6, 6), (96, 96), (12, 3)] {
            for (capacity, threads) in [(1, 1), (64, 2), (512, 1000), (100_000, 3)] {
                let mut seen = vec![0; heads * sequences.len()];
                for piece in pieces(&sequences, [heads, group], capacity, threads) {
                    assert!(piece.tokens.clone().all(|token| sequences[token] == piece.sequence));
                    assert_eq!(piece.heads.start / group, (piece.heads.end - 1) / group, "one head of the cache");
                    let scores = piece.tokens.len() * group * capacity;
                    assert!(piece.tokens.len() == 1 || scores <= SCORES.max(QUERIES_MIN * capacity));
                    for token in piece.tokens {
                        piece.heads.clone().for_each(|head| seen[token * heads + head] += 1);
                    }
                }
                assert!(seen.iter().all(|times| *times == 1), "{heads} heads in groups of {group}, {threads} threads");
            }
        }
    }

    #[test]
    fn one_token_is_work_for_as_many_threads_as_there_are_heads() {
        for (group, threads, parts) in [(8, 1, 1), (8, 2, 2), (8, 3, 4), (6, 4, 6), (8, 100, 8), (1, 4, 1)] {
            assert_eq!(pieces(&[0], [group, group], 4096, threads).len(), parts, "{group} heads, {threads} threads");
        }
        assert_eq!(pieces(&[0], [32, 8], 4096, 2).len(), 4, "groups stay whole where there are enough");
    }

    #[test]
    fn masked_tiles_are_skipped() {
        let (x, open) = (f32::NEG_INFINITY, 0.0);
        let seen = |masks: &[Vec<f32>]| {
            let mut tiles = Vec::new();
            let end = masks.iter().map(|mask| show(mask, &mut tiles)).max().unwrap_or(0);
            runs(&tiles, end)
        };
        let mask = |len: usize, visible: &[Range<usize>]| -> Vec<f32> {
            let is_visible = |j: &usize| visible.iter().any(|run| run.contains(j));
            (0..len).map(|j| if is_visible(&j) { open } else { x }).collect()
        };
        for (len, visible, expected) in [
            (200, 0..200, 0..200),
            (200, 0..1, 0..1),
            (200, 70..75, 64..75),
            (200, 199..200, 192..200),
            (64, 63..64, 0..64),
            (5, 2..4, 0..4),
            (300, 64..130, 64..130),
        ] {
            assert_eq!(seen(&[mask(len, std::slice::from_ref(&visible))]), [expected], "{visible:?} of {len}");
        }
        assert_eq!(seen(&[mask(300, &[0..3, 250..300])]), [0..64, 192..300], "a window that wraps");
        let tokens = [0..9, 299..300].map(|visible| mask(300, std::slice::from_ref(&visible)));
        assert_eq!(seen(&tokens), [0..64, 256..300], "two tokens");
        assert!(seen(&[vec![x; 70]]).is_empty() && seen(&[vec![]]).is_empty());
    }
}
