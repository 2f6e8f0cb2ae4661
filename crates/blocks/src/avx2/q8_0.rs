//! `q8_0`, one block at a time.

use std::arch::x86_64::*;

use super::{VECTORS, load_16_bytes, load_block, magnitude_max, store_16_scaled, store_32_bytes};
use crate::codec::whole_blocks;
use crate::f16;
use crate::q8_0::BYTES;
use crate::scale::{LEN, reciprocal};

/// The largest f32 below one half: `value + PULL` with the sign of `value`, cut toward zero, is `value` rounded with halves
/// away from zero. One half itself would carry the number just below it up to 1.
const PULL: f32 = 0.5 - f32::EPSILON / 4.0;

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
        let vectors = load_block(weights);
        let scale = magnitude_max(&vectors) / 127.0;
        let [d0, d1, codes @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        store_32_bytes(codes, round(&vectors, reciprocal(scale)));
    }
}

/// Codes in order of the elements. A value that is no 32-bit integer converts to one whose low byte is 0.
#[inline]
#[target_feature(enable = "avx2")]
fn round(vectors: &[__m256; VECTORS], inverse: f32) -> __m256i {
    let (inverse, pull, sign) = (_mm256_set1_ps(inverse), _mm256_set1_ps(PULL), _mm256_set1_ps(-0.0));
    let low_byte = _mm256_set1_epi32(0xFF);
    let codes = vectors.map(|vector| {
        let value = _mm256_mul_ps(vector, inverse);
        let pull = _mm256_or_ps(pull, _mm256_and_ps(value, sign));
        _mm256_and_si256(_mm256_cvttps_epi32(_mm256_add_ps(value, pull)), low_byte)
    });
    let words = [_mm256_packus_epi32(codes[0], codes[1]), _mm256_packus_epi32(codes[2], codes[3])];
    // Packing works in each half of the vectors: four elements of each vector in turn, then the other four.
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words[0], words[1]), order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pull_rounds_as_round_does() {
        let mut checked = 0u32;
        for half in -256..=256i32 {
            let center = (half as f32 * 0.5).to_bits();
            for distance in 0..2000u32 {
                for bits in [center.wrapping_add(distance), center.wrapping_sub(distance)] {
                    let value = f32::from_bits(bits);
                    if value.abs() <= 130.0 {
                        assert_eq!((value + PULL.copysign(value)).trunc(), value.round(), "of {value:?}");
                        checked += 1;
                    }
                }
            }
        }
        assert!(checked > 1_900_000, "only {checked} values were in range");
    }
}
