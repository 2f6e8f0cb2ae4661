//! Products of 8-bit codes: sixteen registers of sums, two of which are added to in each cycle where the processor can.

use super::super::dot_int8::{CODES, INT8_SUMS, SIDES};
use std::arch::x86_64::*;

/// i32 of a register.
const LANES: usize = 16;

/// All pairs of weights and activations, `rounds` times.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn dot_int8(rounds: usize, weights: &[[u8; CODES]], xs: &[[i8; CODES]], sums: &mut [i32; INT8_SUMS]) {
    // SAFETY: both arrays hold 64 bytes; the loads need no alignment.
    let w: [__m512i; SIDES] = std::array::from_fn(|side| unsafe { _mm512_loadu_si512(weights[side].as_ptr().cast()) });
    // SAFETY: as above.
    let x: [__m512i; SIDES] = std::array::from_fn(|side| unsafe { _mm512_loadu_si512(xs[side].as_ptr().cast()) });
    let (pairs, _) = sums.as_chunks_mut::<LANES>();
    let mut kept: [[__m512i; SIDES]; SIDES] = std::array::from_fn(|w| {
        // SAFETY: each part holds 64 bytes; the loads need no alignment.
        std::array::from_fn(|x| unsafe { _mm512_loadu_si512(pairs[SIDES * w + x].as_ptr().cast()) })
    });
    for _ in 0..rounds {
        for (sums, w) in kept.iter_mut().zip(w) {
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = _mm512_dpbusd_epi32(*sum, w, x);
            }
        }
    }
    for (sum, target) in kept.into_iter().flatten().zip(pairs) {
        // SAFETY: the part holds 64 bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(target.as_mut_ptr().cast(), sum) };
    }
}
