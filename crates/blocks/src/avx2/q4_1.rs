//! `q4_1`, one block at a time.

use super::{at_most, codes_above, extremes, load_block, low_bytes, nibbles, store_16_bytes};
use crate::codec::whole_blocks;
use crate::f16;
use crate::q4_1::BYTES;
use crate::scale::{LEN, reciprocal};

/// Weights to bytes, as the scalar rule.
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn encode(weights: &[f32], bytes: &mut [u8]) {
    let (weights, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<BYTES>());
    for (weights, block) in weights.iter().zip(blocks) {
        let vectors = load_block(weights);
        let (low, high) = extremes(weights, &vectors);
        let scale = (high - low) / 15.0;
        let codes = low_bytes(at_most(codes_above(&vectors, low, reciprocal(scale)), 15));
        let [d0, d1, m0, m1, pairs @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        [*m0, *m1] = f16::narrow(low);
        store_16_bytes(pairs, nibbles(codes));
    }
}
