//! A sum of rows, each with its weight.

use super::element::Element;
use super::kernel;
use super::lanes::STEPS;
use super::rows::Rows;
#[cfg(feature = "samples")]
use super::samples::numbers;
#[cfg(feature = "samples")]
use crate::isa::Instructions;
use half::f16;

kernel! {
    /// `sums[d + len * t] += sum over j of weights[t][j] * rows[j][d]`, one row after the other for [`STEPS`] rows,
    /// whose sum is added to the total: rows may come in several calls, each but the last of a multiple of so many.
    ///
    /// Rows of weight 0 are not read: a position that is not seen may hold anything, and 0 times infinity is NaN.
    fn mix_f32(rows: Rows<f32>, weights: Rows<f32>, sums: &mut [f32]) {
        avx512 => super::avx512::mix::mix_f32,
        avx2 => super::avx2::mix::mix_f32,
        sse41 => super::sse41::mix::mix_f32,
        neon => super::neon::mix::mix_f32,
        scalar => mix,
    }
    mix_f32_samples on samples_f32
}

kernel! {
    /// As [`mix_f32`], of f16.
    fn mix_f16(rows: Rows<f16>, weights: Rows<f32>, sums: &mut [f32]) {
        avx512 => super::avx512::mix::mix_f16,
        avx2 => super::avx2::mix::mix_f16,
        sse41 => super::sse41::mix::mix_f16,
        neon => super::neon::mix::mix_f16,
        scalar => mix,
    }
    mix_f16_samples on samples_f16
}

pub(super) fn mix<E: Element>(rows: Rows<E>, weights: Rows<f32>, sums: &mut [f32]) {
    assert_eq!(rows.count(), weights.len(), "a weight for each row");
    assert_eq!(sums.len(), rows.len() * weights.count(), "a sum for each place and query");
    for t in 0..weights.count() {
        mix_one(rows, weights.row(t), &mut sums[t * rows.len()..][..rows.len()]);
    }
}

fn mix_one<E: Element>(rows: Rows<E>, weights: &[f32], sums: &mut [f32]) {
    let mut short = vec![0.0; sums.len()];
    for (block, weights) in weights.chunks(STEPS).enumerate() {
        short.fill(0.0);
        for (j, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
            for (sum, value) in short.iter_mut().zip(rows.row(block * STEPS + j)) {
                *sum = weight.mul_add(value.widen(), *sum);
            }
        }
        sums.iter_mut().zip(&short).for_each(|(sum, short)| *sum += short);
    }
}

#[cfg(feature = "samples")]
fn samples<E: Element>(
    instructions: Instructions,
    narrow: fn(f32) -> E,
    mix: fn(Instructions, Rows<E>, Rows<f32>, &mut [f32]),
) -> Vec<f32> {
    let mut results = Vec::new();
    for len in [1, 7, 8, 16, 33, 64, 80, 129, 257] {
        for (count, queries) in [(0, 1), (1, 2), (2, 3), (8, 1), (65, 7), (9, 4), (17, 11)] {
            let mut cells: Vec<E> = numbers(count * (len + 5), 3 + len as u32).into_iter().map(narrow).collect();
            let (mut sums, mut weights) = (numbers(len * queries, 9), numbers(count * queries, 5 + len as u32));
            mix(
                instructions,
                Rows::strided(&cells, count, len, len + 5),
                Rows::dense(&weights, queries, count),
                &mut sums,
            );
            results.extend(&sums);
            // Rows that nobody looks at, and others that one query does not look at.
            for j in (1..count).step_by(3) {
                (0..queries).for_each(|t| weights[t * count + j] = 0.0);
                let broken = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][j % 3];
                cells[j * (len + 5)..][..len].fill(narrow(broken));
            }
            if count > 2 {
                weights[2] = 0.0;
            }
            mix(
                instructions,
                Rows::strided(&cells, count, len, len + 5),
                Rows::dense(&weights, queries, count),
                &mut sums,
            );
            assert!(sums.iter().all(|sum| sum.is_finite()), "rows of weight 0 leave no trace");
            results.extend(sums);
        }
    }
    results
}

#[cfg(feature = "samples")]
fn samples_f32(instructions: Instructions) -> Vec<f32> {
    samples(instructions, |number| number, mix_f32)
}

#[cfg(feature = "samples")]
fn samples_f16(instructions: Instructions) -> Vec<f32> {
    samples(instructions, f16::from_f32, mix_f16)
}
