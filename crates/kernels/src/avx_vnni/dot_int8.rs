//! Products of 8-bit codes, one instruction for those of a register.

use super::super::avx2::dot_int8::passes;
use super::super::dot_int8::{CODES, INT8_SUMS};
use std::arch::x86_64::*;

/// All pairs of weights and activations, `rounds` times.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub fn dot_int8(rounds: usize, weights: &[[u8; CODES]], xs: &[[i8; CODES]], sums: &mut [i32; INT8_SUMS]) {
    passes(rounds, weights, xs, sums, |sum, w, x| _mm256_dpbusd_avx_epi32(sum, w, x));
}
