//! Variants for x86-64 processors with AVX2, and with F16C where f16 numbers are converted in vectors.
//!
//! ```text
//!  a block of 32 weights = 4 vectors of 8 f32, elements in order
//! ```
//!
//! Each function does, element by element, the operations of the scalar rule in its file, in an order that changes no result:
//! there is no fused multiply-add here. A function may be called where the features that it enables are present, which
//! `dispatch!` looks up.

pub(crate) mod compiled;
pub(crate) mod floats;
pub(crate) mod q4_0;
pub(crate) mod q8_0;

use std::arch::x86_64::*;

use crate::scale::LEN;

/// Elements of one vector of f32.
const LANES: usize = 8;
/// Vectors of one block.
const VECTORS: usize = LEN / LANES;

#[inline]
#[target_feature(enable = "avx2")]
fn load_f32(values: &[f32; LANES]) -> __m256 {
    // SAFETY: the array holds the 32 bytes that are read; the load has no alignment.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_f32(values: &mut [f32; LANES], vector: __m256) {
    // SAFETY: the array holds the 32 bytes that are written; the store has no alignment.
    unsafe { _mm256_storeu_ps(values.as_mut_ptr(), vector) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_16_bytes(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the array holds the 16 bytes that are read; the load has no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_16_bytes(bytes: &mut [u8; 16], vector: __m128i) {
    // SAFETY: the array holds the 16 bytes that are written; the store has no alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_32_bytes(bytes: &mut [u8; 32], vector: __m256i) {
    // SAFETY: the array holds the 32 bytes that are written; the store has no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
}

/// The vectors of a block, element 0 first.
#[inline]
#[target_feature(enable = "avx2")]
fn load_block(weights: &[f32; LEN]) -> [__m256; VECTORS] {
    let (vectors, _) = weights.as_chunks::<LANES>();
    [load_f32(&vectors[0]), load_f32(&vectors[1]), load_f32(&vectors[2]), load_f32(&vectors[3])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn absolute(vector: __m256) -> __m256 {
    _mm256_andnot_ps(_mm256_set1_ps(-0.0), vector)
}

/// The largest magnitude of a block, 0 or more. NaN loses every comparison, as in the scalar search.
#[inline]
#[target_feature(enable = "avx2")]
fn magnitude_max(vectors: &[__m256; VECTORS]) -> f32 {
    let mut largest = _mm256_setzero_ps();
    for &vector in vectors {
        // The second operand is the result when the first is NaN.
        largest = _mm256_max_ps(absolute(vector), largest);
    }
    let four = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps::<1>(largest));
    let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
}

/// Writes `scale * code` for the eight low bytes of `codes`, which are signed.
#[inline]
#[target_feature(enable = "avx2")]
fn store_scaled(weights: &mut [f32; LANES], scale: __m256, codes: __m128i) {
    store_f32(weights, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes))));
}

/// Writes `scale * code` for sixteen signed bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn store_16_scaled(weights: &mut [f32; 2 * LANES], scale: __m256, codes: __m128i) {
    let (halves, _) = weights.as_chunks_mut::<LANES>();
    store_scaled(&mut halves[0], scale, codes);
    store_scaled(&mut halves[1], scale, _mm_unpackhi_epi64(codes, codes));
}
