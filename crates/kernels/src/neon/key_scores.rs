//! Scores of keys: 16 keys are turned over into registers that hold one element of each, and 6 queries use these before
//! the next.

use super::super::element::Element;
use super::super::lanes::padded;
use super::super::rows::Rows;
use super::{LANES, load_f16, load_f32, store};
use half::f16;
use std::arch::aarch64::*;

/// Registers that hold one element of all keys of a tile.
const REGISTERS: usize = 4;

/// Keys of a tile.
const KEYS: usize = REGISTERS * LANES;

/// Elements of a head that are turned over at once.
const ELEMENTS: usize = 64;

/// Queries that use a register of keys.
const QUERIES: usize = 6;

/// One element of all keys of a tile.
type Turned = [[f32; LANES]; REGISTERS];

/// Of f32.
#[target_feature(enable = "neon,dotprod")]
pub fn key_scores_f32(keys: Rows<f32>, queries: Rows<f32>, sums: &mut [f32]) {
    key_scores(keys, queries, sums, |source| load_f32(source));
}

/// Of f16.
#[target_feature(enable = "neon,dotprod")]
pub fn key_scores_f16(keys: Rows<f16>, queries: Rows<f32>, sums: &mut [f32]) {
    key_scores(keys, queries, sums, |source| load_f16(source));
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn key_scores<E: Element>(
    keys: Rows<E>,
    queries: Rows<f32>,
    sums: &mut [f32],
    load: impl Fn(&[E; LANES]) -> float32x4_t + Copy,
) {
    assert_eq!(sums.len(), keys.count() * queries.count(), "one sum for each key and query");
    assert_eq!(keys.len(), queries.len(), "keys and queries of one length");
    sums.fill(0.0);
    let mut turned: [Turned; ELEMENTS] = [[[0.0; LANES]; REGISTERS]; ELEMENTS];
    for first_key in (0..keys.count()).step_by(KEYS) {
        for first in (0..keys.len()).step_by(ELEMENTS) {
            turn(keys, first_key, first, &mut turned, load);
            let turned = &turned[..ELEMENTS.min(keys.len() - first)];
            let tile = Tile { turned, first_key, keys: keys.count(), first, queries };
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
#[target_feature(enable = "neon,dotprod")]
fn turn<E: Element>(
    keys: Rows<E>,
    first_key: usize,
    first: usize,
    turned: &mut [Turned; ELEMENTS],
    load: impl Fn(&[E; LANES]) -> float32x4_t + Copy,
) {
    for register in 0..REGISTERS {
        let start = first_key + register * LANES;
        for (square, turned) in turned.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let at = first + square * LANES;
            if at >= keys.len() {
                break;
            }
            let elements = |key: usize| match keys.row(key)[at..].first_chunk() {
                Some(elements) => load(elements),
                None => load(&padded(&keys.row(key)[at..])),
            };
            let zero = vdupq_n_f32(0.0);
            let rows = std::array::from_fn(|i| if start + i < keys.count() { elements(start + i) } else { zero });
            for (turned, column) in turned.iter_mut().zip(transposed(rows)) {
                turned[register] = store(column);
            }
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
    #[target_feature(enable = "neon,dotprod")]
    fn add<const Q: usize>(&self, t: usize, sums: &mut [f32]) -> usize {
        let queries: [&[f32]; Q] = std::array::from_fn(|i| &self.queries.row(t + i)[self.first..][..self.turned.len()]);
        let count = KEYS.min(self.keys - self.first_key);
        let mut kept = [[[0.0; LANES]; REGISTERS]; Q];
        for (i, kept) in kept.iter_mut().enumerate() {
            let start = (t + i) * self.keys + self.first_key;
            kept.as_flattened_mut()[..count].copy_from_slice(&sums[start..start + count]);
        }
        let mut totals = kept.map(|kept| kept.map(|kept| load_f32(&kept)));
        for (element, turned) in self.turned.iter().enumerate() {
            let keys: [float32x4_t; REGISTERS] = std::array::from_fn(|register| load_f32(&turned[register]));
            for (totals, query) in totals.iter_mut().zip(&queries) {
                for (total, keys) in totals.iter_mut().zip(keys) {
                    *total = vfmaq_n_f32(*total, keys, query[element]);
                }
            }
        }
        for (i, totals) in totals.iter().enumerate() {
            let totals = totals.map(|total| store(total));
            let start = (t + i) * self.keys + self.first_key;
            sums[start..start + count].copy_from_slice(&totals.as_flattened()[..count]);
        }
        Q
    }
}

/// Rows become columns: lanes of pairs, then halves change places.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn transposed([a, b, c, d]: [float32x4_t; LANES]) -> [float32x4_t; LANES] {
    // Columns 0 and 2, then 1 and 3, of two rows.
    let pairs = |a, b| [vtrn1q_f32(a, b), vtrn2q_f32(a, b)].map(|pair| vreinterpretq_f64_f32(pair));
    let ([even, odd], [even_below, odd_below]) = (pairs(a, b), pairs(c, d));
    let columns = [
        vtrn1q_f64(even, even_below),
        vtrn1q_f64(odd, odd_below),
        vtrn2q_f64(even, even_below),
        vtrn2q_f64(odd, odd_below),
    ];
    columns.map(|column| vreinterpretq_f32_f64(column))
}
