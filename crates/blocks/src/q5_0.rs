//! `q5_0`: 32 weights in 5 bits each and one scale, 5.5 bits per weight.
//!
//! ```text
//!   0     2           6                                  22
//!  ┌─────┬───────────┬──────────────────────────────────┐
//!  │ d   │ fifth bits│ 16 bytes of code pairs           │   d: f16; fifth bits: u32, bit j of code j; little-endian
//!  └─────┴───────────┴──────────────────────────────────┘   low four bits of code j low, of code j + 16 high in byte j
//! ```
//!
//! weight = d * (code - 16). The weight of largest magnitude lands on code 0, so that the scale carries its sign.

use crate::codec::{decode_blocks, encode_blocks};
use crate::decoder;
use crate::scale::{LEN, reciprocal, signed_extreme, truncate};
use crate::search::lanes::{self, Columns, Lanes};
use crate::search::signed;
use crate::weighted::{self, Format};
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

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        decoder::decode_scaled(bytes, weights, read);
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

impl Format<BYTES> for Q5_0 {
    fn search(weights: &[f32; LEN], counts: &[f32; LEN], codes: &mut [u8; LEN]) -> (f32, f32) {
        (signed::search(16, weights, counts, codes), 0.0)
    }

    #[inline(always)]
    fn search_lanes<V: Lanes>(weights: &Columns<V, LEN>, counts: &Columns<V, LEN>) -> lanes::Found<V, LEN> {
        lanes::Found::signed(16, weights, counts)
    }

    #[inline(always)]
    fn pack((scale, _): (f32, f32), codes: &[u8; LEN], block: &mut [u8; BYTES]) {
        let [d0, d1, h0, h1, h2, h3, pairs @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        [*h0, *h1, *h2, *h3] = nibbles::pack_fifth_bits(codes);
        *pairs = nibbles::pack(codes);
    }
}

fn encode_weighted_scalar(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    weighted::encode_weighted::<Q5_0, BYTES>(weights, importance, bytes);
}

#[inline(always)]
pub(crate) fn encode_weighted_lanes<V: Lanes>(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    weighted::encode_weighted_lanes::<Q5_0, V, BYTES>(weights, importance, bytes);
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

encoders! { Q5_0, encode_q5_0_weighted }

exact_test! { Q5_0, decoder::widened::<Q5_0, BYTES, LEN> }
