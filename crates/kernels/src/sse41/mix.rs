//! Sums of weighed rows: four registers of four places at a time, row after row.

use super::super::element::Element;
use super::super::lanes::STEPS;
use super::super::rows::Rows;
use super::{LANES, load_f16, load_f32, multiply_add, store};
use half::f16;
use std::arch::x86_64::*;

/// Of f32.
#[target_feature(enable = "sse4.1,ssse3")]
pub fn mix_f32(rows: Rows<f32>, weights: Rows<f32>, sums: &mut [f32]) {
    mix(rows, weights, sums, |source| load_f32(source));
}

/// Of f16.
#[target_feature(enable = "sse4.1,ssse3")]
pub fn mix_f16(rows: Rows<f16>, weights: Rows<f32>, sums: &mut [f32]) {
    mix(rows, weights, sums, |source| load_f16(source));
}

#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn mix<E: Element>(rows: Rows<E>, weights: Rows<f32>, sums: &mut [f32], load: impl Fn(&[E; LANES]) -> __m128 + Copy) {
    assert_eq!(rows.count(), weights.len(), "a weight for each row");
    assert_eq!(sums.len(), rows.len() * weights.count(), "a sum for each place and query");
    for t in 0..weights.count() {
        let (weights, sums) = (weights.row(t), &mut sums[t * rows.len()..][..rows.len()]);
        let mut first = 0;
        while first < sums.len() {
            match (sums.len() - first) / LANES {
                0 => first += rest(rows, weights, first, sums),
                1..4 => first += strip::<E, 1>(rows, weights, first, sums, load),
                _ => first += strip::<E, 4>(rows, weights, first, sums, load),
            }
        }
    }
}

/// `4 V` places from `first` on.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn strip<E: Element, const V: usize>(
    rows: Rows<E>,
    weights: &[f32],
    first: usize,
    sums: &mut [f32],
    load: impl Fn(&[E; LANES]) -> __m128 + Copy,
) -> usize {
    let mut totals = [_mm_setzero_ps(); V];
    for (total, sums) in totals.iter_mut().zip(sums[first..].as_chunks().0) {
        *total = load_f32(sums);
    }
    for (block, weights) in weights.chunks(STEPS).enumerate() {
        let mut lanes = [_mm_setzero_ps(); V];
        for (j, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
            let (chunks, _) = rows.row(block * STEPS + j)[first..first + V * LANES].as_chunks::<LANES>();
            let weight = _mm_set1_ps(*weight);
            for i in 0..V {
                lanes[i] = multiply_add(weight, load(&chunks[i]), lanes[i]);
            }
        }
        for i in 0..V {
            totals[i] = _mm_add_ps(totals[i], lanes[i]);
        }
    }
    for (totals, sums) in totals.into_iter().zip(sums[first..].as_chunks_mut::<LANES>().0) {
        *sums = store(totals);
    }
    V * LANES
}

/// The fewer than four places from `first` on.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn rest<E: Element>(rows: Rows<E>, weights: &[f32], first: usize, sums: &mut [f32]) -> usize {
    let sums = &mut sums[first..];
    for (block, weights) in weights.chunks(STEPS).enumerate() {
        let mut short = [0.0; LANES];
        for (j, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
            for (sum, value) in short.iter_mut().zip(&rows.row(block * STEPS + j)[first..]) {
                *sum = weight.mul_add(value.widen(), *sum);
            }
        }
        sums.iter_mut().zip(&short).for_each(|(sum, short)| *sum += short);
    }
    sums.len()
}
