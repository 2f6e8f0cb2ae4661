//! `q4_0`, one block at a time.

use std::arch::x86_64::*;

use super::{VECTORS, absolute, load_16_bytes, load_block, magnitude_max, store_16_bytes, store_16_scaled};
use crate::codec::whole_blocks;
use crate::f16;
use crate::q4_0::BYTES;
use crate::scale::{LEN, reciprocal};

/// Bytes to weights, as the scalar rule.
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn decode(bytes: &[u8], weights: &mut [f32]) {
    let (blocks, weights) = whole_blocks(bytes.as_chunks::<BYTES>(), weights.as_chunks_mut::<LEN>());
    let (nibble, eight) = (_mm_set1_epi8(15), _mm_set1_epi8(8));
    for (block, weights) in blocks.iter().zip(weights) {
        let [d0, d1, pairs @ ..] = block;
        let scale = _mm256_set1_ps(f16::widen([*d0, *d1]));
        let pairs = load_16_bytes(pairs);
        let low = _mm_sub_epi8(_mm_and_si128(pairs, nibble), eight);
        let high = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16::<4>(pairs), nibble), eight);
        let (halves, _) = weights.as_chunks_mut::<16>();
        store_16_scaled(&mut halves[0], scale, low);
        store_16_scaled(&mut halves[1], scale, high);
    }
}

/// Weights to bytes, as the scalar rule.
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn encode(weights: &[f32], bytes: &mut [u8]) {
    let (weights, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<BYTES>());
    for (weights, block) in weights.iter().zip(blocks) {
        let vectors = load_block(weights);
        let scale = signed_extreme(weights, &vectors) / -8.0;
        let [d0, d1, pairs @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        store_16_bytes(pairs, pack(&vectors, reciprocal(scale)));
    }
}

/// The first weight of largest magnitude; +0.0 when nothing is larger than zero.
#[inline]
#[target_feature(enable = "avx2")]
fn signed_extreme(weights: &[f32; LEN], vectors: &[__m256; VECTORS]) -> f32 {
    let largest = magnitude_max(vectors);
    if largest == 0.0 {
        return 0.0;
    }
    let target = _mm256_set1_ps(largest);
    let mut places = 0u32;
    for (index, &vector) in vectors.iter().enumerate() {
        let equal = _mm256_cmp_ps::<_CMP_EQ_OQ>(absolute(vector), target);
        places |= (_mm256_movemask_ps(equal) as u32) << (8 * index);
    }
    weights[places.trailing_zeros() as usize]
}

/// Codes in pairs: element j low, element j + 16 high. A value that is no 32-bit integer converts to one whose low bits are 0.
#[inline]
#[target_feature(enable = "avx2")]
fn pack(vectors: &[__m256; VECTORS], inverse: f32) -> __m128i {
    let (inverse, offset) = (_mm256_set1_ps(inverse), _mm256_set1_ps(8.5));
    let (top, nibble) = (_mm256_set1_epi32(15), _mm256_set1_epi32(15));
    let codes = vectors.map(|vector| {
        let code = _mm256_cvttps_epi32(_mm256_add_ps(_mm256_mul_ps(vector, inverse), offset));
        _mm256_and_si256(_mm256_min_epi32(code, top), nibble)
    });
    let first = _mm256_or_si256(codes[0], _mm256_slli_epi32::<4>(codes[2]));
    let second = _mm256_or_si256(codes[1], _mm256_slli_epi32::<4>(codes[3]));
    // Packing works in each half of the vectors: the quarters come out as first, second, first, second.
    let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(first, second));
    _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words))
}
