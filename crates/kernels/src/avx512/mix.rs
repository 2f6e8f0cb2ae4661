//! Sums of weighed rows: four registers of sixteen places, and six queries that use a row's registers before the next.

use super::super::decode_q8_0::BLOCK_BYTES;
use super::super::element::Element;
use super::super::lanes::STEPS;
use super::super::rows::Rows;
use super::{LANES, ask_for_line, block_rows, load_f16, load_f32, store};
use crate::panel_block::BLOCK_LEN;
use half::f16;
use std::arch::x86_64::*;

/// How many rows ahead the cache's are asked for: they lie apart, and the processor does not guess them.
const ROWS_AHEAD: usize = 32;

/// Of f32.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn mix_f32(rows: Rows<f32>, weights: Rows<f32>, sums: &mut [f32]) {
    mix(rows, weights, sums, |source| load_f32(source));
}

/// Of f16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn mix_f16(rows: Rows<f16>, weights: Rows<f32>, sums: &mut [f32]) {
    mix(rows, weights, sums, |source| load_f16(source));
}

/// Of q8_0: whole blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn mix_q8_0(rows: Rows<u8>, weights: Rows<f32>, sums: &mut [f32]) {
    let len = block_rows::len_of(rows);
    let sizes = [rows.count(), len];
    mix_registers(sizes, weights, sums, |j, at| numbers::<4>(rows, j, at), |j, at| numbers::<2>(rows, j, at));
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn mix<E: Element>(rows: Rows<E>, weights: Rows<f32>, sums: &mut [f32], load: impl Fn(&[E; LANES]) -> __m512 + Copy) {
    let sizes = [rows.count(), rows.len()];
    let wide = |j, at| elements::<E, 4>(rows, j, at, load);
    let narrow = |j, at| elements::<E, 1>(rows, j, at, load);
    mix_registers(sizes, weights, sums, wide, narrow);
    rest(rows, weights, sums);
}

/// The places of so many rows of this length that fill registers. `wide` and `narrow` give those of a row from a place
/// on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn mix_registers<const N: usize>(
    [count, len]: [usize; 2],
    weights: Rows<f32>,
    sums: &mut [f32],
    wide: impl Fn(usize, usize) -> [__m512; 4] + Copy,
    narrow: impl Fn(usize, usize) -> [__m512; N] + Copy,
) {
    assert_eq!(count, weights.len(), "a weight for each row");
    assert_eq!(sums.len(), len * weights.count(), "a sum for each place and query");
    let mut t = 0;
    while t < weights.count() {
        match weights.count() - t {
            1 => t += places::<1, N>(len, weights, t, sums, wide, narrow),
            2 => t += places::<2, N>(len, weights, t, sums, wide, narrow),
            3 => t += places::<3, N>(len, weights, t, sums, wide, narrow),
            4 => t += places::<4, N>(len, weights, t, sums, wide, narrow),
            5 => t += places::<5, N>(len, weights, t, sums, wide, narrow),
            _ => t += places::<6, N>(len, weights, t, sums, wide, narrow),
        }
    }
}

/// All places of queries `t ... t + Q` that fill registers; gives `Q`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn places<const Q: usize, const N: usize>(
    len: usize,
    weights: Rows<f32>,
    t: usize,
    sums: &mut [f32],
    wide: impl Fn(usize, usize) -> [__m512; 4],
    narrow: impl Fn(usize, usize) -> [__m512; N],
) -> usize {
    let sums = &mut sums[t * len..][..Q * len];
    let weights: [&[f32]; Q] = std::array::from_fn(|i| weights.row(t + i));
    let mut first = 0;
    while len - first >= 4 * LANES {
        first += strip(len, &weights, first, sums, |j| wide(j, first));
    }
    while len - first >= N * LANES {
        first += strip(len, &weights, first, sums, |j| narrow(j, first));
    }
    Q
}

/// `16 V` elements of row `j`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn elements<E: Element, const V: usize>(
    rows: Rows<E>,
    j: usize,
    first: usize,
    load: impl Fn(&[E; LANES]) -> __m512,
) -> [__m512; V] {
    let row = &rows.row(j)[first..first + V * LANES];
    for line in (0..size_of_val(row)).step_by(64) {
        ask_for_line(row.as_ptr().wrapping_byte_add(line).wrapping_add(ROWS_AHEAD * rows.stride()));
    }
    let (chunks, _) = row.as_chunks::<LANES>();
    std::array::from_fn(|i| load(&chunks[i]))
}

/// `16 V` numbers of row `j`, whole blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn numbers<const V: usize>(rows: Rows<u8>, j: usize, first: usize) -> [__m512; V] {
    let row = &rows.row(j)[first / BLOCK_LEN * BLOCK_BYTES..][..V / 2 * BLOCK_BYTES];
    for line in (0..row.len()).step_by(64) {
        ask_for_line(row.as_ptr().wrapping_add(line + ROWS_AHEAD * rows.stride()));
    }
    let (blocks, _) = row.as_chunks();
    std::array::from_fn(|i| block_rows::half_of(&blocks[i / 2], i % 2))
}

/// `16 V` places from `first` on; gives how many.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn strip<const Q: usize, const V: usize>(
    len: usize,
    weights: &[&[f32]; Q],
    first: usize,
    sums: &mut [f32],
    values: impl Fn(usize) -> [__m512; V],
) -> usize {
    let count = weights.first().map_or(0, |weights| weights.len());
    let mut totals = [[_mm512_setzero_ps(); V]; Q];
    for (totals, sums) in totals.iter_mut().zip(sums.chunks_exact(len)) {
        for (total, sums) in totals.iter_mut().zip(sums[first..].as_chunks().0) {
            *total = load_f32(sums);
        }
    }
    for block in (0..count).step_by(STEPS) {
        let mut lanes = [[_mm512_setzero_ps(); V]; Q];
        for j in block..count.min(block + STEPS) {
            let values = values(j);
            for (lanes, weights) in lanes.iter_mut().zip(weights) {
                // SAFETY: the weights of all queries are as many as those of the first.
                let weight = unsafe { *weights.get_unchecked(j) };
                if weight != 0.0 {
                    let weight = _mm512_set1_ps(weight);
                    for (lane, value) in lanes.iter_mut().zip(values) {
                        *lane = _mm512_fmadd_ps(weight, value, *lane);
                    }
                }
            }
        }
        for (totals, lanes) in totals.iter_mut().zip(lanes) {
            for (total, lane) in totals.iter_mut().zip(lanes) {
                *total = _mm512_add_ps(*total, lane);
            }
        }
    }
    for (totals, sums) in totals.iter().zip(sums.chunks_exact_mut(len)) {
        for (total, sums) in totals.iter().zip(sums[first..].as_chunks_mut::<LANES>().0) {
            *sums = store(*total);
        }
    }
    V * LANES
}

/// The fewer than sixteen places behind those that fill registers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn rest<E: Element>(rows: Rows<E>, weights: Rows<f32>, sums: &mut [f32]) {
    let first = rows.len() / LANES * LANES;
    if first == rows.len() {
        return;
    }
    for (t, sums) in sums.chunks_exact_mut(rows.len()).enumerate() {
        let sums = &mut sums[first..];
        for (block, weights) in weights.row(t).chunks(STEPS).enumerate() {
            let mut short = [0.0; LANES];
            for (j, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
                for (sum, value) in short.iter_mut().zip(&rows.row(block * STEPS + j)[first..]) {
                    *sum = weight.mul_add(value.widen(), *sum);
                }
            }
            sums.iter_mut().zip(&short).for_each(|(sum, short)| *sum += short);
        }
    }
}
