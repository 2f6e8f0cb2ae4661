//! Variants for AVX2, FMA and F16C: each as exact as its rule, in registers of eight f32 or 32 codes.
//!
//! Loads take references to arrays of a register's size, so that their bounds are in the types.

pub mod dot_int8;
pub mod dots;
pub mod key_scores;
pub mod mix;
pub mod panel_product;
pub mod read_lines;
pub mod sub_block_product;

use super::lanes::LANES;
use half::{bf16, f16};
use std::arch::x86_64::*;

/// Eight f32.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_f32(source: &[f32; LANES]) -> __m256 {
    // SAFETY: the array holds 32 bytes; the load needs no alignment.
    unsafe { _mm256_loadu_ps(source.as_ptr()) }
}

/// Eight f16, widened.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_f16(source: &[f16; LANES]) -> __m256 {
    // SAFETY: the array holds 16 bytes, f16 is a transparent u16; the load needs no alignment.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(source.as_ptr().cast()) })
}

/// Eight bf16, widened.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_bf16(source: &[bf16; LANES]) -> __m256 {
    // SAFETY: the array holds 16 bytes, bf16 is a transparent u16; the load needs no alignment.
    let halves = unsafe { _mm_loadu_si128(source.as_ptr().cast()) };
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
}

/// The eight lanes as an array.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn store(lanes: __m256) -> [f32; LANES] {
    let mut target = [0.0; LANES];
    // SAFETY: the array holds 32 bytes; the store needs no alignment.
    unsafe { _mm256_storeu_ps(target.as_mut_ptr(), lanes) };
    target
}
