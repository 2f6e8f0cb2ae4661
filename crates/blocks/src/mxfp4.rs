//! `mxfp4`: 32 weights as 4-bit floating-point numbers and one power of two, 4.25 bits per weight.
//!
//! ```text
//!   0   1                                  17
//!  ┌───┬──────────────────────────────────┐
//!  │ e │ 16 bytes of code pairs           │   code j low, code j + 16 high in byte j
//!  └───┴──────────────────────────────────┘   code: sign, 2 bits of exponent, 1 of fraction
//! ```
//!
//! weight = 2^(e - 128) * DOUBLED\[code\]. The exponent 255 is reserved: such a block decodes to NaN.

use crate::codec::encode_blocks;
#[cfg(test)]
use crate::decoder::Term;
use crate::fp4::{self, DOUBLED, magnitude_max};
use crate::parts::{self, Parts};
use crate::scale::LEN;
use crate::{Block, DType, nibbles};

const BYTES: usize = 1 + nibbles::BYTES;
const _: () = assert!(BYTES == DType::Mxfp4.block_bytes() && LEN == DType::Mxfp4.block_len());

/// Four-bit floating-point numbers under a power of two.
pub struct Mxfp4;

impl Block for Mxfp4 {
    const DTYPE: DType = DType::Mxfp4;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        parts::decode_exact::<BYTES, LEN, 1, LEN>(bytes, weights, parts);
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }
}

/// 2^(e - 128): half of the block's scale, because the codes are doubled. NaN for the reserved exponent.
#[inline(always)]
fn half_scale(exponent: u8) -> f32 {
    match exponent {
        0..2 => f32::from_bits(0x20_0000 << exponent),
        255 => f32::NAN,
        _ => f32::from_bits((u32::from(exponent) - 1) << 23),
    }
}

#[cfg(test)]
fn terms(block: &[u8; BYTES]) -> [Term; LEN] {
    let [exponent, pairs @ ..] = block;
    let scale = half_scale(*exponent);
    nibbles::unpack(pairs).map(|code| Term { scale, step: 1, code: DOUBLED[usize::from(code)], ..Term::default() })
}

/// The parts of a block; its elements are those of `terms`, which only tests use.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<LEN, 1> {
    let [exponent, pairs @ ..] = block;
    let codes = nibbles::unpack(pairs).map(|code| DOUBLED[usize::from(code)]);
    Parts { scales: [half_scale(*exponent)], minima: None, codes }
}

#[inline(always)]
pub(crate) fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, LEN, 1, LEN>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    crate::decoder::decode(bytes, weights, terms);
}

/// Whether all weights of whole blocks are finite. The two largest exponents are for small codes only.
pub(crate) fn are_finite(bytes: &[u8]) -> bool {
    bytes.as_chunks::<BYTES>().0.iter().all(|block| {
        let mut weights = [0.0; LEN];
        let is_small = block[0] < 253;
        if !is_small {
            decode_parts(block, &mut weights);
        }
        is_small || weights.iter().all(|weight| weight.is_finite())
    })
}

/// The exponent of a block: floor(log2(magnitude)) + 125, and 0 for a block of zeros. The reference computes the
/// logarithm in f32, which rounds the numbers just below a power of two up to it. Magnitudes below 2^-125 have a
/// negative exponent, of which the low byte is kept: the scale is then so large that every code is 0.
fn exponent_of(magnitude: f32) -> u8 {
    let bits = magnitude.to_bits();
    if magnitude.is_normal() && bits & 0x7F_FFFF < 0x7F_FF00 {
        // Not just below a power of two.
        return (bits >> 23).wrapping_sub(2) as u8;
    }
    if magnitude == 0.0 {
        return 0;
    }
    let exact = f64::from(magnitude);
    let floor = (exact.to_bits() >> 52) as i32 - 1023;
    let power = floor + 1;
    let next = f64::from_bits(((power + 1023) as u64) << 52);
    // log2(next - difference) is power - difference / (next ln 2). It rounds to power up to half a unit of f32 there:
    // 2^(octave - 24), where octave is that of the numbers just towards zero, which are finer, from a positive power.
    let distance = if power > 0 { power - 1 } else { -power };
    let is_rounded = distance > 0 && {
        let octave = distance.ilog2();
        (next - exact) / next <= f64::from(1u32 << octave) / f64::from(1 << 24) * std::f64::consts::LN_2
    };
    (if is_rounded { power + 125 } else { floor + 125 }) as u8
}

/// `codes` finds the codes from half of the block's scale, the largest magnitude and the weights.
#[inline(always)]
fn encode_with(weights: &[f32], bytes: &mut [u8], codes: impl Fn(f32, f32, &[f32; LEN]) -> [u8; LEN]) {
    encode_blocks(weights, bytes, |weights: &[f32; LEN], block: &mut [u8; BYTES]| {
        let magnitude = magnitude_max(weights);
        let exponent = exponent_of(magnitude);
        let [e, pairs @ ..] = block;
        *e = exponent;
        // Weights below 2^-125 only: the exponent has wrapped, and can be the reserved one, as in the reference.
        *pairs = nibbles::pack(&codes(half_scale(exponent), magnitude, weights));
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
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_mxfp4,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Mxfp4), in DType::Mxfp4
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        fast avx512("avx2", "avx512f", "avx512dq", "avx512bw", "avx512vl") => crate::avx512::compiled::encode_mxfp4,
        fast avx2("avx2", "f16c") => crate::avx2::compiled::encode_mxfp4,
        portable => encode_parts,
        scalar => encode_scalar,
    }
    encode_variants_agree on crate::samples::weights(), in DType::Mxfp4
}

exact_test! { Mxfp4 }

#[cfg(test)]
mod tests {
    use super::*;

    /// The magnitudes that count as the next power of two, as measured with the reference's log2f: how many values
    /// below the power 2^k, by k.
    #[test]
    fn magnitudes_just_below_a_power_of_two_count_as_it() {
        let counts = [
            (65..=127, 44),
            (33..=64, 22),
            (17..=32, 11),
            (9..=16, 5),
            (5..=8, 2),
            (3..=4, 1),
            (1..=2, 0),
            (-1..=0, 0),
            (-3..=-2, 1),
            (-7..=-4, 2),
            (-15..=-8, 5),
            (-31..=-16, 11),
            (-63..=-32, 22),
            (-124..=-64, 44),
        ];
        for (powers, count) in counts {
            for power in powers {
                let bits = 2f32.powi(power).to_bits();
                for below in 0..100 {
                    let expected = if below <= count { power } else { power - 1 } + 125;
                    let found = exponent_of(f32::from_bits(bits - below));
                    assert_eq!(i32::from(found), expected, "{below} below 2^{power}");
                }
            }
        }
        assert_eq!((exponent_of(0.0), exponent_of(1e-40), exponent_of(f32::MAX)), (0, 0xF8, 253));
    }

    #[test]
    fn the_reserved_exponent_and_what_overflows_are_not_finite() {
        let block = |exponent: u8, code: u8| {
            let mut block = [code | code << 4; BYTES];
            block[0] = exponent;
            block
        };
        for exponent in 0..=255 {
            for code in 0..16 {
                let mut weights = [0.0; LEN];
                Mxfp4::decode(&block(exponent, code), &mut weights);
                let expected = weights.iter().all(|weight| weight.is_finite());
                assert_eq!(are_finite(&block(exponent, code)), expected, "exponent {exponent}, code {code}");
            }
        }
        assert!(!are_finite(&block(255, 0)) && are_finite(&block(252, 7)) && !are_finite(&block(253, 7)));
    }
}
