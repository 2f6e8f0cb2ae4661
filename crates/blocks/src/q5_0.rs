//! `q5_0`: 32 weights in 5 bits each and one scale, 5.5 bits a weight.
//!
//! ```text
//!   0     2           6                                  22
//!  ┌─────┬───────────┬──────────────────────────────────┐
//!  │ d   │ fifth bits│ 16 bytes of code pairs           │   d: f16; fifth bits: u32, bit j of code j; little-endian
//!  └─────┴───────────┴──────────────────────────────────┘   low four bits of code j low, of code j + 16 high in byte j
//! ```
//!
//! weight = d * (code - 16). The weight of largest magnitude lands on code 0, so that the scale carries its sign.

use crate::codec::{decode_blocks, encode_blocks, encode_weighted_by_row};
use crate::scale::{LEN, reciprocal, signed_extreme, truncate};
use crate::search::signed;
use crate::{Block, DType, f16, nibbles};

pub(crate) const BYTES: usize = f16::BYTES + LEN / 8 + nibbles::BYTES;
const _: () = assert!(BYTES == Q5_0::DTYPE.block_bytes() && LEN == Q5_0::DTYPE.block_len());

/// Five bits around zero, one scale for 32 weights.
pub struct Q5_0;

impl Block for Q5_0 {
    const DTYPE: DType = DType::Q5_0;
    const USES_IMPORTANCE: bool = true;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        decode_blocks(bytes, weights, |block: &[u8; BYTES], weights: &mut [f64; LEN]| {
            let (scale, codes) = read(block);
            weights.iter_mut().zip(codes).for_each(|(weight, code)| *weight = f64::from(scale) * f64::from(code));
        });
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }

    fn encode_weighted(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
        encode_rows_weighted(weights, importance, bytes);
    }
}

/// The scale and the codes less 16.
#[inline(always)]
fn read(block: &[u8; BYTES]) -> (f32, [i8; LEN]) {
    let [d0, d1, h0, h1, h2, h3, pairs @ ..] = block;
    let codes = nibbles::unpack_five_bits(pairs, [*h0, *h1, *h2, *h3]);
    (f16::widen([*d0, *d1]), codes.map(|code| code as i8 - 16))
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
        let scale = signed_extreme(weights) / -16.0;
        let inverse = reciprocal(scale);
        let codes = weights.map(|weight| truncate(weight * inverse + 16.5).min(31) as u8);
        let [d0, d1, h0, h1, h2, h3, pairs @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        [*h0, *h1, *h2, *h3] = nibbles::pack_fifth_bits(&codes);
        *pairs = nibbles::pack(&codes);
    });
}

/// Writes a block of weights, of which each counts as `counts` says.
#[inline(always)]
fn write_weighted(weights: &[f32; LEN], counts: &[f32; LEN], block: &mut [u8; BYTES]) {
    let mut codes = [0; LEN];
    let scale = signed::search(16, weights, counts, &mut codes);
    let [d0, d1, h0, h1, h2, h3, pairs @ ..] = block;
    [*d0, *d1] = f16::narrow(scale);
    [*h0, *h1, *h2, *h3] = nibbles::pack_fifth_bits(&codes);
    *pairs = nibbles::pack(&codes);
}

fn encode_rows_weighted(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    encode_weighted_by_row(weights, importance, bytes, write_weighted);
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2") => crate::avx2::compiled::decode_q5_0,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q5_0), in DType::Q5_0
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        fast avx2("avx2", "f16c") => crate::avx2::q5_0::encode,
        scalar => encode_scalar,
    }
    encode_variants_agree on crate::samples::weights(), in DType::Q5_0
}
