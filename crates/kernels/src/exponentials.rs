//! Exponentials of differences, for softmax over positions that come one part after the other.

use super::exponential::exponential;
use super::kernel;
#[cfg(feature = "samples")]
use super::samples::numbers;
#[cfg(feature = "samples")]
use crate::isa::Instructions;

kernel! {
    /// `scores[j] = exp(scores[j] - largest)`; exactly 0 where a score is -infinity. `largest` is finite.
    fn exponentials(largest: f32, scores: &mut [f32]) {
        avx512 => recompiled_wider,
        avx2 => recompiled,
        scalar => differences,
    }
    exponentials_samples on samples
}

#[inline(always)]
fn differences(largest: f32, scores: &mut [f32]) {
    for score in scores {
        *score = exponential(*score - largest);
    }
}

#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut results = Vec::new();
    for len in [1, 7, 8, 31, 33, 64, 257] {
        let mut scores = numbers(len, len as u32);
        scores[len / 2] = f32::NEG_INFINITY;
        exponentials(instructions, 3.5, &mut scores);
        assert_eq!(scores[len / 2].to_bits(), 0, "nothing of what is not seen");
        results.extend(scores);
    }
    results
}
