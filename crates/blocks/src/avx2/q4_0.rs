//! `q4_0`, one block at a time.

use std::arch::x86_64::*;

use super::{
    at_most, codes_around, load_16_bytes, load_block, low_bytes, nibbles, signed_extreme, store_16_bytes,
    store_16_scaled,
};
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
        let codes = low_bytes(at_most(codes_around(&vectors, reciprocal(scale), 8.5), 15));
        let [d0, d1, pairs @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        store_16_bytes(pairs, nibbles(codes));
    }
}
