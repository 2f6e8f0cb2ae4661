//! Activations in 8 bits: a block in two registers.

use super::super::quantize::ActivationBlock;
use super::{LANES, load_f32};
use crate::panel_block::BLOCK_LEN;
use std::arch::x86_64::*;

/// Units as the last place of f32 from here on: 1.5 * 2^23.
const UNITS: f32 = 12582912.0;

/// The rule of `quantize.rs`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn quantize(xs: &[f32], blocks: &mut [ActivationBlock]) {
    let (chunks, rest) = xs.as_chunks::<BLOCK_LEN>();
    assert!(rest.is_empty() && chunks.len() == blocks.len(), "32 activations for each block");
    let magnitude = _mm512_set1_epi32(i32::MAX);
    for (x, block) in chunks.iter().zip(blocks) {
        let halves: [__m512; 2] = std::array::from_fn(|half| load_f32(&x.as_chunks::<LANES>().0[half]));
        // Patterns of magnitudes are ordered as the magnitudes are, with NaN above infinity.
        let magnitudes = halves.map(|half| _mm512_and_si512(_mm512_castps_si512(half), magnitude));
        let largest = _mm512_reduce_max_epi32(_mm512_max_epi32(magnitudes[0], magnitudes[1]));
        let scale = f32::from_bits(largest.cast_unsigned()) / 127.0;
        let divisor = _mm512_set1_ps(if scale == 0.0 { f32::INFINITY } else { scale });
        let codes = halves.map(|half| round(_mm512_div_ps(half, divisor)));
        let sums = codes.map(|half| _mm512_reduce_add_epi32(half));
        let mut narrow = [0; BLOCK_LEN];
        for (narrow, codes) in narrow.as_chunks_mut::<LANES>().0.iter_mut().zip(codes) {
            // SAFETY: the array holds 16 bytes; the store needs no alignment.
            unsafe { _mm_storeu_si128(narrow.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(codes)) };
        }
        *block = ActivationBlock::new(narrow, scale, sums);
    }
}

/// The nearest integers from -127 to 127, halves to even; -127 for NaN.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn round(quotients: __m512) -> __m512i {
    let low = _mm512_max_ps(quotients, _mm512_set1_ps(-127.0));
    let limited = _mm512_min_ps(low, _mm512_set1_ps(127.0));
    let units = _mm512_castps_si512(_mm512_add_ps(limited, _mm512_set1_ps(UNITS)));
    _mm512_sub_epi32(units, _mm512_castps_si512(_mm512_set1_ps(UNITS)))
}
