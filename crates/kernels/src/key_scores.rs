//! Dot products of some queries with many keys, each one after the other along the head: registers hold one element of
//! many keys.
//!
//! ```text
//!  keys, row after row ── turned over, some at a time ──▶ element 0 of all keys, element 1 of all keys, ...
//!                                                         sum of each key += its element * the query's
//! ```

use super::element::Element;
use super::kernel;
use super::rows::Rows;
#[cfg(feature = "samples")]
use super::samples::numbers;
#[cfg(feature = "samples")]
use crate::isa::Instructions;
use half::f16;

kernel! {
    /// `sums[j + keys * t] = keys[j] . queries[t]`, element after element.
    fn key_scores_f32(keys: Rows<f32>, queries: Rows<f32>, sums: &mut [f32]) {
        avx512 => super::avx512::key_scores::key_scores_f32,
        avx2 => super::avx2::key_scores::key_scores_f32,
        sse41 => super::sse41::key_scores::key_scores_f32,
        neon => super::neon::key_scores::key_scores_f32,
        scalar => key_scores,
    }
    key_scores_f32_samples on samples_f32
}

kernel! {
    /// As [`key_scores_f32`], of keys in f16.
    fn key_scores_f16(keys: Rows<f16>, queries: Rows<f32>, sums: &mut [f32]) {
        avx512 => super::avx512::key_scores::key_scores_f16,
        avx2 => super::avx2::key_scores::key_scores_f16,
        sse41 => super::sse41::key_scores::key_scores_f16,
        neon => super::neon::key_scores::key_scores_f16,
        scalar => key_scores,
    }
    key_scores_f16_samples on samples_f16
}

pub(super) fn key_scores<E: Element>(keys: Rows<E>, queries: Rows<f32>, sums: &mut [f32]) {
    assert_eq!(sums.len(), keys.count() * queries.count(), "one sum for each key and query");
    assert_eq!(keys.len(), queries.len(), "keys and queries of one length");
    for t in 0..queries.count() {
        for j in 0..keys.count() {
            let pairs = keys.row(j).iter().zip(queries.row(t));
            sums[t * keys.count() + j] = pairs.fold(0.0, |sum, (k, q)| k.widen().mul_add(*q, sum));
        }
    }
}

/// Heads of odd lengths, keys and queries that fill no register; the cells between the rows are NaN.
#[cfg(feature = "samples")]
fn samples<E: Element>(
    instructions: Instructions,
    narrow: fn(f32) -> E,
    key_scores: fn(Instructions, Rows<E>, Rows<f32>, &mut [f32]),
) -> Vec<f32> {
    let mut results = Vec::new();
    for len in [0, 1, 7, 16, 31, 64, 65, 80, 128, 130] {
        for (keys, queries) in [(1, 1), (8, 2), (9, 3), (64, 6), (65, 4), (130, 7), (3, 13)] {
            let stride = len + 3;
            let mut cells: Vec<E> = numbers(keys * stride, 7 + len as u32).into_iter().map(narrow).collect();
            for row in cells.chunks_mut(stride) {
                row[len..].fill(narrow(f32::NAN));
            }
            let xs = numbers(queries * len, 11 + len as u32);
            let mut sums = vec![f32::NAN; keys * queries];
            let keys = Rows::strided(&cells, keys, len, stride);
            key_scores(instructions, keys, Rows::dense(&xs, queries, len), &mut sums);
            assert!(sums.iter().all(|sum| sum.is_finite()), "sums of length {len} look beyond their rows");
            results.extend(sums);
        }
    }
    results
}

#[cfg(feature = "samples")]
fn samples_f32(instructions: Instructions) -> Vec<f32> {
    samples(instructions, |number| number, key_scores_f32)
}

#[cfg(feature = "samples")]
fn samples_f16(instructions: Instructions) -> Vec<f32> {
    samples(instructions, f16::from_f32, key_scores_f16)
}
