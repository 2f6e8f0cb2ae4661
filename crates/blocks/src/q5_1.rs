//! `q5_1`: 32 weights in 5 bits each, a scale and a minimum, 6 bits per weight.
//!
//! ```text
//!   0     2     4           8                                  24
//!  ┌─────┬─────┬───────────┬──────────────────────────────────┐
//!  │ d   │ m   │ fifth bits│ 16 bytes of code pairs           │   d, m: f16; fifth bits: u32, bit j of code j
//!  └─────┴─────┴───────────┴──────────────────────────────────┘   all little-endian
//!                            low four bits of code j low, of code j + 16 high in byte j
//! ```
//!
//! weight = d * code + m. The smallest weight lands on code 0, the largest on 31.

use crate::codec::{decode_blocks, encode_blocks};
use crate::decoder;
use crate::k_affine::weighted_tries;
use crate::scale::{LEN, extremes, reciprocal, truncate};
use crate::search::affine;
use crate::search::lanes::{self, Columns, Lanes};
use crate::weighted::{self, Format};
use crate::{Block, DType, f16, nibbles};

pub(crate) const BYTES: usize = 2 * f16::BYTES + LEN / 8 + nibbles::BYTES;
const _: () = assert!(BYTES == Q5_1::DTYPE.block_bytes() && LEN == Q5_1::DTYPE.block_len());

/// Five bits above a minimum, one scale and one minimum for 32 weights.
pub struct Q5_1;

impl Block for Q5_1 {
    const DTYPE: DType = DType::Q5_1;
    const USES_IMPORTANCE: bool = true;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        decoder::decode_affine(bytes, weights, read);
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }

    fn encode_weighted(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
        encode_rows_weighted(weights, importance, bytes);
    }
}

/// The scale, the minimum and the codes.
#[inline(always)]
fn read(block: &[u8; BYTES]) -> (f32, f32, [u8; LEN]) {
    let [d0, d1, m0, m1, h0, h1, h2, h3, pairs @ ..] = block;
    let codes = nibbles::unpack_five_bits(pairs, [*h0, *h1, *h2, *h3]);
    (f16::widen([*d0, *d1]), f16::widen([*m0, *m1]), codes)
}

#[inline(always)]
pub(crate) fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    decode_blocks(bytes, weights, |block: &[u8; BYTES], weights: &mut [f32; LEN]| {
        let (scale, low, codes) = read(block);
        *weights = codes.map(|code| scale * f32::from(code) + low);
    });
}

fn encode_scalar(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks(weights, bytes, |weights: &[f32; LEN], block: &mut [u8; BYTES]| {
        let (low, high) = extremes(weights);
        let scale = (high - low) / 31.0;
        let inverse = reciprocal(scale);
        // The rule does not limit these codes to 31: packing keeps their five bits.
        let codes = weights.map(|weight| truncate((weight - low) * inverse + 0.5) as u8);
        let [d0, d1, m0, m1, h0, h1, h2, h3, pairs @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        [*m0, *m1] = f16::narrow(low);
        [*h0, *h1, *h2, *h3] = nibbles::pack_fifth_bits(&codes);
        *pairs = nibbles::pack(&codes);
    });
}

impl Format<BYTES> for Q5_1 {
    fn search(weights: &[f32; LEN], counts: &[f32; LEN], codes: &mut [u8; LEN]) -> (f32, f32) {
        let found = affine::search(weighted_tries(31), weights, counts, codes);
        (found.scale, found.minimum)
    }

    #[inline(always)]
    fn search_lanes<V: Lanes>(weights: &Columns<V, LEN>, counts: &Columns<V, LEN>) -> lanes::Found<V, LEN> {
        lanes::Found::affine(weighted_tries(31), weights, counts)
    }

    #[inline(always)]
    fn pack((scale, minimum): (f32, f32), codes: &[u8; LEN], block: &mut [u8; BYTES]) {
        let [d0, d1, m0, m1, h0, h1, h2, h3, pairs @ ..] = block;
        [*d0, *d1] = f16::narrow(scale);
        [*m0, *m1] = f16::narrow(-minimum);
        [*h0, *h1, *h2, *h3] = nibbles::pack_fifth_bits(codes);
        *pairs = nibbles::pack(codes);
    }
}

fn encode_weighted_scalar(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    weighted::encode_weighted::<Q5_1, BYTES>(weights, importance, bytes);
}

#[inline(always)]
pub(crate) fn encode_weighted_lanes<V: Lanes>(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    weighted::encode_weighted_lanes::<Q5_1, V, BYTES>(weights, importance, bytes);
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2") => crate::avx2::compiled::decode_q5_1,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q5_1), in DType::Q5_1
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        fast avx2("avx2", "f16c") => crate::avx2::q5_1::encode,
        scalar => encode_scalar,
    }
    encode_variants_agree on crate::samples::weights(), in DType::Q5_1
}

encoders! { Q5_1, encode_q5_1_weighted }
