//! Codes of eight bits widened sixteen at a time.

use super::super::decode_q8_0::each_row;
use super::super::rows::Rows;
use super::{LANES, store};
use half::f16;
use std::arch::x86_64::*;

/// The elements of rows of q8_0.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub fn decode_q8_0(rows: Rows<u8>, elements: &mut [f32]) {
    for (blocks, elements) in each_row(rows, elements) {
        for ([low, high, codes @ ..], elements) in blocks.iter().zip(elements) {
            let scale = _mm512_set1_ps(f16::from_le_bytes([*low, *high]).to_f32());
            for (codes, elements) in codes.as_chunks::<LANES>().0.iter().zip(elements.as_chunks_mut().0) {
                // SAFETY: the array holds 16 bytes; the load needs no alignment.
                let codes = _mm512_cvtepi8_epi32(unsafe { _mm_loadu_si128(codes.as_ptr().cast()) });
                *elements = store(_mm512_mul_ps(scale, _mm512_cvtepi32_ps(codes)));
            }
        }
    }
}
