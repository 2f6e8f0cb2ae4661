//! Codes of eight bits widened sixteen at a time.

use super::super::decode_q8_0::each_row;
use super::super::rows::Rows;
use super::{LANES, ask_for_line, store};
use half::f16;
use std::arch::x86_64::*;

/// How many rows ahead the cache's are asked for: they lie apart, and the processor does not guess them.
const ROWS_AHEAD: usize = 32;

/// The elements of rows of q8_0.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub fn decode_q8_0(rows: Rows<u8>, elements: &mut [f32]) {
    for (blocks, elements) in each_row(rows, elements) {
        for line in (0..size_of_val(blocks)).step_by(64) {
            ask_for_line(blocks.as_ptr().wrapping_byte_add(line + ROWS_AHEAD * rows.stride()));
        }
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
