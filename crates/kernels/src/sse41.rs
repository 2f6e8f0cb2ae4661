//! Variants for SSE4.1 and SSSE3: each as exact as its rule, in registers of four f32 or 16 codes.
//!
//! These processors have no fused multiply-add, which the rules demand, and a call of the system's for each number is
//! slow. Here it is made of f64, where the product of two f32 is exact:
//!
//! ```text
//!  a * b + c  ──▶  f64, rounded once  ──▶  f32, rounded again
//! ```
//!
//! The second rounding differs from one rounding of the whole only where the first ended in the middle between two f32.
//! Such lanes, and results below the smallest normal number, whose middles lie elsewhere, are computed again one by
//! one.

pub mod dots;
pub mod key_scores;
pub mod mix;
pub mod panel_product;
pub mod sub_block_product;

use half::{bf16, f16};
use std::arch::x86_64::*;

/// f32 of a register.
const LANES: usize = 4;

/// Four f32.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn load_f32(source: &[f32; LANES]) -> __m128 {
    // SAFETY: the array holds 16 bytes; the load needs no alignment.
    unsafe { _mm_loadu_ps(source.as_ptr()) }
}

/// Four f16, widened.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn load_f16(source: &[f16; LANES]) -> __m128 {
    // SAFETY: the array holds 8 bytes, f16 is a transparent u16; the load needs no alignment.
    widen_f16(unsafe { _mm_loadl_epi64(source.as_ptr().cast()) })
}

/// Four bf16, widened.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn load_bf16(source: &[bf16; LANES]) -> __m128 {
    // SAFETY: the array holds 8 bytes, bf16 is a transparent u16; the load needs no alignment.
    let halves = unsafe { _mm_loadl_epi64(source.as_ptr().cast()) };
    _mm_castsi128_ps(_mm_slli_epi32::<16>(_mm_cvtepu16_epi32(halves)))
}

/// The four lanes as an array.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn store(lanes: __m128) -> [f32; LANES] {
    let mut target = [0.0; LANES];
    // SAFETY: the array holds 16 bytes; the store needs no alignment.
    unsafe { _mm_storeu_ps(target.as_mut_ptr(), lanes) };
    target
}

/// Bits of the lower four f16 as f32: exponent and fraction moved to their places, and the exponent to f32's bias.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn widen_f16(bits: __m128i) -> __m128 {
    let bits = _mm_cvtepu16_epi32(bits);
    let magnitude = _mm_and_si128(bits, _mm_set1_epi32(0x7FFF));
    let sign = _mm_slli_epi32::<16>(_mm_xor_si128(bits, magnitude));
    let normal = _mm_add_epi32(_mm_slli_epi32::<13>(magnitude), _mm_set1_epi32(112 << 23));
    // Infinity and NaN have the largest exponent here too.
    let special = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7BFF));
    let normal = _mm_or_si128(normal, _mm_and_si128(special, _mm_set1_epi32(0x7F80_0000)));
    // Below the smallest normal f16, 2^-14, stands a count of 2^-24; no f32 below its smallest normal number is
    // computed with, which is slow.
    let counted = _mm_mul_ps(_mm_cvtepi32_ps(magnitude), _mm_set1_ps(f32::from_bits((127 - 24) << 23)));
    let small = _mm_cmpgt_epi32(_mm_set1_epi32(0x0400), magnitude);
    let number = _mm_blendv_ps(_mm_castsi128_ps(normal), counted, _mm_castsi128_ps(small));
    _mm_or_ps(number, _mm_castsi128_ps(sign))
}

/// `a * b + c`, rounded once.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn multiply_add(a: __m128, b: __m128, c: __m128) -> __m128 {
    let low = |lanes| _mm_cvtps_pd(lanes);
    let high = |lanes| _mm_cvtps_pd(_mm_movehl_ps(lanes, lanes));
    let first = _mm_add_pd(_mm_mul_pd(low(a), low(b)), low(c));
    let second = _mm_add_pd(_mm_mul_pd(high(a), high(b)), high(c));
    if _mm_movemask_ps(doubtful(first, second)) != 0 {
        return multiply_add_one_by_one(a, b, c);
    }
    _mm_movelh_ps(_mm_cvtpd_ps(first), _mm_cvtpd_ps(second))
}

/// Lanes of four f64 that rounding to f32 may round in a way in which one rounding does not: the 29 bits that go are
/// those of the middle, or the result is below the smallest normal f32 and not zero, which is exact.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn doubtful(first: __m128d, second: __m128d) -> __m128 {
    let (first, second) = (_mm_castpd_ps(first), _mm_castpd_ps(second));
    let lower = _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(first, second));
    let upper = _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(first, second));
    let gone = _mm_and_si128(lower, _mm_set1_epi32((1 << 29) - 1));
    let middle = _mm_cmpeq_epi32(gone, _mm_set1_epi32(1 << 28));
    let magnitude = _mm_and_si128(upper, _mm_set1_epi32(i32::MAX));
    // 2^-126 as f64 has these upper bits.
    let small = _mm_cmpgt_epi32(_mm_set1_epi32((1023 - 126) << 20), magnitude);
    let small = _mm_and_si128(small, _mm_cmpgt_epi32(magnitude, _mm_setzero_si128()));
    _mm_castsi128_ps(_mm_or_si128(middle, small))
}

#[cold]
#[target_feature(enable = "sse4.1,ssse3")]
fn multiply_add_one_by_one(a: __m128, b: __m128, c: __m128) -> __m128 {
    let (a, b, c) = (store(a), store(b), store(c));
    load_f32(&std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane])))
}

/// `a * b + c` of four numbers, as these variants compute it; `None` on processors that lack the instructions.
#[cfg(feature = "samples")]
pub fn sse41_multiply_add(a: f32, b: f32, c: &[f32; LANES]) -> Option<[f32; LANES]> {
    // SAFETY: the processor was found to have the instructions.
    let multiply_add = || unsafe { store(multiply_add(_mm_set1_ps(a), _mm_set1_ps(b), load_f32(c))) };
    super::Isa::Sse41.is_available().then(multiply_add)
}

/// Four f16 as f32, as these variants convert them; `None` on processors that lack the instructions.
#[cfg(feature = "samples")]
pub fn sse41_widen(halves: &[f16; LANES]) -> Option<[f32; LANES]> {
    // SAFETY: the processor was found to have the instructions.
    super::Isa::Sse41.is_available().then(|| unsafe { store(load_f16(halves)) })
}
