//! Attention over the KV cache, split into parts: some tokens of one sequence, and the query heads that share one
//! cached head.
//!
//! ```text
//!           head 0  1  2  3 │ 4  5  6  7          heads 0 to 3 read cached head 0
//! token 0   ┌──────────────┐│
//! token 1   │    part 0    ││   part 1  ...       a part ends at the end of a sequence
//! token 2   └──────────────┘│
//! ```
//!
//! Keys are transposed once for all queries of a part.

use super::{Operand, cells};
use crate::device::cpu::memory::View;
use half::f16;
use std::iter::StepBy;
use std::ops::Range;
use trueup_blocks::DType;
use trueup_kernels::Instructions;
use trueup_kernels::{self as kernel, Rows};

/// Queries of a piece, about: enough of them that bringing keys and values into registers costs little beside using
/// them.
pub const QUERIES: usize = 96;

/// Positions whose keys kernels bring into registers at once.
pub const POSITIONS: usize = 64;

/// The heads of an operator and of its cache, and the tokens' sequences.
pub struct Heads<'a> {
    /// Heads of a token.
    pub count: usize,
    /// Heads that share one of the cache.
    pub group: usize,
    /// The sequence of each token.
    pub sequences: &'a [usize],
}

/// Some tokens of one sequence, and the heads of one group.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The tokens.
    pub tokens: Range<usize>,
    /// Their sequence.
    pub sequence: usize,
    /// The head of the cache.
    pub kv_head: usize,
}

/// Queries of one head and tokens that follow each other, or of one token and heads that do.
pub struct Run {
    /// The first token and head.
    pub first: (usize, usize),
    /// Whether they are of one head.
    pub along_tokens: bool,
    /// Their places among the queries of the piece.
    pub places: StepBy<Range<usize>>,
}

impl Heads<'_> {
    /// All pieces, tokens outermost.
    pub fn pieces(&self) -> Vec<Piece> {
        let tokens_max = QUERIES.div_ceil(self.group);
        let mut pieces = Vec::new();
        let mut start = 0;
        for run in self.sequences.chunk_by(|a, b| a == b) {
            for first in (start..start + run.len()).step_by(tokens_max) {
                let tokens = first..(start + run.len()).min(first + tokens_max);
                let of_head = |kv_head| Piece { tokens: tokens.clone(), sequence: run[0], kv_head };
                pieces.extend((0..self.count / self.group).map(of_head));
            }
            start += run.len();
        }
        pieces
    }

    /// The queries of a piece, each with its token and head, in their order.
    pub fn queries(&self, piece: &Piece) -> impl Iterator<Item = (usize, usize)> {
        let first = piece.kv_head * self.group;
        let heads = first..first + self.group;
        piece.tokens.clone().flat_map(move |token| heads.clone().map(move |head| (token, head)))
    }

    /// The queries of a piece in runs whose rows lie at equal distances, as few as can be.
    pub fn runs(&self, piece: &Piece) -> impl Iterator<Item = Run> {
        let (tokens, group) = (piece.tokens.clone(), self.group);
        let (first, along_tokens) = (piece.kv_head * group, tokens.len() >= group);
        let runs = if along_tokens { group } else { tokens.len() };
        (0..runs).map(move |run| {
            if along_tokens {
                let places = (run..tokens.len() * group).step_by(group);
                Run { first: (tokens.start, first + run), along_tokens, places }
            } else {
                let places = (run * group..(run + 1) * group).step_by(1);
                Run { first: (tokens.start + run, first), along_tokens, places }
            }
        })
    }

    /// Deals rows, one for each query, out to the pieces that compute them, in the pieces' order; `index` gives the
    /// place of a query's row.
    pub fn dealt<'r, T>(
        &self,
        pieces: Vec<Piece>,
        rows: impl Iterator<Item = &'r mut [T]>,
        index: impl Fn(usize, usize) -> usize,
    ) -> Vec<(Piece, Vec<&'r mut [T]>)> {
        let mut rows: Vec<Option<&mut [T]>> = rows.map(Some).collect();
        let deal = |piece: Piece| {
            let own = self.queries(&piece).filter_map(|(token, head)| rows[index(token, head)].take());
            let own = own.collect();
            (piece, own)
        };
        pieces.into_iter().map(deal).collect()
    }
}

/// One head's keys or values of one sequence, a row for each position.
pub enum CachedRows<'a> {
    /// f32.
    F32(Rows<'a, f32>),
    /// f16.
    F16(Rows<'a, f16>),
    /// q8_0.
    Q8_0(BlockRows<'a>),
}

/// Rows of blocks that are decoded at a time: they stay in a core's cache, and are a multiple of what kernels for keys
/// and for values take at once.
pub const DECODED: usize = 256;

const _: () = assert!(POSITIONS.is_multiple_of(kernel::STEPS) && DECODED.is_multiple_of(POSITIONS));

/// Rows of blocks, to be decoded some at a time.
pub struct BlockRows<'a> {
    bytes: Rows<'a, u8>,
    len: usize,
}

impl BlockRows<'_> {
    /// The blocks of some rows.
    pub fn blocks(&self, rows: Range<usize>) -> Rows<'_, u8> {
        self.bytes.part(rows)
    }

    /// The elements of some rows behind each other, in `room`. Those of `q8_0` are products of 11 and 8 bits: exact in
    /// f32.
    pub fn decoded<'b>(&self, instructions: Instructions, rows: Range<usize>, room: &'b mut Vec<f32>) -> Rows<'b, f32> {
        let count = rows.len();
        let elements = cells(room, count * self.len);
        kernel::decode_q8_0(instructions, self.bytes.part(rows), elements);
        Rows::dense(elements, count, self.len)
    }
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
        View::Blocks(bytes) if cache.ty.dtype == DType::Q8_0 => {
            let in_bytes = |elements: usize| elements / DType::Q8_0.block_len() * DType::Q8_0.block_bytes();
            let bytes = Rows::strided(&bytes[in_bytes(start)..], count, in_bytes(head_size), in_bytes(width));
            Ok(CachedRows::Q8_0(BlockRows { bytes, len: head_size }))
        }
        View::Bf16(_) | View::Blocks(_) | View::Packed(_) => Err(format!("{} is not in KV cache memory", cache.ty)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_is_in_one_piece_of_its_sequence() {
        let sequences = [[0; 100].as_slice(), &[3], &[1; 7], &[0]].concat();
        for (count, group) in [(1, 1), (8, 1), (32, 4), (6, 6), (96, 96)] {
            let heads = Heads { count, group, sequences: &sequences };
            let mut seen = vec![0; count * sequences.len()];
            for piece in heads.pieces() {
                assert!(piece.tokens.clone().all(|token| sequences[token] == piece.sequence));
                for (token, head) in heads.queries(&piece) {
                    assert_eq!(head / group, piece.kv_head);
                    seen[token * count + head] += 1;
                }
                let queries: Vec<(usize, usize)> = heads.queries(&piece).collect();
                for run in heads.runs(&piece) {
                    for (i, place) in run.places.enumerate() {
                        let (token, head) = run.first;
                        let query = if run.along_tokens { (token + i, head) } else { (token, head + i) };
                        assert_eq!(queries[place], query);
                        seen[query.0 * count + query.1] += 1;
                    }
                }
            }
            assert!(seen.iter().all(|times| *times == 2), "{count} heads in groups of {group}");
        }
    }
}
