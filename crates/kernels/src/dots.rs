//! Dot products of some rows with some vectors.
//!
//! ```text
//!  element k ─▶ lane k % 32, one after the other for 16 steps ─▶ added to the lane's total ─▶ ... ─▶ totals added in f64
//! ```

use super::element::Element;
use super::kernel;
use super::lanes::{DOT_LANES, STEPS, padded, sum_of_dot};
use super::rows::Rows;
#[cfg(feature = "samples")]
use super::samples::numbers;
#[cfg(feature = "samples")]
use crate::isa::Instructions;
use half::{bf16, f16};

kernel! {
    /// `sums[r + rows * t] = rows[r] . xs[t]`.
    fn dots_f32(rows: Rows<f32>, xs: Rows<f32>, sums: &mut [f32]) {
        avx512 => super::avx512::dots::dots_f32,
        avx2 => super::avx2::dots::dots_f32,
        sse41 => super::sse41::dots::dots_f32,
        neon => super::neon::dots::dots_f32,
        scalar => dots,
    }
    dots_f32_samples on samples_f32
}

kernel! {
    /// As [`dots_f32`], of f16.
    fn dots_f16(rows: Rows<f16>, xs: Rows<f32>, sums: &mut [f32]) {
        avx512 => super::avx512::dots::dots_f16,
        avx2 => super::avx2::dots::dots_f16,
        sse41 => super::sse41::dots::dots_f16,
        neon => super::neon::dots::dots_f16,
        scalar => dots,
    }
    dots_f16_samples on samples_f16
}

kernel! {
    /// As [`dots_f32`], of bf16.
    fn dots_bf16(rows: Rows<bf16>, xs: Rows<f32>, sums: &mut [f32]) {
        avx512 => super::avx512::dots::dots_bf16,
        avx2 => super::avx2::dots::dots_bf16,
        sse41 => super::sse41::dots::dots_bf16,
        neon => super::neon::dots::dots_bf16,
        scalar => dots,
    }
    dots_bf16_samples on samples_bf16
}

fn dots<E: Element>(rows: Rows<E>, xs: Rows<f32>, sums: &mut [f32]) {
    assert_eq!(sums.len(), rows.count() * xs.count(), "one sum for each row and vector");
    for t in 0..xs.count() {
        for r in 0..rows.count() {
            sums[t * rows.count() + r] = dot(rows.row(r), xs.row(t));
        }
    }
}

fn dot<E: Element>(row: &[E], x: &[f32]) -> f32 {
    assert_eq!(row.len(), x.len(), "rows and vectors of one length");
    let mut totals = [0.0; DOT_LANES];
    let blocks = row.chunks(STEPS * DOT_LANES).zip(x.chunks(STEPS * DOT_LANES));
    for (row, x) in blocks {
        let mut sums = [0.0; DOT_LANES];
        for (w, x) in row.chunks(DOT_LANES).zip(x.chunks(DOT_LANES)) {
            let (w, x) = (padded::<E, DOT_LANES>(w), padded::<f32, DOT_LANES>(x));
            sums = std::array::from_fn(|lane| w[lane].widen().mul_add(x[lane], sums[lane]));
        }
        totals = std::array::from_fn(|lane| totals[lane] + sums[lane]);
    }
    sum_of_dot(totals)
}

/// Rows 1 to 9 and vectors 1 to 7 of odd lengths; the cells of rows that are not looked at are NaN.
#[cfg(feature = "samples")]
fn samples<E: Element>(
    instructions: Instructions,
    narrow: fn(f32) -> E,
    dots: fn(Instructions, Rows<E>, Rows<f32>, &mut [f32]),
) -> Vec<f32> {
    let mut results = Vec::new();
    for len in [0, 1, 7, 31, 32, 33, 64, 255, 256, 257, 600, 1100] {
        for (rows, tokens) in [(1, 1), (4, 3), (9, 1), (5, 4), (8, 2), (3, 7)] {
            let stride = len + 3;
            let mut cells: Vec<E> = numbers(rows * stride, 7 + len as u32).into_iter().map(narrow).collect();
            for row in cells.chunks_mut(stride) {
                row[len..].fill(narrow(f32::NAN));
            }
            let xs = numbers(tokens * len, 11 + len as u32);
            let mut sums = vec![f32::NAN; rows * tokens];
            let rows = Rows::strided(&cells, rows, len, stride);
            dots(instructions, rows, Rows::dense(&xs, tokens, len), &mut sums);
            assert!(sums.iter().all(|sum| sum.is_finite()), "sums of length {len} look beyond their rows");
            results.extend(sums);
        }
    }
    results
}

#[cfg(feature = "samples")]
fn samples_f32(instructions: Instructions) -> Vec<f32> {
    samples(instructions, |number| number, dots_f32)
}

#[cfg(feature = "samples")]
fn samples_f16(instructions: Instructions) -> Vec<f32> {
    samples(instructions, f16::from_f32, dots_f16)
}

#[cfg(feature = "samples")]
fn samples_bf16(instructions: Instructions) -> Vec<f32> {
    samples(instructions, bf16::from_f32, dots_bf16)
}
