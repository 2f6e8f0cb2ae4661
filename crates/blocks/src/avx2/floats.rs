//! Rows of `f16` and `bf16`, eight elements at a time; the elements after the last whole vector follow the scalar rule.

use std::arch::x86_64::*;

use super::{LANES, absolute, load_16_bytes, load_f32, store_16_bytes, store_f32};
use crate::codec::whole_blocks;
use crate::{bf16, f16};

/// Bytes of eight two-byte numbers.
const BYTES: usize = 2 * LANES;

/// f16 to f32, exactly.
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn decode_f16(bytes: &[u8], weights: &mut [f32]) {
    let whole = weights.len() / LANES * LANES;
    let (weights, weight_rest) = weights.split_at_mut(whole);
    let (bytes, byte_rest) = bytes.split_at(2 * whole);
    let (bytes, weights) = whole_blocks(bytes.as_chunks::<BYTES>(), weights.as_chunks_mut::<LANES>());
    for (halves, weights) in bytes.iter().zip(weights) {
        store_f32(weights, _mm256_cvtph_ps(load_16_bytes(halves)));
    }
    f16::decode_scalar(byte_rest, weight_rest);
}

/// f32 to f16, to nearest, ties to even. The conversion keeps payloads of NaN, so NaN is made plain before it.
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn encode_f16(weights: &[f32], bytes: &mut [u8]) {
    let whole = weights.len() / LANES * LANES;
    let (weights, weight_rest) = weights.split_at(whole);
    let (bytes, byte_rest) = bytes.split_at_mut(2 * whole);
    let (weights, bytes) = whole_blocks(weights.as_chunks::<LANES>(), bytes.as_chunks_mut::<BYTES>());
    let (sign, quiet) = (_mm256_set1_ps(-0.0), _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC0_0000)));
    for (weights, halves) in weights.iter().zip(bytes) {
        let values = load_f32(weights);
        let plain_nan = _mm256_or_ps(_mm256_and_ps(values, sign), quiet);
        let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(values, values);
        let values = _mm256_blendv_ps(values, plain_nan, is_nan);
        store_16_bytes(halves, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values));
    }
    f16::encode_scalar(weight_rest, byte_rest);
}

/// bf16 to f32: the bits move up.
#[target_feature(enable = "avx2")]
pub(crate) fn decode_bf16(bytes: &[u8], weights: &mut [f32]) {
    let whole = weights.len() / LANES * LANES;
    let (weights, weight_rest) = weights.split_at_mut(whole);
    let (bytes, byte_rest) = bytes.split_at(2 * whole);
    let (bytes, weights) = whole_blocks(bytes.as_chunks::<BYTES>(), weights.as_chunks_mut::<LANES>());
    for (halves, weights) in bytes.iter().zip(weights) {
        let bits = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load_16_bytes(halves)));
        store_f32(weights, _mm256_castsi256_ps(bits));
    }
    bf16::decode_scalar(byte_rest, weight_rest);
}

/// f32 to bf16, to nearest, ties to even; a NaN keeps its upper bits and becomes quiet.
#[target_feature(enable = "avx2")]
pub(crate) fn encode_bf16(weights: &[f32], bytes: &mut [u8]) {
    let whole = weights.len() / LANES * LANES;
    let (weights, weight_rest) = weights.split_at(whole);
    let (bytes, byte_rest) = bytes.split_at_mut(2 * whole);
    let (weights, bytes) = whole_blocks(weights.as_chunks::<LANES>(), bytes.as_chunks_mut::<BYTES>());
    let infinity = _mm256_set1_epi32(0x7F80_0000);
    for (weights, halves) in weights.iter().zip(bytes) {
        let values = load_f32(weights);
        let bits = _mm256_castps_si256(values);
        let upper = _mm256_srli_epi32::<16>(bits);
        let last_bit = _mm256_and_si256(upper, _mm256_set1_epi32(1));
        let half = _mm256_add_epi32(_mm256_set1_epi32(0x7FFF), last_bit);
        let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half));
        let quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
        let is_nan = _mm256_cmpgt_epi32(_mm256_castps_si256(absolute(values)), infinity);
        let result = _mm256_blendv_epi8(rounded, quiet, is_nan);
        let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(result, result));
        store_16_bytes(halves, _mm256_castsi256_si128(packed));
    }
    bf16::encode_scalar(weight_rest, byte_rest);
}
