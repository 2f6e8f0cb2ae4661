//! `iq4_nl`, one block at a time: its table is a register.

use std::arch::x86_64::*;

use super::{load_16_bytes, store_16_scaled};
use crate::codec::whole_blocks;
use crate::f16;
use crate::iq4_nl::BYTES;
use crate::scale::LEN;
use crate::search::codebook::STEPS;

/// Bytes to weights, as the rule.
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn decode(bytes: &[u8], weights: &mut [f32]) {
    let (blocks, weights) = whole_blocks(bytes.as_chunks::<BYTES>(), weights.as_chunks_mut::<LEN>());
    let (steps, nibble) = (load_16_bytes(&STEPS.map(|step| step as u8)), _mm_set1_epi8(15));
    for (block, weights) in blocks.iter().zip(weights) {
        let [d0, d1, pairs @ ..] = block;
        let scale = _mm256_set1_ps(f16::widen([*d0, *d1]));
        let pairs = load_16_bytes(pairs);
        let low = _mm_shuffle_epi8(steps, _mm_and_si128(pairs, nibble));
        let high = _mm_shuffle_epi8(steps, _mm_and_si128(_mm_srli_epi16::<4>(pairs), nibble));
        let (halves, _) = weights.as_chunks_mut::<16>();
        store_16_scaled(&mut halves[0], scale, low);
        store_16_scaled(&mut halves[1], scale, high);
    }
}
