//! Products of 8-bit codes: eight registers of sums at a time, half a vector of each pair.

use super::super::dot_int8::{CODES, INT8_SUMS, SIDES};
use std::arch::asm;
use std::arch::x86_64::*;

/// i32 of a register, and of both halves of a vector.
const LANES: usize = 8;

/// Codes of a register.
const WIDTH: usize = 4 * LANES;

/// Vectors of activations whose sums stay in registers together with those of all weights.
const XS: usize = 2;

/// All pairs of weights and activations, `rounds` times.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn dot_int8(rounds: usize, weights: &[[u8; CODES]], xs: &[[i8; CODES]], sums: &mut [i32; INT8_SUMS]) {
    let ones = _mm256_set1_epi16(1);
    passes(rounds, weights, xs, sums, |sum, w, x| {
        _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones))
    });
}

/// The same with the instructions that add the products of 32 weights and activations, four in each lane, to a register
/// of sums.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn passes(
    rounds: usize,
    weights: &[[u8; CODES]],
    xs: &[[i8; CODES]],
    sums: &mut [i32; INT8_SUMS],
    add: impl Fn(__m256i, __m256i, __m256i) -> __m256i + Copy,
) {
    let (sums, _) = sums.as_chunks_mut::<LANES>();
    for half in 0..CODES / WIDTH {
        for first in (0..SIDES).step_by(XS) {
            pass(rounds, weights, &xs[first..first + XS], half, |w, x| SIDES * w + first + x, sums, add);
        }
    }
}

/// All weights with two vectors of activations, one half of each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pass(
    rounds: usize,
    weights: &[[u8; CODES]],
    xs: &[[i8; CODES]],
    half: usize,
    pair: impl Fn(usize, usize) -> usize,
    sums: &mut [[i32; LANES]],
    add: impl Fn(__m256i, __m256i, __m256i) -> __m256i,
) {
    let place = |kept: usize| 2 * pair(kept / XS, kept % XS) + half;
    // SAFETY: `half` is 0 or 1, so that 32 bytes lie behind the pointers; the loads need no alignment.
    let w: [__m256i; SIDES] =
        std::array::from_fn(|side| unsafe { _mm256_loadu_si256(weights[side][WIDTH * half..].as_ptr().cast()) });
    // SAFETY: as above.
    let mut x: [__m256i; XS] =
        std::array::from_fn(|side| unsafe { _mm256_loadu_si256(xs[side][WIDTH * half..].as_ptr().cast()) });
    // SAFETY: the part holds 32 bytes; the loads need no alignment.
    let mut kept: [__m256i; SIDES * XS] =
        std::array::from_fn(|kept| unsafe { _mm256_loadu_si256(sums[place(kept)].as_ptr().cast()) });
    for _ in 0..rounds {
        for x in &mut x {
            // SAFETY: no instruction; the compiler must not know that each round multiplies the same codes.
            unsafe { asm!("/* {0} */", inout(ymm_reg) * x, options(nomem, nostack, preserves_flags)) };
        }
        for (at, sum) in kept.iter_mut().enumerate() {
            *sum = add(*sum, w[at / XS], x[at % XS]);
        }
    }
    for (at, sum) in kept.into_iter().enumerate() {
        // SAFETY: the part holds 32 bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(sums[place(at)].as_mut_ptr().cast(), sum) };
    }
}
