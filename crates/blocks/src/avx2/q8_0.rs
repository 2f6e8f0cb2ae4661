//! `q8_0`, one block at a time.

use std::arch::x86_64::*;

use super::{load_16_bytes, load_block, low_bytes, magnitude_max, store_16_scaled, store_32_bytes};
use crate::codec::whole_blocks;
use crate::f16;
use crate::q8_0::{BYTES, PULL};
use crate::scale::{LEN, reciprocal};

/// Bytes to weights, as the scalar rule.
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn decode(bytes: &[u8], weights: &mut [f32]) {
    let (blocks, weights) = whole_blocks(bytes.as_chunks::<BYTES>(), weights.as_chunks_mut::<LEN>());
    for (block, weights) in blocks.iter().zip(weights) {
        let [d0, d1, codes @ ..] = block;
        let codes: &[u8; LEN] = codes;
        let scale = _mm256_set1_ps(f16::widen([*d0, *d1]));
        let (codes, _) = codes.as_chunks::<16>();
        let (halves, _) = weights.as_chunks_mut::<16>();
        store_16_scaled(&mut halves[0], scale, load_16_bytes(&codes[0]));
        store_16_scaled(&mut halves[1], scale, load_16_bytes(&codes[1]));
    }
}

/// Weights to bytes, as the scalar rule.
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn encode(weights: &[f32], bytes: &mut [u8]) {
    let (weights, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<BYTES>());
    for (weights, block) in weights.iter().zip(blocks) {
        let (scale, rounded) = scale_and_codes(weights);
        let [d0, d1, codes @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        store_32_bytes(codes, rounded);
    }
}

/// The unrounded scale of a block and its codes; shared with `q8_1`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn scale_and_codes(weights: &[f32; LEN]) -> (f32, __m256i) {
    let vectors = load_block(weights);
    let scale = magnitude_max(&vectors) / 127.0;
    let (inverse, pull) = (_mm256_set1_ps(reciprocal(scale)), _mm256_set1_ps(PULL));
    let codes = vectors.map(|vector| {
        let value = _mm256_mul_ps(vector, inverse);
        let pull = _mm256_or_ps(pull, _mm256_and_ps(value, _mm256_set1_ps(-0.0)));
        _mm256_cvttps_epi32(_mm256_add_ps(value, pull))
    });
    (scale, low_bytes(codes))
}
