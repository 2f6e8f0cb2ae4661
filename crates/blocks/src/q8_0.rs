//! `q8_0`: 32 weights in 8 bits each and one scale, 8.5 bits per weight.
//!
//! ```text
//!   0     2                                               34
//!  ┌─────┬───────────────────────────────────────────────┐
//!  │ d   │ 32 codes, i8                                  │   d: f16, little-endian
//!  └─────┴───────────────────────────────────────────────┘
//! ```
//!
//! weight = d * code. The largest magnitude lands on 127 or -127; -128 is never written, but read.

use crate::codec::{decode_blocks, encode_blocks};
use crate::decoder;
use crate::scale::{LEN, magnitude_max, reciprocal, round};
use crate::{Block, DType, f16};

pub(crate) const BYTES: usize = f16::BYTES + LEN;
const _: () = assert!(BYTES == Q8_0::DTYPE.block_bytes() && LEN == Q8_0::DTYPE.block_len());

/// How vectors are rounded, the largest f32 below one half: `value + PULL` with the sign of `value`, cut toward zero,
/// is `value` rounded with halves away from zero. One half itself would carry the number just below it up to 1.
#[cfg(any(test, target_arch = "x86_64"))]
pub(crate) const PULL: f32 = 0.5 - f32::EPSILON / 4.0;

/// Eight bits around zero, one scale for 32 weights.
pub struct Q8_0;

impl Block for Q8_0 {
    const DTYPE: DType = DType::Q8_0;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        decoder::decode_scaled(bytes, weights, read);
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }
}

/// The scale and the codes.
#[inline(always)]
fn read(block: &[u8; BYTES]) -> (f32, [i8; LEN]) {
    let [d0, d1, codes @ ..] = block;
    let codes: &[u8; LEN] = codes;
    (f16::widen([*d0, *d1]), codes.map(|code| code as i8))
}

/// The unrounded scale of a block and its codes; shared with `q8_1`.
#[inline(always)]
pub(crate) fn scale_and_codes(weights: &[f32; LEN]) -> (f32, [i8; LEN]) {
    let scale = magnitude_max(weights) / 127.0;
    let inverse = reciprocal(scale);
    (scale, weights.map(|weight| round(weight * inverse)))
}

fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    decode_blocks(bytes, weights, |block: &[u8; BYTES], weights: &mut [f32; LEN]| {
        let (scale, codes) = read(block);
        *weights = codes.map(|code| scale * f32::from(code));
    });
}

fn encode_scalar(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks(weights, bytes, |weights: &[f32; LEN], block: &mut [u8; BYTES]| {
        let (scale, rounded) = scale_and_codes(weights);
        let [d0, d1, codes @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        *codes = rounded.map(|code| code as u8);
    });
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::q8_0::decode,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q8_0), in DType::Q8_0
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        fast avx512("avx2", "avx512f", "avx512dq") => crate::avx512::encode_q8_0,
        fast avx2("avx2", "f16c") => crate::avx2::q8_0::encode,
        scalar => encode_scalar,
    }
    encode_variants_agree on crate::samples::weights(), in DType::Q8_0
}

exact_test! { Q8_0, decoder::widened::<Q8_0, BYTES, LEN> }

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
