//! Multiplications and additions in registers: ten of sums, two of which are computed in each cycle where the processor
//! can.

use super::super::multiply_add::SUMS;
use super::{LANES, load_f32};
use std::arch::x86_64::*;

/// `rounds` times `s = s * factor + 1`, rounded once, for each sum.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn multiply_add(rounds: usize, factor: f32, sums: &mut [f32; SUMS]) {
    let (parts, _) = sums.as_chunks_mut::<LANES>();
    let (factor, one) = (_mm512_set1_ps(factor), _mm512_set1_ps(1.0));
    let mut kept: [[__m512; 5]; 2] =
        std::array::from_fn(|half| std::array::from_fn(|at| load_f32(&parts[5 * half + at])));
    for _ in 0..rounds {
        for sums in &mut kept {
            for sum in sums {
                *sum = _mm512_fmadd_ps(*sum, factor, one);
            }
        }
    }
    for (sum, target) in kept.into_iter().flatten().zip(parts) {
        // SAFETY: the part holds 64 bytes; the store needs no alignment.
        unsafe { _mm512_storeu_ps(target.as_mut_ptr(), sum) };
    }
}
