//! Dot products: tiles of up to four rows by three vectors, each pair with a register of eight lanes.

use super::super::element::Element;
use super::super::lanes::{LANES, padded, sum};
use super::super::rows::Rows;
use super::{load_bf16, load_f16, load_f32, store};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// Of f32.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn dots_f32(rows: Rows<f32>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_f32(source));
}

/// Of f16.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn dots_f16(rows: Rows<f16>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_f16(source));
}

/// Of bf16.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn dots_bf16(rows: Rows<bf16>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_bf16(source));
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dots<E: Element>(rows: Rows<E>, xs: Rows<f32>, sums: &mut [f32], load: impl Fn(&[E; LANES]) -> __m256 + Copy) {
    assert_eq!(sums.len(), rows.count() * xs.count(), "one sum for each row and vector");
    assert_eq!(rows.len(), xs.len(), "rows and vectors of one length");
    let mut t = 0;
    while t < xs.count() {
        match xs.count() - t {
            1 => t += strip::<E, 1>(rows, xs, t, sums, load),
            2 => t += strip::<E, 2>(rows, xs, t, sums, load),
            _ => t += strip::<E, 3>(rows, xs, t, sums, load),
        }
    }
}

/// All rows with vectors `t ... t + T`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn strip<E: Element, const T: usize>(
    rows: Rows<E>,
    xs: Rows<f32>,
    t: usize,
    sums: &mut [f32],
    load: impl Fn(&[E; LANES]) -> __m256 + Copy,
) -> usize {
    let mut r = 0;
    while r < rows.count() {
        if r + 4 <= rows.count() {
            r += tile::<E, 4, T>(rows, r, xs, t, sums, load);
        } else {
            r += tile::<E, 1, T>(rows, r, xs, t, sums, load);
        }
    }
    T
}

/// Rows `r ... r + R` with vectors `t ... t + T`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<E: Element, const R: usize, const T: usize>(
    rows: Rows<E>,
    r: usize,
    xs: Rows<f32>,
    t: usize,
    sums: &mut [f32],
    load: impl Fn(&[E; LANES]) -> __m256 + Copy,
) -> usize {
    let weights: [(&[[E; LANES]], &[E]); R] = std::array::from_fn(|i| rows.row(r + i).as_chunks());
    let vectors: [(&[[f32; LANES]], &[f32]); T] = std::array::from_fn(|i| xs.row(t + i).as_chunks());
    let chunks = rows.len() / LANES;
    let mut lanes = [[_mm256_setzero_ps(); T]; R];
    for c in 0..chunks {
        let mut x = [_mm256_setzero_ps(); T];
        for i in 0..T {
            // SAFETY: rows and vectors have one length, as `dots` asserts, and therefore `chunks` whole chunks each.
            x[i] = load_f32(unsafe { vectors[i].0.get_unchecked(c) });
        }
        for (lanes, weights) in lanes.iter_mut().zip(&weights) {
            // SAFETY: as above.
            let w = load(unsafe { weights.0.get_unchecked(c) });
            for i in 0..T {
                lanes[i] = _mm256_fmadd_ps(w, x[i], lanes[i]);
            }
        }
    }
    for (i, (lanes, weights)) in lanes.iter_mut().zip(&weights).enumerate() {
        for (j, (lanes, vector)) in lanes.iter_mut().zip(&vectors).enumerate() {
            if !weights.1.is_empty() {
                *lanes = _mm256_fmadd_ps(load(&padded(weights.1)), load_f32(&padded(vector.1)), *lanes);
            }
            sums[(t + j) * rows.count() + r + i] = sum(store(*lanes));
        }
    }
    R
}
