//! Dot products: tiles of one row by one vector with all 32 lanes in eight registers, or of four rows by three vectors
//! with eight lanes at a time, which read what they need again from the nearest cache.

use super::super::element::Element;
use super::super::lanes::{DOT_LANES, STEPS, padded};
use super::super::rows::Rows;
use super::{LANES, load_bf16, load_f16, load_f32};
use half::{bf16, f16};
use std::arch::aarch64::*;

/// Registers of a pair's lanes.
const REGISTERS: usize = DOT_LANES / LANES;

/// Of f32.
#[target_feature(enable = "neon,dotprod")]
pub fn dots_f32(rows: Rows<f32>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_f32(source));
}

/// Of f16.
#[target_feature(enable = "neon,dotprod")]
pub fn dots_f16(rows: Rows<f16>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_f16(source));
}

/// Of bf16.
#[target_feature(enable = "neon,dotprod")]
pub fn dots_bf16(rows: Rows<bf16>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_bf16(source));
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dots<E: Element>(rows: Rows<E>, xs: Rows<f32>, sums: &mut [f32], load: impl Fn(&[E; LANES]) -> float32x4_t + Copy) {
    assert_eq!(sums.len(), rows.count() * xs.count(), "one sum for each row and vector");
    assert_eq!(rows.len(), xs.len(), "rows and vectors of one length");
    let mut t = 0;
    while t < xs.count() {
        match xs.count() - t {
            1 => t += strip::<E, 1, 1, REGISTERS>(rows, xs, t, sums, load),
            2 => t += strip::<E, 4, 2, 2>(rows, xs, t, sums, load),
            _ => t += strip::<E, 4, 3, 2>(rows, xs, t, sums, load),
        }
    }
}

/// All rows, `R` at a time, with vectors `t ... t + T`; gives `T`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn strip<E: Element, const R: usize, const T: usize, const V: usize>(
    rows: Rows<E>,
    xs: Rows<f32>,
    t: usize,
    sums: &mut [f32],
    load: impl Fn(&[E; LANES]) -> float32x4_t + Copy,
) -> usize {
    let mut r = 0;
    while r < rows.count() {
        if r + R <= rows.count() {
            r += tile::<E, R, T, V>(rows, r, xs, t, sums, load);
        } else {
            r += tile::<E, 1, T, V>(rows, r, xs, t, sums, load);
        }
    }
    T
}

/// Some registers of lanes of each pair of a tile.
type Lanes<const R: usize, const T: usize, const V: usize> = [[[float32x4_t; V]; T]; R];

/// Rows `r ... r + R` with vectors `t ... t + T`, `V` registers of each pair's lanes at a time; gives `R`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn tile<E: Element, const R: usize, const T: usize, const V: usize>(
    rows: Rows<E>,
    r: usize,
    xs: Rows<f32>,
    t: usize,
    sums: &mut [f32],
    load: impl Fn(&[E; LANES]) -> float32x4_t + Copy,
) -> usize {
    let weights: [(&[[E; DOT_LANES]], &[E]); R] = std::array::from_fn(|i| rows.row(r + i).as_chunks());
    let vectors: [(&[[f32; DOT_LANES]], &[f32]); T] = std::array::from_fn(|i| xs.row(t + i).as_chunks());
    let (chunks, rest) = (rows.len() / DOT_LANES, !rows.len().is_multiple_of(DOT_LANES));
    let mut totals: Lanes<R, T, REGISTERS> = [[[vdupq_n_f32(0.0); REGISTERS]; T]; R];
    for first in (0..chunks + usize::from(rest)).step_by(STEPS) {
        for part in 0..REGISTERS / V {
            let mut lanes: Lanes<R, T, V> = [[[vdupq_n_f32(0.0); V]; T]; R];
            for c in first..chunks.min(first + STEPS) {
                // SAFETY: rows and vectors have one length, as `dots` asserts, and therefore `chunks` whole chunks
                // each.
                let (w, x) = unsafe { (weights.map(|w| w.0.get_unchecked(c)), vectors.map(|x| x.0.get_unchecked(c))) };
                multiply_add(&w, &x, part, &mut lanes, load);
            }
            if rest && chunks < first + STEPS {
                let (w, x) = (weights.map(|w| padded(w.1)), vectors.map(|x| padded(x.1)));
                multiply_add(&w.each_ref(), &x.each_ref(), part, &mut lanes, load);
            }
            for (totals, lanes) in totals.as_flattened_mut().iter_mut().zip(lanes.as_flattened()) {
                for (total, lanes) in totals[part * V..][..V].iter_mut().zip(lanes) {
                    *total = vaddq_f32(*total, *lanes);
                }
            }
        }
    }
    for (i, totals) in totals.iter().enumerate() {
        for (j, totals) in totals.iter().enumerate() {
            sums[(t + j) * rows.count() + r + i] = sum(totals);
        }
    }
    R
}

/// Registers `V part ...` of one chunk of each row and vector.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn multiply_add<E: Element, const R: usize, const T: usize, const V: usize>(
    weights: &[&[E; DOT_LANES]; R],
    vectors: &[&[f32; DOT_LANES]; T],
    part: usize,
    lanes: &mut Lanes<R, T, V>,
    load: impl Fn(&[E; LANES]) -> float32x4_t + Copy,
) {
    let vectors = vectors.map(|x| &x.as_chunks::<LANES>().0[part * V..][..V]);
    for (lanes, weights) in lanes.iter_mut().zip(weights) {
        for (i, weights) in weights.as_chunks::<LANES>().0[part * V..][..V].iter().enumerate() {
            let w = load(weights);
            for (lanes, x) in lanes.iter_mut().zip(vectors) {
                lanes[i] = vfmaq_f32(lanes[i], w, load_f32(&x[i]));
            }
        }
    }
}

/// Adds the 32 lanes in f64, each with the one 16, 8, 4, 2, 1 further, and rounds once.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sum(lanes: &[float32x4_t; REGISTERS]) -> f32 {
    let low = |register: usize| vcvt_f64_f32(vget_low_f32(lanes[register]));
    let high = |register: usize| vcvt_high_f64_f32(lanes[register]);
    let sixteen: [[float64x2_t; 2]; 4] =
        std::array::from_fn(|i| [vaddq_f64(low(i), low(i + 4)), vaddq_f64(high(i), high(i + 4))]);
    let four = |half: usize| {
        let first = vaddq_f64(sixteen[0][half], sixteen[2][half]);
        vaddq_f64(first, vaddq_f64(sixteen[1][half], sixteen[3][half]))
    };
    vpaddd_f64(vaddq_f64(four(0), four(1))) as f32
}
