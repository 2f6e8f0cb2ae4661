//! Variants for x86-64 processors with AVX2, and with F16C where f16 numbers are converted in vectors.
//!
//! ```text
//!  a block of 32 weights = 4 vectors of 8 f32, elements in order
//! ```
//!
//! Each function does, element by element, the operations of the scalar rule in its file, in an order that changes no
//! result: there is no fused multiply-add here. A function may be called where the features that it enables are
//! present, which `dispatch!` looks up.

pub(crate) mod compiled;
pub(crate) mod floats;
pub(crate) mod iq4_nl;
pub(crate) mod lanes;
pub(crate) mod q4_0;
pub(crate) mod q4_1;
pub(crate) mod q5_0;
pub(crate) mod q5_1;
pub(crate) mod q8_0;
pub(crate) mod q8_1;

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

/// The weight at the first place where `vectors` equal `value`, which finds its sign; `value` itself when there is
/// none.
#[inline]
#[target_feature(enable = "avx2")]
fn first_equal(weights: &[f32; LEN], vectors: &[__m256; VECTORS], value: f32) -> f32 {
    let target = _mm256_set1_ps(value);
    let mut places = 0u32;
    for (index, &vector) in vectors.iter().enumerate() {
        let equal = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(vector, target));
        places |= (equal as u32) << (LANES * index);
    }
    weights.get(places.trailing_zeros() as usize).copied().unwrap_or(value)
}

/// The first weight of largest magnitude; +0.0 when nothing is larger than zero.
#[inline]
#[target_feature(enable = "avx2")]
fn signed_extreme(weights: &[f32; LEN], vectors: &[__m256; VECTORS]) -> f32 {
    let largest = magnitude_max(vectors);
    if largest == 0.0 { 0.0 } else { first_equal(weights, &vectors.map(|vector| absolute(vector)), largest) }
}

/// The smallest and the largest weight, of equal ones the first. NaN loses every comparison, as in the scalar search.
#[inline]
#[target_feature(enable = "avx2")]
fn extremes(weights: &[f32; LEN], vectors: &[__m256; VECTORS]) -> (f32, f32) {
    let (mut low, mut high) = (_mm256_set1_ps(f32::MAX), _mm256_set1_ps(f32::MIN));
    for &vector in vectors {
        // The second operand is the result when the first is NaN.
        low = _mm256_min_ps(vector, low);
        high = _mm256_max_ps(vector, high);
    }
    let low = _mm_min_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps::<1>(low));
    let high = _mm_max_ps(_mm256_castps256_ps128(high), _mm256_extractf128_ps::<1>(high));
    let low = _mm_min_ps(low, _mm_movehl_ps(low, low));
    let high = _mm_max_ps(high, _mm_movehl_ps(high, high));
    let low = _mm_cvtss_f32(_mm_min_ss(low, _mm_movehdup_ps(low)));
    let high = _mm_cvtss_f32(_mm_max_ss(high, _mm_movehdup_ps(high)));
    (first_equal(weights, vectors, low), first_equal(weights, vectors, high))
}

/// `(weight - low) * inverse + 0.5`, cut toward zero. What no 32-bit integer holds becomes one whose low byte is 0, as
/// in the scalar rule.
#[inline]
#[target_feature(enable = "avx2")]
fn codes_above(vectors: &[__m256; VECTORS], low: f32, inverse: f32) -> [__m256i; VECTORS] {
    let (low, inverse, half) = (_mm256_set1_ps(low), _mm256_set1_ps(inverse), _mm256_set1_ps(0.5));
    vectors.map(|vector| {
        let steps = _mm256_mul_ps(_mm256_sub_ps(vector, low), inverse);
        _mm256_cvttps_epi32(_mm256_add_ps(steps, half))
    })
}

/// `weight * inverse + offset`, cut toward zero; out of range as in [`codes_above`].
#[inline]
#[target_feature(enable = "avx2")]
fn codes_around(vectors: &[__m256; VECTORS], inverse: f32, offset: f32) -> [__m256i; VECTORS] {
    let (inverse, offset) = (_mm256_set1_ps(inverse), _mm256_set1_ps(offset));
    vectors.map(|vector| _mm256_cvttps_epi32(_mm256_add_ps(_mm256_mul_ps(vector, inverse), offset)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn at_most(codes: [__m256i; VECTORS], top: i32) -> [__m256i; VECTORS] {
    let top = _mm256_set1_epi32(top);
    codes.map(|code| _mm256_min_epi32(code, top))
}

/// The low bytes of 32 integers, element 0 first.
#[inline]
#[target_feature(enable = "avx2")]
fn low_bytes(codes: [__m256i; VECTORS]) -> __m256i {
    let low_byte = _mm256_set1_epi32(0xFF);
    let codes = codes.map(|code| _mm256_and_si256(code, low_byte));
    let words = [_mm256_packus_epi32(codes[0], codes[1]), _mm256_packus_epi32(codes[2], codes[3])];
    // Packing works in each half of the vectors: four elements of each vector in turn, then the other four.
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words[0], words[1]), order)
}

/// The low four bits of 32 codes: element j low, element j + 16 high in byte j.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles(codes: __m256i) -> __m128i {
    let codes = _mm256_and_si256(codes, _mm256_set1_epi8(15));
    _mm_or_si128(_mm256_castsi256_si128(codes), _mm_slli_epi16::<4>(_mm256_extracti128_si256::<1>(codes)))
}

/// The fifth bit of 32 codes, element 0 lowest.
#[inline]
#[target_feature(enable = "avx2")]
fn fifth_bits(codes: __m256i) -> [u8; LEN / 8] {
    // Bit 4 moves to bit 7 of its byte, from which the mask is taken.
    _mm256_movemask_epi8(_mm256_slli_epi16::<3>(codes)).to_le_bytes()
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
