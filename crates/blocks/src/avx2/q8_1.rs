//! `q8_1`, one block at a time.

use super::{q8_0::scale_and_codes, store_32_bytes};
use crate::codec::whole_blocks;
use crate::f16;
use crate::q8_1::BYTES;
use crate::scale::LEN;

/// Weights to bytes, as the scalar rule.
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn encode(weights: &[f32], bytes: &mut [u8]) {
    let (weights, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<BYTES>());
    for (weights, block) in weights.iter().zip(blocks) {
        let (scale, rounded) = scale_and_codes(weights);
        let [d0, d1, s0, s1, codes @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        store_32_bytes(codes, rounded);
        let sum: i32 = codes.iter().map(|&code| i32::from(code as i8)).sum();
        [*s0, *s1] = f16::narrow(sum as f32 * scale);
    }
}
