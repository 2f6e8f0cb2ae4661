//! `nvfp4`: 64 weights as 4-bit floating-point numbers, in four groups with a scale of 8 bits, 4.5 bits per weight.
//!
//! ```text
//!   0           4                                  36
//!  ┌───────────┬──────────────────────────────────┐
//!  │ 4 scales  │ 4 times 8 bytes of code pairs    │   code j low, code j + 8 high in byte j of a group
//!  └───────────┴──────────────────────────────────┘   code: sign, 2 bits of exponent, 1 of fraction
//!                                                     scale: 4 bits of exponent, 3 of fraction; no sign
//! ```
//!
//! weight = scale / 2 * DOUBLED\[code\]. The scale 7F is reserved: such a group decodes to NaN. A file may have one f32
//! scale more for the whole tensor, as a separate tensor.

use crate::codec::encode_blocks;
#[cfg(test)]
use crate::decoder::Term;
use crate::fp4::{self, DOUBLED, magnitude_max};
use crate::parts::{self, Parts};
use crate::{Block, DType};

const LEN: usize = 64;
const GROUPS: usize = 4;
const GROUP: usize = LEN / GROUPS;
const BYTES: usize = GROUPS + LEN / 2;
const _: () = assert!(BYTES == DType::Nvfp4.block_bytes() && LEN == DType::Nvfp4.block_len());

/// Four-bit floating-point numbers under scales of 8 bits.
pub struct Nvfp4;

impl Block for Nvfp4 {
    const DTYPE: DType = DType::Nvfp4;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        parts::decode_exact::<BYTES, LEN, GROUPS, GROUP>(bytes, weights, parts);
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }
}

/// Whether a scale stands for no number.
fn is_reserved(scale: u8) -> bool {
    scale & 0x7F == 0x7F
}

/// Half of the number that a scale stands for, because the codes are doubled. The eighth bit is ignored.
#[inline(always)]
fn half_scale(scale: u8) -> f32 {
    let (exponent, fraction) = (u32::from(scale >> 3 & 15), f32::from(scale & 7));
    match exponent {
        _ if is_reserved(scale) => f32::NAN,
        0 => fraction * f32::from_bits((127 - 10) << 23),
        _ => (1.0 + fraction / 8.0) * f32::from_bits((127 + exponent - 8) << 23),
    }
}

/// The scale nearest to a number, halves up; 448 (7E) for all from 256 up.
fn scale_of(number: f32) -> u8 {
    if number <= 0.0 || number.is_nan() {
        return 0;
    }
    let bits = number.to_bits();
    let exponent = (bits >> 23) as i32 - 127 + 7;
    if exponent <= 0 {
        // Below the normal numbers: in units of 2^-9.
        return (number * 512.0 + 0.5).min(7.0) as u8;
    }
    // Three bits of fraction and the bit after them, whose carry may reach the exponent.
    let rounded = (exponent << 3) + (bits >> 20 & 7) as i32 + (bits >> 19 & 1) as i32;
    if rounded >= 15 << 3 { 0x7E } else { rounded as u8 }
}

#[inline(always)]
fn read(block: &[u8; BYTES]) -> ([f32; GROUPS], [i8; LEN]) {
    let (scales, pairs) = block.split_first_chunk::<GROUPS>().expect("a block has 36 bytes");
    let mut codes = [0; LEN];
    for (codes, pairs) in codes.as_chunks_mut::<GROUP>().0.iter_mut().zip(pairs.as_chunks::<{ GROUP / 2 }>().0) {
        let (low, high) = codes.split_at_mut(GROUP / 2);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(pairs) {
            (*low, *high) = (DOUBLED[usize::from(byte & 15)], DOUBLED[usize::from(byte >> 4)]);
        }
    }
    (scales.map(half_scale), codes)
}

#[cfg(test)]
fn terms(block: &[u8; BYTES]) -> [Term; LEN] {
    let (scales, codes) = read(block);
    std::array::from_fn(|e| Term { scale: scales[e / GROUP], step: 1, code: codes[e], ..Term::default() })
}

/// The parts of a block; its elements are those of `terms`, which only tests use.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<LEN, GROUPS> {
    let (scales, codes) = read(block);
    Parts { scales, minima: None, codes }
}

#[inline(always)]
pub(crate) fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, LEN, GROUPS, GROUP>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    crate::decoder::decode(bytes, weights, terms);
}

/// Whether all weights of whole blocks are finite.
pub(crate) fn are_finite(bytes: &[u8]) -> bool {
    bytes.as_chunks::<BYTES>().0.iter().all(|block| !block[..GROUPS].iter().any(|scale| is_reserved(*scale)))
}

/// `codes` finds the codes of a group from half of its scale, the largest magnitude and the weights.
#[inline(always)]
fn encode_with(weights: &[f32], bytes: &mut [u8], codes: impl Fn(f32, f32, &[f32; GROUP]) -> [u8; GROUP]) {
    encode_blocks(weights, bytes, |weights: &[f32; LEN], block: &mut [u8; BYTES]| {
        let (scales, pairs) = block.split_first_chunk_mut::<GROUPS>().expect("a block has 36 bytes");
        let groups = weights.as_chunks::<GROUP>().0.iter().zip(pairs.as_chunks_mut::<{ GROUP / 2 }>().0);
        for ((weights, pairs), scale) in groups.zip(scales) {
            let magnitude = magnitude_max(weights);
            *scale = scale_of(magnitude / 6.0);
            let codes = codes(half_scale(*scale), magnitude, weights);
            *pairs = std::array::from_fn(|j| codes[j] | codes[j + GROUP / 2] << 4);
        }
    });
}

#[inline(always)]
pub(crate) fn encode_parts(weights: &[f32], bytes: &mut [u8]) {
    encode_with(weights, bytes, fp4::codes_below);
}

#[cfg(test)]
fn encode_scalar(weights: &[f32], bytes: &mut [u8]) {
    encode_with(weights, bytes, |scale, _, weights| fp4::codes_of(scale, weights));
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_nvfp4,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Nvfp4), in DType::Nvfp4
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        fast avx512("avx2", "avx512f", "avx512dq", "avx512bw", "avx512vl") => crate::avx512::compiled::encode_nvfp4,
        fast avx2("avx2", "f16c") => crate::avx2::compiled::encode_nvfp4,
        portable => encode_parts,
        scalar => encode_scalar,
    }
    encode_variants_agree on crate::samples::weights(), in DType::Nvfp4
}

exact_test! { Nvfp4 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scale_is_its_definition_and_is_found_again() {
        for scale in 0u8..0x7F {
            let (exponent, fraction) = (i32::from(scale >> 3), f64::from(scale & 7));
            let number =
                if exponent == 0 { fraction / 512.0 } else { (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7) };
            assert_eq!(f64::from(half_scale(scale)), number / 2.0, "{scale:#04x}");
            if scale < 0x78 {
                assert_eq!(scale_of(number as f32), scale, "{number}");
            }
        }
        assert!(half_scale(0x7F).is_nan() && half_scale(0xFF).is_nan());
    }

    #[test]
    fn scales_round_halves_up_and_end_at_448() {
        let cases = [
            (0.0, 0),
            (-1.0, 0),
            (f32::NAN, 0),
            (0.5 / 512.0, 1),
            (0.49 / 512.0, 0),
            (7.9 / 512.0, 7),
            (1.0625, 0x39),
            (1.0624, 0x38),
            (1.95, 0x40),
            (247.0, 0x77),
            (248.0, 0x7E),
            (256.0, 0x7E),
            (1e9, 0x7E),
        ];
        for (number, scale) in cases {
            assert_eq!(scale_of(number), scale, "of {number}");
        }
    }

    #[test]
    fn a_reserved_scale_is_not_finite() {
        let mut block = [0x11; BYTES];
        assert!(are_finite(&block));
        block[2] = 0x7F;
        let mut weights = [0.0; LEN];
        Nvfp4::decode(&block, &mut weights);
        assert!(!are_finite(&block) && weights[32..48].iter().all(|weight| weight.is_nan()));
        assert!(weights[..32].iter().chain(&weights[48..]).all(|weight| weight.is_finite()));
    }
}
