//! Sums of weighed rows: up to six queries use a row's registers before the next are loaded.

use super::super::element::Element;
use super::super::lanes::STEPS;
use super::super::rows::Rows;
use super::{LANES, load_f16, load_f32, store};
use half::f16;
use std::arch::aarch64::*;

/// Of f32.
#[target_feature(enable = "neon,dotprod")]
pub fn mix_f32(rows: Rows<f32>, weights: Rows<f32>, sums: &mut [f32]) {
    mix(rows, weights, sums, |source| load_f32(source));
}

/// Of f16.
#[target_feature(enable = "neon,dotprod")]
pub fn mix_f16(rows: Rows<f16>, weights: Rows<f32>, sums: &mut [f32]) {
    mix(rows, weights, sums, |source| load_f16(source));
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn mix<E: Element>(
    rows: Rows<E>,
    weights: Rows<f32>,
    sums: &mut [f32],
    load: impl Fn(&[E; LANES]) -> float32x4_t + Copy,
) {
    assert_eq!(rows.count(), weights.len(), "a weight for each row");
    assert_eq!(sums.len(), rows.len() * weights.count(), "a sum for each place and query");
    let mut t = 0;
    while t < weights.count() {
        match weights.count() - t {
            1 => t += places::<E, 1, 8>(rows, weights, t, sums, load),
            2 => t += places::<E, 2, 8>(rows, weights, t, sums, load),
            3 => t += places::<E, 3, 4>(rows, weights, t, sums, load),
            4 => t += places::<E, 4, 4>(rows, weights, t, sums, load),
            5 => t += places::<E, 5, 4>(rows, weights, t, sums, load),
            _ => t += places::<E, 6, 4>(rows, weights, t, sums, load),
        }
    }
}

/// All places of queries `t ... t + Q`, `V` registers of them at a time; gives `Q`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn places<E: Element, const Q: usize, const V: usize>(
    rows: Rows<E>,
    weights: Rows<f32>,
    t: usize,
    sums: &mut [f32],
    load: impl Fn(&[E; LANES]) -> float32x4_t + Copy,
) -> usize {
    let len = rows.len();
    let sums = &mut sums[t * len..][..Q * len];
    let weights: [&[f32]; Q] = std::array::from_fn(|i| weights.row(t + i));
    let mut first = 0;
    while first < len {
        first += match (len - first) / LANES {
            0 => rest(rows, &weights, first, sums),
            registers if registers < V => strip::<E, Q, 1>(rows, &weights, first, sums, load),
            _ => strip::<E, Q, V>(rows, &weights, first, sums, load),
        };
    }
    Q
}

/// `4 V` places from `first` on; gives how many.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn strip<E: Element, const Q: usize, const V: usize>(
    rows: Rows<E>,
    weights: &[&[f32]; Q],
    first: usize,
    sums: &mut [f32],
    load: impl Fn(&[E; LANES]) -> float32x4_t + Copy,
) -> usize {
    let mut totals = [[vdupq_n_f32(0.0); V]; Q];
    for (totals, sums) in totals.iter_mut().zip(sums.chunks_exact(rows.len())) {
        for (total, sums) in totals.iter_mut().zip(sums[first..].as_chunks().0) {
            *total = load_f32(sums);
        }
    }
    for block in (0..rows.count()).step_by(STEPS) {
        let mut lanes = [[vdupq_n_f32(0.0); V]; Q];
        for j in block..rows.count().min(block + STEPS) {
            let (chunks, _) = rows.row(j)[first..first + V * LANES].as_chunks::<LANES>();
            let values: [float32x4_t; V] = std::array::from_fn(|i| load(&chunks[i]));
            for (lanes, weights) in lanes.iter_mut().zip(weights) {
                // SAFETY: each query has a weight for each row, as `mix` asserts.
                let weight = unsafe { *weights.get_unchecked(j) };
                if weight != 0.0 {
                    for (lane, value) in lanes.iter_mut().zip(values) {
                        *lane = vfmaq_n_f32(*lane, value, weight);
                    }
                }
            }
        }
        for (totals, lanes) in totals.iter_mut().zip(lanes) {
            for (total, lane) in totals.iter_mut().zip(lanes) {
                *total = vaddq_f32(*total, lane);
            }
        }
    }
    for (totals, sums) in totals.iter().zip(sums.chunks_exact_mut(rows.len())) {
        for (total, sums) in totals.iter().zip(sums[first..].as_chunks_mut::<LANES>().0) {
            *sums = store(*total);
        }
    }
    V * LANES
}

/// The fewer than four places from `first` on; gives how many.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn rest<E: Element, const Q: usize>(rows: Rows<E>, weights: &[&[f32]; Q], first: usize, sums: &mut [f32]) -> usize {
    for (weights, sums) in weights.iter().zip(sums.chunks_exact_mut(rows.len())) {
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
    }
    rows.len() - first
}
