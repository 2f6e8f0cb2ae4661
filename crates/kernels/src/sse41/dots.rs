//! Dot products: one row by one vector, with the 32 lanes in eight registers.

use super::super::element::Element;
use super::super::lanes::{DOT_LANES, STEPS, padded, sum_of_dot};
use super::super::rows::Rows;
use super::{LANES, load_bf16, load_f16, load_f32, multiply_add, store};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// Registers of the lanes.
const REGISTERS: usize = DOT_LANES / LANES;

/// Of f32.
#[target_feature(enable = "sse4.1,ssse3")]
pub fn dots_f32(rows: Rows<f32>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_f32(source));
}

/// Of f16.
#[target_feature(enable = "sse4.1,ssse3")]
pub fn dots_f16(rows: Rows<f16>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_f16(source));
}

/// Of bf16.
#[target_feature(enable = "sse4.1,ssse3")]
pub fn dots_bf16(rows: Rows<bf16>, xs: Rows<f32>, sums: &mut [f32]) {
    dots(rows, xs, sums, |source| load_bf16(source));
}

#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn dots<E: Element>(rows: Rows<E>, xs: Rows<f32>, sums: &mut [f32], load: impl Fn(&[E; LANES]) -> __m128 + Copy) {
    assert_eq!(sums.len(), rows.count() * xs.count(), "one sum for each row and vector");
    assert_eq!(rows.len(), xs.len(), "rows and vectors of one length");
    // All vectors use a row before the next is read.
    for r in 0..rows.count() {
        for t in 0..xs.count() {
            sums[t * rows.count() + r] = dot(rows.row(r), xs.row(t), load);
        }
    }
}

#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn dot<E: Element>(row: &[E], x: &[f32], load: impl Fn(&[E; LANES]) -> __m128 + Copy) -> f32 {
    let mut totals = [_mm_setzero_ps(); REGISTERS];
    for (row, x) in row.chunks(STEPS * DOT_LANES).zip(x.chunks(STEPS * DOT_LANES)) {
        let mut lanes = [_mm_setzero_ps(); REGISTERS];
        let ((rows, row_rest), (xs, x_rest)) = (row.as_chunks::<DOT_LANES>(), x.as_chunks::<DOT_LANES>());
        for (w, x) in rows.iter().zip(xs) {
            add_products(w, x, &mut lanes, load);
        }
        if !row_rest.is_empty() {
            add_products(&padded(row_rest), &padded(x_rest), &mut lanes, load);
        }
        for (total, lanes) in totals.iter_mut().zip(lanes) {
            *total = _mm_add_ps(*total, lanes);
        }
    }
    let mut sums = [0.0; DOT_LANES];
    for (sums, total) in sums.as_chunks_mut().0.iter_mut().zip(totals) {
        *sums = store(total);
    }
    sum_of_dot(sums)
}

/// One chunk of a row and a vector.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn add_products<E: Element>(
    w: &[E; DOT_LANES],
    x: &[f32; DOT_LANES],
    lanes: &mut [__m128; REGISTERS],
    load: impl Fn(&[E; LANES]) -> __m128 + Copy,
) {
    for ((lanes, w), x) in lanes.iter_mut().zip(w.as_chunks().0).zip(x.as_chunks().0) {
        *lanes = multiply_add(load(w), load_f32(x), *lanes);
    }
}
