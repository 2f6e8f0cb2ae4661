//! `q8_1`: `q8_0` with the scaled sum of its codes, 9 bits per weight. A type for activations: other programs do not
//! load it from files.
//!
//! ```text
//!   0     2     4                                               36
//!  ┌─────┬─────┬───────────────────────────────────────────────┐
//!  │ d   │ s   │ 32 codes, i8                                  │   d, s: f16, little-endian
//!  └─────┴─────┴───────────────────────────────────────────────┘
//! ```
//!
//! weight = d * code; s = d * sum of the codes, with the unrounded d, and is not needed to decode.

use crate::codec::{decode_blocks, encode_blocks};
use crate::decoder;
use crate::q8_0::scale_and_codes;
use crate::scale::LEN;
use crate::{Block, DType, f16};

pub(crate) const BYTES: usize = 2 * f16::BYTES + LEN;
const _: () = assert!(BYTES == Q8_1::DTYPE.block_bytes() && LEN == Q8_1::DTYPE.block_len());

/// Eight bits around zero, one scale and one sum for 32 weights.
pub struct Q8_1;

impl Block for Q8_1 {
    const DTYPE: DType = DType::Q8_1;

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
    let [d0, d1, _s0, _s1, codes @ ..] = block;
    let codes: &[u8; LEN] = codes;
    (f16::widen([*d0, *d1]), codes.map(|code| code as i8))
}

#[inline(always)]
pub(crate) fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    decode_blocks(bytes, weights, |block: &[u8; BYTES], weights: &mut [f32; LEN]| {
        let (scale, codes) = read(block);
        *weights = codes.map(|code| scale * f32::from(code));
    });
}

fn encode_scalar(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks(weights, bytes, |weights: &[f32; LEN], block: &mut [u8; BYTES]| {
        let (scale, rounded) = scale_and_codes(weights);
        let sum: i32 = rounded.iter().map(|&code| i32::from(code)).sum();
        let [d0, d1, s0, s1, codes @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        [*s0, *s1] = f16::narrow(sum as f32 * scale);
        *codes = rounded.map(|code| code as u8);
    });
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2") => crate::avx2::compiled::decode_q8_1,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q8_1), in DType::Q8_1
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        fast avx2("avx2", "f16c") => crate::avx2::q8_1::encode,
        scalar => encode_scalar,
    }
    encode_variants_agree on crate::samples::weights(), in DType::Q8_1
}

exact_test! { Q8_1, decoder::widened::<Q8_1, BYTES, LEN> }
