//! `q4_0`: 32 weights in 4 bits each and one scale, 4.5 bits per weight.
//!
//! ```text
//!   0     2                                  18
//!  ┌─────┬──────────────────────────────────┐
//!  │ d   │ 16 bytes of code pairs           │   d: f16, little-endian
//!  └─────┴──────────────────────────────────┘   code j low, code j + 16 high in byte j
//! ```
//!
//! weight = d * (code - 8). The weight of largest magnitude lands on code 0, so that the scale carries its sign.

use crate::codec::{decode_blocks, encode_blocks};
use crate::decoder;
use crate::scale::{LEN, reciprocal, signed_extreme, truncate};
use crate::search::lanes::{self, Columns, Lanes};
use crate::search::signed;
use crate::weighted::{self, Format};
use crate::{Block, DType, f16, nibbles};

pub(crate) const BYTES: usize = f16::BYTES + nibbles::BYTES;
const _: () = assert!(BYTES == Q4_0::DTYPE.block_bytes() && LEN == Q4_0::DTYPE.block_len());

/// Four bits around zero, one scale for 32 weights.
pub struct Q4_0;

impl Block for Q4_0 {
    const DTYPE: DType = DType::Q4_0;
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

/// The scale and the codes less 8.
#[inline(always)]
fn read(block: &[u8; BYTES]) -> (f32, [i8; LEN]) {
    let [d0, d1, pairs @ ..] = block;
    (f16::widen([*d0, *d1]), nibbles::unpack(pairs).map(|code| code as i8 - 8))
}

fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    decode_blocks(bytes, weights, |block: &[u8; BYTES], weights: &mut [f32; LEN]| {
        let (scale, codes) = read(block);
        *weights = codes.map(|code| scale * f32::from(code));
    });
}

fn encode_scalar(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks(weights, bytes, |weights: &[f32; LEN], block: &mut [u8; BYTES]| {
        let scale = signed_extreme(weights) / -8.0;
        let inverse = reciprocal(scale);
        let codes = weights.map(|weight| truncate(weight * inverse + 8.5).min(15) as u8);
        let [d0, d1, pairs @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        *pairs = nibbles::pack(&codes);
    });
}

impl Format<BYTES> for Q4_0 {
    fn search(weights: &[f32; LEN], counts: &[f32; LEN], codes: &mut [u8; LEN]) -> (f32, f32) {
        (signed::search(8, weights, counts, codes), 0.0)
    }

    #[inline(always)]
    fn search_lanes<V: Lanes>(weights: &Columns<V, LEN>, counts: &Columns<V, LEN>) -> lanes::Found<V, LEN> {
        lanes::Found::signed(8, weights, counts)
    }

    #[inline(always)]
    fn pack((scale, _): (f32, f32), codes: &[u8; LEN], block: &mut [u8; BYTES]) {
        let [d0, d1, pairs @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        *pairs = nibbles::pack(codes);
    }
}

fn encode_weighted_scalar(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    weighted::encode_weighted::<Q4_0, BYTES>(weights, importance, bytes);
}

#[inline(always)]
pub(crate) fn encode_weighted_lanes<V: Lanes>(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    weighted::encode_weighted_lanes::<Q4_0, V, BYTES>(weights, importance, bytes);
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::q4_0::decode,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q4_0), in DType::Q4_0
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        fast avx512("avx2", "avx512f", "avx512dq") => crate::avx512::encode_q4_0,
        fast avx2("avx2", "f16c") => crate::avx2::q4_0::encode,
        scalar => encode_scalar,
    }
    encode_variants_agree on crate::samples::weights(), in DType::Q4_0
}

encoders! { Q4_0, encode_q4_0_weighted }

exact_test! { Q4_0, decoder::widened::<Q4_0, BYTES, LEN> }
