//! Scores of keys: 64 keys are turned over into registers that hold one element of each, and 6 queries use these before
//! the next.

use super::super::decode_q8_0::BLOCK_BYTES;
use super::super::element::Element;
use super::super::lanes::padded;
use super::super::rows::Rows;
use super::block_rows::{self, Block};
use super::{LANES, ask_for_line, load_f16, load_f32, store};
use crate::panel_block::BLOCK_LEN;
use half::f16;
use std::arch::x86_64::*;

/// Registers that hold one element of all keys of a tile.
const REGISTERS: usize = 4;

/// Keys of a tile.
const KEYS: usize = REGISTERS * LANES;

/// Elements of a head that are turned over at once.
const ELEMENTS: usize = 64;

/// Queries that use a register of keys.
const QUERIES: usize = 6;

/// Bytes that memory is asked for at once.
const LINE_BYTES: usize = 64;

/// One element of all keys of a tile.
type Turned = [[f32; LANES]; REGISTERS];

/// Elements of a tile, of which no register straddles two lines.
#[repr(align(64))]
struct Aligned([Turned; ELEMENTS]);

/// Of f32.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn key_scores_f32(keys: Rows<f32>, queries: Rows<f32>, sums: &mut [f32]) {
    key_scores([keys.count(), keys.len()], queries, sums, |first_key, first, turned| {
        turn(keys, first_key, first, turned, |source| load_f32(source));
    });
}

/// Of f16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn key_scores_f16(keys: Rows<f16>, queries: Rows<f32>, sums: &mut [f32]) {
    key_scores([keys.count(), keys.len()], queries, sums, |first_key, first, turned| {
        turn(keys, first_key, first, turned, |source| load_f16(source));
    });
}

/// Of q8_0: whole blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn key_scores_q8_0(keys: Rows<u8>, queries: Rows<f32>, sums: &mut [f32]) {
    key_scores([keys.count(), block_rows::len_of(keys)], queries, sums, |first_key, first, turned| {
        turn_blocks(keys, first_key, first, turned);
    });
}

/// Of so many keys of this length; `turn` turns those from a key on over, from an element on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn key_scores(
    [keys, len]: [usize; 2],
    queries: Rows<f32>,
    sums: &mut [f32],
    turn: impl Fn(usize, usize, &mut [Turned; ELEMENTS]),
) {
    assert_eq!(sums.len(), keys * queries.count(), "one sum for each key and query");
    assert_eq!(len, queries.len(), "keys and queries of one length");
    if len == 0 {
        sums.fill(0.0);
    }
    let Aligned(turned) = &mut Aligned([[[0.0; LANES]; REGISTERS]; ELEMENTS]);
    for first_key in (0..keys).step_by(KEYS) {
        for first in (0..len).step_by(ELEMENTS) {
            turn(first_key, first, turned);
            let turned = &turned[..ELEMENTS.min(len - first)];
            let tile = Tile { turned, first_key, keys, first, queries };
            let mut t = 0;
            while t < queries.count() {
                match queries.count() - t {
                    1 => t += tile.add::<1>(t, sums),
                    2 => t += tile.add::<2>(t, sums),
                    3 => t += tile.add::<3>(t, sums),
                    4 => t += tile.add::<4>(t, sums),
                    5 => t += tile.add::<5>(t, sums),
                    _ => t += tile.add::<QUERIES>(t, sums),
                }
            }
        }
    }
}

/// Elements from `first` on of the keys from `first_key` on: squares of a register's size are turned over. Keys behind
/// the last are zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn turn<E: Element>(
    keys: Rows<E>,
    first_key: usize,
    first: usize,
    turned: &mut [Turned; ELEMENTS],
    load: impl Fn(&[E; LANES]) -> __m512 + Copy,
) {
    for register in 0..REGISTERS {
        let start = first_key + register * LANES;
        for (number, turned) in turned.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let at = first + number * LANES;
            if at >= keys.len() {
                break;
            }
            let rows = if start + LANES <= keys.count() && at + LANES <= keys.len() {
                square(keys, start, at, load)
            } else {
                let row = |key: usize| &keys.row(key)[at..];
                let elements = |row: &[E]| row.first_chunk().map_or_else(|| load(&padded(row)), load);
                let zero = _mm512_setzero_ps();
                std::array::from_fn(|i| if start + i < keys.count() { elements(row(start + i)) } else { zero })
            };
            for (turned, column) in turned.iter_mut().zip(transposed(rows)) {
                turned[register] = store(column);
            }
        }
    }
}

/// Elements `at ...` of sixteen keys from `start` on; both are there. Asks for those of the next tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn square<E: Element>(
    keys: Rows<E>,
    start: usize,
    at: usize,
    load: impl Fn(&[E; LANES]) -> __m512 + Copy,
) -> [__m512; LANES] {
    debug_assert!(start + LANES <= keys.count() && at + LANES <= keys.len());
    let (first, stride) = (keys.row(start)[at..].as_ptr(), keys.stride());
    let asked = (at * size_of::<E>()).is_multiple_of(LINE_BYTES);
    let mut rows = [_mm512_setzero_ps(); LANES];
    for (i, row) in rows.iter_mut().enumerate() {
        let elements = first.wrapping_add(i * stride);
        if asked {
            ask_for_line(elements.wrapping_add(KEYS * stride));
        }
        // SAFETY: `Rows` hold cells for each of their rows, a stride behind each other; the caller saw that sixteen of
        // them are there from `start` on, each with sixteen elements from `at` on.
        *row = load(unsafe { &*elements.cast::<[E; LANES]>() });
    }
    rows
}

/// As [`turn`], of blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn turn_blocks(keys: Rows<u8>, first_key: usize, first: usize, turned: &mut [Turned; ELEMENTS]) {
    const NONE: Block = [0; BLOCK_BYTES];
    for register in 0..REGISTERS {
        let start = first_key + register * LANES;
        for (block, turned) in turned.as_chunks_mut::<BLOCK_LEN>().0.iter_mut().enumerate() {
            let at = (first / BLOCK_LEN + block) * BLOCK_BYTES;
            if at >= keys.len() {
                break;
            }
            let blocks = std::array::from_fn(|key| {
                let block = (start + key < keys.count()).then(|| keys.row(start + key)[at..].first_chunk()).flatten();
                block.inspect(|block| ask_for_line(block.as_ptr().wrapping_add(KEYS * keys.stride()))).unwrap_or(&NONE)
            });
            block_rows::turned(blocks, |element, numbers| turned[element][register] = store(numbers));
        }
    }
}

/// Some elements of a tile of keys, and what they are multiplied with.
struct Tile<'a> {
    turned: &'a [Turned],
    first_key: usize,
    /// All keys.
    keys: usize,
    first: usize,
    queries: Rows<'a, f32>,
}

impl Tile<'_> {
    /// Adds products of queries `t ... t + Q` to their sums; gives `Q`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn add<const Q: usize>(&self, t: usize, sums: &mut [f32]) -> usize {
        let queries: [&[f32]; Q] = std::array::from_fn(|i| &self.queries.row(t + i)[self.first..][..self.turned.len()]);
        let count = KEYS.min(self.keys - self.first_key);
        let mut totals = [[_mm512_setzero_ps(); REGISTERS]; Q];
        if self.first > 0 {
            for (i, totals) in totals.iter_mut().enumerate() {
                let sums = &sums[(t + i) * self.keys + self.first_key..][..count];
                let (chunks, rest) = sums.as_chunks();
                totals.iter_mut().zip(chunks).for_each(|(total, chunk)| *total = load_f32(chunk));
                if !rest.is_empty() {
                    totals[chunks.len()] = load_f32(&padded(rest));
                }
            }
        }
        for (element, turned) in self.turned.iter().enumerate() {
            let keys: [__m512; REGISTERS] = std::array::from_fn(|register| load_f32(&turned[register]));
            for i in 0..Q {
                // SAFETY: each query was cut to as many elements as were turned over.
                let query = _mm512_set1_ps(unsafe { *queries[i].get_unchecked(element) });
                for register in 0..REGISTERS {
                    totals[i][register] = _mm512_fmadd_ps(keys[register], query, totals[i][register]);
                }
            }
        }
        for (i, totals) in totals.iter().enumerate() {
            let sums = &mut sums[(t + i) * self.keys + self.first_key..][..count];
            let (chunks, rest) = sums.as_chunks_mut();
            let whole = chunks.len();
            totals.iter().zip(chunks).for_each(|(total, chunk)| *chunk = store(*total));
            if !rest.is_empty() {
                rest.copy_from_slice(&store(totals[whole])[..rest.len()]);
            }
        }
        Q
    }
}

/// Rows become columns: pairs of lanes, pairs of pairs, quarters and halves change places.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn transposed(rows: [__m512; LANES]) -> [__m512; LANES] {
    let pairs: [__m512; LANES] = std::array::from_fn(|i| {
        let (a, b) = (rows[i & !1], rows[i | 1]);
        if i & 1 == 0 { _mm512_unpacklo_ps(a, b) } else { _mm512_unpackhi_ps(a, b) }
    });
    // Lane 4 q + r of number 4 g + e: column 4 q + e of row 4 g + r.
    let fours: [__m512; LANES] = std::array::from_fn(|i| {
        let (group, element) = (i & !3, i & 3);
        let a = _mm512_castps_pd(pairs[group + element / 2]);
        let b = _mm512_castps_pd(pairs[group + 2 + element / 2]);
        _mm512_castpd_ps(if element & 1 == 0 { _mm512_unpacklo_pd(a, b) } else { _mm512_unpackhi_pd(a, b) })
    });
    // Quarters 0 and 2, or 1 and 3, of two groups of rows.
    let halves = |element: usize, group: usize, odd: bool| {
        let (a, b) = (fours[group + element], fours[group + 4 + element]);
        if odd { _mm512_shuffle_f32x4::<0xDD>(a, b) } else { _mm512_shuffle_f32x4::<0x88>(a, b) }
    };
    std::array::from_fn(|i| {
        let (quarter, element) = (i / 4, i % 4);
        let (a, b) = (halves(element, 0, quarter & 1 == 1), halves(element, 8, quarter & 1 == 1));
        if quarter < 2 { _mm512_shuffle_f32x4::<0x88>(a, b) } else { _mm512_shuffle_f32x4::<0xDD>(a, b) }
    })
}
