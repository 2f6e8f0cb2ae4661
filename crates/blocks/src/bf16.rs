//! `bf16`: the upper half of an IEEE binary32, little-endian.
//!
//! ```text
//!  byte 1      byte 0
//!  ┌─┬───────┐ ┌─┬───────┐
//!  │s│eeeeeee│ │e│mmmmmmm│   sign, exponent + 127, fraction
//!  └─┴───────┘ └─┴───────┘
//! ```

use crate::codec::{decode_blocks, encode_blocks};
use crate::{Block, DType};

const BYTES: usize = 2;
const _: () = assert!(BYTES == Bf16::DTYPE.block_bytes());

/// The upper half of a binary32. Encoding rounds to nearest, ties to even; a NaN keeps its upper bits and becomes
/// quiet. Decoding moves bits only.
pub struct Bf16;

#[inline(always)]
fn widen(bytes: [u8; BYTES]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

#[inline(always)]
fn narrow(value: f32) -> [u8; BYTES] {
    let bits = value.to_bits();
    let quiet = bits >> 16 | 0x40;
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    (if value.is_nan() { quiet } else { rounded } as u16).to_le_bytes()
}

impl Block for Bf16 {
    const DTYPE: DType = DType::Bf16;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        decode_blocks::<BYTES, 1, f64>(bytes, weights, |element, [weight]| *weight = widen(*element).into());
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }
}

pub(crate) fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    decode_blocks::<BYTES, 1, f32>(bytes, weights, |element, [weight]| *weight = widen(*element));
}

#[inline(always)]
pub(crate) fn encode_scalar(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks::<BYTES, 1>(weights, bytes, |[weight], element| *element = narrow(*weight));
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2") => crate::avx2::floats::decode_bf16,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::all_halves(), in DType::Bf16
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        fast avx2("avx2") => crate::avx2::floats::encode_bf16,
        scalar => encode_scalar,
    }
    encode_variants_agree on crate::samples::around_halves(), in DType::Bf16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_comes_back_but_signalling_nans_become_quiet() {
        for bits in 0..=u16::MAX {
            let value = widen(bits.to_le_bytes());
            let expected = if value.is_nan() { bits | 0x40 } else { bits };
            assert_eq!(u16::from_le_bytes(narrow(value)), expected, "{bits:#06x}");
        }
    }

    #[test]
    fn narrowing_at_its_edges() {
        let cases = [
            (0x3F80_8000, 0x3F80),
            (0x3F81_8000, 0x3F82),
            (0x3F80_8001, 0x3F81),
            (0x7F7F_FFFF, 0x7F80),
            (0x0000_8001, 0x0001),
            (0x8000_0000, 0x8000),
            (0x7F80_0001, 0x7FC0),
            (0xFFFF_FFFF, 0xFFFF),
        ];
        for (value, bits) in cases {
            assert_eq!(u16::from_le_bytes(narrow(f32::from_bits(value))), bits, "of {value:#010x}");
        }
    }
}
