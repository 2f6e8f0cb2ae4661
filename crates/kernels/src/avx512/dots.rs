//! Dot products: tiles of four rows by three vectors, or of one row by one, each pair with its 32 lanes in two
//! registers.

use super::super::element::Element;
use super::super::lanes::{DOT_LANES, STEPS, padded};
use super::super::rows::Rows;
use super::{LANES, ask_for_soon, load_bf16, load_f16, load_f32, prefetch_streamed};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// Registers of a pair's lanes.
const REGISTERS: usize = DOT_LANES / LANES;

/// Of f32.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn dots_f32(rows: Rows<f32>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_f32(source));
}

/// Of f16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn dots_f16(rows: Rows<f16>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_f16(source));
}

/// Of bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn dots_bf16(rows: Rows<bf16>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_bf16(source));
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn dots<E: Element>(rows: Rows<E>, xs: Rows<f32>, sums: &mut [f32], load: impl Fn(&[E; LANES]) -> __m512 + Copy) {
    assert_eq!(sums.len(), rows.count() * xs.count(), "one sum for each row and vector");
    assert_eq!(rows.len(), xs.len(), "rows and vectors of one length");
    let mut t = 0;
    while t < xs.count() {
        match xs.count() - t {
            1 => t += strip::<E, 1, 1>(rows, xs, t, sums, load),
            // Two pairs are faster than three and a single one.
            2 | 4 => t += strip::<E, 4, 2>(rows, xs, t, sums, load),
            _ => t += strip::<E, 4, 3>(rows, xs, t, sums, load),
        }
    }
}

/// All rows, `R` at a time, with vectors `t ... t + T`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn strip<E: Element, const R: usize, const T: usize>(
    rows: Rows<E>,
    xs: Rows<f32>,
    t: usize,
    sums: &mut [f32],
    load: impl Fn(&[E; LANES]) -> __m512 + Copy,
) -> usize {
    let mut r = 0;
    while r < rows.count() {
        if r + R <= rows.count() {
            r += tile::<E, R, T>(rows, r, xs, t, sums, load);
        } else {
            r += tile::<E, 1, T>(rows, r, xs, t, sums, load);
        }
    }
    T
}

/// The lanes of each pair of a tile.
type Lanes<const R: usize, const T: usize> = [[[__m512; REGISTERS]; T]; R];

/// Rows `r ... r + R` with vectors `t ... t + T`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn tile<E: Element, const R: usize, const T: usize>(
    rows: Rows<E>,
    r: usize,
    xs: Rows<f32>,
    t: usize,
    sums: &mut [f32],
    load: impl Fn(&[E; LANES]) -> __m512 + Copy,
) -> usize {
    let weights: [(&[[E; DOT_LANES]], &[E]); R] = std::array::from_fn(|i| rows.row(r + i).as_chunks());
    let vectors: [(&[[f32; DOT_LANES]], &[f32]); T] = std::array::from_fn(|i| xs.row(t + i).as_chunks());
    let zeros: Lanes<R, T> = [[[_mm512_setzero_ps(); REGISTERS]; T]; R];
    let (chunks, rest) = (rows.len() / DOT_LANES, !rows.len().is_multiple_of(DOT_LANES));
    let mut totals = zeros;
    for first in (0..chunks + usize::from(rest)).step_by(STEPS) {
        let mut lanes = zeros;
        for c in first..chunks.min(first + STEPS) {
            // SAFETY: rows and vectors have one length, as `dots` asserts, and therefore `chunks` whole chunks each.
            let (w, x) = unsafe { (weights.map(|w| w.0.get_unchecked(c)), vectors.map(|x| x.0.get_unchecked(c))) };
            multiply_add(&w, &x, &mut lanes, load);
        }
        if rest && chunks < first + STEPS {
            let (w, x) = (weights.map(|w| padded(w.1)), vectors.map(|x| padded(x.1)));
            multiply_add(&w.each_ref(), &x.each_ref(), &mut lanes, load);
        }
        for (totals, lanes) in
            totals.as_flattened_mut().as_flattened_mut().iter_mut().zip(lanes.as_flattened().as_flattened())
        {
            *totals = _mm512_add_ps(*totals, *lanes);
        }
    }
    for (i, totals) in totals.iter().enumerate() {
        for (j, totals) in totals.iter().enumerate() {
            sums[(t + j) * rows.count() + r + i] = sum(totals);
        }
    }
    R
}

/// One chunk of each row and vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn multiply_add<E: Element, const R: usize, const T: usize>(
    weights: &[&[E; DOT_LANES]; R],
    vectors: &[&[f32; DOT_LANES]; T],
    lanes: &mut Lanes<R, T>,
    load: impl Fn(&[E; LANES]) -> __m512 + Copy,
) {
    for (lanes, weights) in lanes.iter_mut().zip(weights) {
        if T == 1 {
            prefetch_streamed(*weights);
        } else {
            ask_for_soon(*weights);
        }
        for (register, weights) in weights.as_chunks().0.iter().enumerate() {
            let w = load(weights);
            for (lanes, vector) in lanes.iter_mut().zip(vectors) {
                let x = load_f32(&vector.as_chunks().0[register]);
                lanes[register] = _mm512_fmadd_ps(w, x, lanes[register]);
            }
        }
    }
}

/// Adds the 32 lanes in f64, each with the one 16, 8, 4, 2, 1 further, and rounds once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn sum(lanes: &[__m512; REGISTERS]) -> f32 {
    let low = |lanes| _mm512_cvtps_pd(_mm512_castps512_ps256(lanes));
    let high = |lanes| _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(lanes))));
    let eights =
        _mm512_add_pd(_mm512_add_pd(low(lanes[0]), low(lanes[1])), _mm512_add_pd(high(lanes[0]), high(lanes[1])));
    let fours = _mm256_add_pd(_mm512_castpd512_pd256(eights), _mm512_extractf64x4_pd::<1>(eights));
    let twos = _mm_add_pd(_mm256_castpd256_pd128(fours), _mm256_extractf128_pd::<1>(fours));
    let one = _mm_add_sd(twos, _mm_unpackhi_pd(twos, twos));
    _mm_cvtsd_f64(one) as f32
}
