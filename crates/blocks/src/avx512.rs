//! Encoding for x86-64 processors with AVX-512: a block of 32 weights is two vectors of 16.
//!
//! ```text
//!  weights │ elements 0 .. 16 │ elements 16 .. 32 │ ── largest magnitude ── scale ── codes: 16 bytes and 16 bytes
//! ```
//!
//! As in `avx2`, each function does the operations of the scalar rule element by element, in an order that changes no result. Decoding is
//! no faster than with AVX2: it is bound by its stores.

use std::arch::x86_64::*;

use crate::codec::whole_blocks;
use crate::scale::{LEN, reciprocal};
use crate::{f16, q4_0, q8_0};

/// Elements of one vector.
const LANES: usize = 16;

/// The vectors of a block, element 0 first.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_block(weights: &[f32; LEN]) -> [__m512; 2] {
    let (vectors, _) = weights.as_chunks::<LANES>();
    // SAFETY: each of the two arrays holds the 64 bytes that are read; the load has no alignment.
    unsafe { [_mm512_loadu_ps(vectors[0].as_ptr()), _mm512_loadu_ps(vectors[1].as_ptr())] }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_16_bytes(bytes: &mut [u8; LANES], vector: __m128i) {
    // SAFETY: the array holds the 16 bytes that are written; the store has no alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) }
}

/// The largest magnitude of a block, 0 or more. NaN loses every comparison, as in the scalar search.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn magnitude_max(vectors: &[__m512; 2]) -> f32 {
    // The second operand is the result when the first is NaN.
    let largest = _mm512_max_ps(_mm512_abs_ps(vectors[0]), _mm512_setzero_ps());
    let largest = _mm512_max_ps(_mm512_abs_ps(vectors[1]), largest);
    let eight = _mm256_max_ps(_mm512_castps512_ps256(largest), _mm512_extractf32x8_ps::<1>(largest));
    let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
}

/// The first weight of largest magnitude; +0.0 when nothing is larger than zero.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn signed_extreme(weights: &[f32; LEN], vectors: &[__m512; 2]) -> f32 {
    let largest = magnitude_max(vectors);
    let target = _mm512_set1_ps(largest);
    let equal = vectors.map(|vector| _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(_mm512_abs_ps(vector), target));
    let places = u32::from(equal[0]) | u32::from(equal[1]) << LANES;
    if largest == 0.0 { 0.0 } else { weights[places.trailing_zeros() as usize % LEN] }
}

/// A scale as f16. It comes from comparisons, which let no NaN through.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrow(scale: f32) -> [u8; f16::BYTES] {
    let half = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(scale));
    (_mm_extract_epi16::<0>(half) as u16).to_le_bytes()
}

/// Weights to `q4_0`, as the scalar rule.
#[target_feature(enable = "avx2,f16c,avx512f,avx512dq")]
pub(crate) fn encode_q4_0(weights: &[f32], bytes: &mut [u8]) {
    let (weights, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<{ q4_0::BYTES }>());
    let (offset, top, nibble) = (_mm512_set1_ps(8.5), _mm512_set1_epi32(15), _mm_set1_epi8(15));
    for (weights, block) in weights.iter().zip(blocks) {
        let vectors = load_block(weights);
        let scale = signed_extreme(weights, &vectors) / -8.0;
        let inverse = _mm512_set1_ps(reciprocal(scale));
        // Cut toward zero; what no 32-bit integer holds becomes one whose low byte is 0, as in the scalar rule.
        let codes = vectors.map(|vector| {
            let code = _mm512_cvttps_epi32(_mm512_add_ps(_mm512_mul_ps(vector, inverse), offset));
            _mm_and_si128(_mm512_cvtepi32_epi8(_mm512_min_epi32(code, top)), nibble)
        });
        let [d0, d1, pairs @ ..] = block;
        [*d0, *d1] = narrow(scale);
        store_16_bytes(pairs, _mm_or_si128(codes[0], _mm_slli_epi16::<4>(codes[1])));
    }
}

/// Weights to `q8_0`, as the scalar rule; rounding as in [`q8_0::PULL`].
#[target_feature(enable = "avx2,f16c,avx512f,avx512dq")]
pub(crate) fn encode_q8_0(weights: &[f32], bytes: &mut [u8]) {
    let (weights, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<{ q8_0::BYTES }>());
    let (sign, pull) = (_mm512_set1_ps(-0.0), _mm512_set1_ps(q8_0::PULL));
    for (weights, block) in weights.iter().zip(blocks) {
        let vectors = load_block(weights);
        let scale = magnitude_max(&vectors) / 127.0;
        let inverse = _mm512_set1_ps(reciprocal(scale));
        let codes = vectors.map(|vector| {
            let value = _mm512_mul_ps(vector, inverse);
            let pull = _mm512_or_ps(pull, _mm512_and_ps(value, sign));
            _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(_mm512_add_ps(value, pull)))
        });
        let [d0, d1, bytes @ ..] = block;
        [*d0, *d1] = narrow(scale);
        let (halves, _) = bytes.as_chunks_mut::<LANES>();
        store_16_bytes(&mut halves[0], codes[0]);
        store_16_bytes(&mut halves[1], codes[1]);
    }
}
