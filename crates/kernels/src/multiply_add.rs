//! Multiplications and additions in registers: what the roof of this processor is measured with.

use super::kernel;
#[cfg(feature = "samples")]
use crate::isa::Instructions;

/// Sums that are kept: as many as hide the latency of one operation in the largest registers.
pub const SUMS: usize = 160;

/// Sums that are kept side by side where registers are smaller, and stay in them.
const BESIDE: usize = 80;

kernel! {
    /// `rounds` times `s = s * factor + 1`, rounded once, for each sum. No memory is touched between.
    fn multiply_add(rounds: usize, factor: f32, sums: &mut [f32; SUMS]) {
        avx512 => super::avx512::multiply_add::multiply_add,
        avx2 => recompiled,
        scalar => chains,
    }
    multiply_add_samples on samples
}

#[inline(always)]
fn chains(rounds: usize, factor: f32, sums: &mut [f32; SUMS]) {
    for sums in sums.as_chunks_mut::<BESIDE>().0 {
        let mut kept = *sums;
        for _ in 0..rounds {
            for sum in &mut kept {
                *sum = sum.mul_add(factor, 1.0);
            }
        }
        *sums = kept;
    }
}

#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut sums = std::array::from_fn(|place| place as f32);
    multiply_add(instructions, 100, 0.99, &mut sums);
    sums.to_vec()
}
