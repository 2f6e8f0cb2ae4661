//! `f16`: IEEE binary16, little-endian.
//!
//! ```text
//!  byte 1            byte 0
//!  ┌─┬─────┬──┐      ┌────────┐
//!  │s│eeeee│mm│      │mmmmmmmm│   sign, exponent + 15, fraction
//!  └─┴─────┴──┘      └────────┘
//! ```

use crate::codec::{decode_blocks, encode_blocks};
use crate::{Block, DType};

pub(crate) const BYTES: usize = 2;
const _: () = assert!(BYTES == F16::DTYPE.block_bytes());

/// IEEE binary16. Encoding rounds to nearest, ties to even, overflows to infinity, keeps subnormals, and makes every
/// NaN the quiet one without payload (`7E00` and the sign). Decoding is exact; a signalling NaN becomes quiet.
pub struct F16;

/// The f16 nearest to `value`, as its bytes.
#[inline(always)]
pub(crate) fn narrow(value: f32) -> [u8; BYTES] {
    let value = if value.is_nan() { f32::from_bits(value.to_bits() & 0x8000_0000 | 0x7FC0_0000) } else { value };
    half::f16::from_f32(value).to_le_bytes()
}

/// The number that the bytes of an f16 stand for.
#[inline(always)]
pub(crate) fn widen(bytes: [u8; BYTES]) -> f32 {
    half::f16::from_le_bytes(bytes).to_f32()
}

impl Block for F16 {
    const DTYPE: DType = DType::F16;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        const CHUNK: usize = 64;
        assert_eq!(bytes.len(), BYTES * weights.len(), "source and target differ in blocks");
        let mut narrow = [0.0f32; CHUNK];
        for (bytes, weights) in bytes.chunks(BYTES * CHUNK).zip(weights.chunks_mut(CHUNK)) {
            let narrow = &mut narrow[..weights.len()];
            decode_rows(bytes, narrow);
            for (weight, &narrow) in weights.iter_mut().zip(narrow.iter()) {
                *weight = narrow.into();
            }
        }
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }
}

pub(crate) fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    decode_blocks::<BYTES, 1, f32>(bytes, weights, |element, [weight]| *weight = widen(*element));
}

pub(crate) fn encode_scalar(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks::<BYTES, 1>(weights, bytes, |[weight], element| *element = narrow(*weight));
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::floats::decode_f16,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::all_halves(), in DType::F16
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        fast avx2("avx2", "f16c") => crate::avx2::floats::encode_f16,
        scalar => encode_scalar,
    }
    encode_variants_agree on crate::samples::around_halves(), in DType::F16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition of IEEE binary16, in f64, for each of the finite patterns.
    #[test]
    fn every_finite_pattern_is_its_definition_and_comes_back() {
        for bits in (0..=u16::MAX).filter(|bits| bits >> 10 & 31 != 31) {
            let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3FF));
            let magnitude = match exponent {
                0 => fraction * 2f64.powi(-24),
                normal => (1.0 + fraction / 1024.0) * 2f64.powi(normal - 15),
            };
            let expected = if bits >> 15 == 1 { -magnitude } else { magnitude };
            let found = widen(bits.to_le_bytes());
            assert_eq!(f64::from(found).to_bits(), expected.to_bits(), "{bits:#06x}");
            assert_eq!(narrow(found), bits.to_le_bytes(), "{bits:#06x}");
        }
    }

    #[test]
    fn narrowing_at_its_edges() {
        let cases = [
            (65504.0, 0x7BFF),
            (65519.996, 0x7BFF),
            (65520.0, 0x7C00),
            (-1e30, 0xFC00),
            (2f32.powi(-25), 0x0000),
            (f32::from_bits(2f32.powi(-25).to_bits() + 1), 0x0001),
            (3.0 * 2f32.powi(-25), 0x0002),
            (1.0 + 2f32.powi(-11), 0x3C00),
            (1.0 + 3.0 * 2f32.powi(-11), 0x3C02),
            (-0.0, 0x8000),
            (f32::from_bits(0x7F80_0001), 0x7E00),
            (f32::from_bits(0xFFFF_FFFF), 0xFE00),
        ];
        for (value, bits) in cases {
            assert_eq!(u16::from_le_bytes(narrow(value)), bits, "of {value:?}");
        }
    }
}
