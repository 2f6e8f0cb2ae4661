//! `q2_k`: 256 weights in 2 bits each, in 16 parts with a scale and a minimum of 4 bits, 2.625 bits a weight.
//!
//! ```text
//!   0                16                      80    82    84
//!  ┌────────────────┬───────────────────────┬─────┬─────┐
//!  │ 16 parts       │ 64 bytes of codes     │ d   │ min │   part: step low, offset high in a byte
//!  └────────────────┴───────────────────────┴─────┴─────┘   d, min: f16; all little-endian
//! ```
//!
//! weight = d * step * code - min * offset.

use crate::codec::{encode_blocks, encode_blocks_weighted};
use crate::decoder::{self, K_LEN, Term, two_bits};
use crate::k_affine::{self, Found, Header};
use crate::packing::pack_two_bits;
use crate::parts::{self, Parts, all_two_bits, multiples};
use crate::search::affine::Tries;
use crate::search::{importance_of, sum_of_squares};
use crate::{Block, DType, f16};

const BYTES: usize = K_LEN / 16 + K_LEN / 4 + 2 * f16::BYTES;
const _: () = assert!(BYTES == DType::Q2K.block_bytes() && K_LEN == DType::Q2K.block_len());

/// Two bits above a minimum, in sixteen groups of 16 weights.
pub struct Q2K;

impl Block for Q2K {
    const DTYPE: DType = DType::Q2K;
    const USES_IMPORTANCE: bool = true;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        decoder::decode_exact(bytes, weights, terms);
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }

    fn encode_weighted(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
        encode_rows_weighted(weights, importance, bytes);
    }
}

fn terms(block: &[u8; BYTES]) -> [Term; K_LEN] {
    let (parts, rest) = block.split_first_chunk::<16>().expect("a block has 84 bytes");
    let (codes, rest) = rest.split_first_chunk::<64>().expect("a block has 84 bytes");
    let (scale, low) = (f16::widen([rest[0], rest[1]]), f16::widen([rest[2], rest[3]]));
    std::array::from_fn(|e| {
        let part = parts[e / 16];
        Term { scale, step: (part & 15) as i8, code: two_bits(codes, e) as i8, low, offset: (part >> 4) as i8 }
    })
}

/// What [`terms`] says, read at once.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<K_LEN, 16> {
    let (packed, rest) = block.split_first_chunk::<16>().expect("a block has 84 bytes");
    let (codes, rest) = rest.split_first_chunk::<64>().expect("a block has 84 bytes");
    Parts {
        scales: multiples(f16::widen([rest[0], rest[1]]), packed.map(|part| (part & 15) as i8)),
        minima: Some(multiples(f16::widen([rest[2], rest[3]]), packed.map(|part| (part >> 4) as i8))),
        codes: all_two_bits(codes).map(|code| code as i8),
    }
}

#[inline(always)]
pub(crate) fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, K_LEN, 16, 16>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    decoder::decode(bytes, weights, terms);
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_q2_k,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q2K), in DType::Q2K
}

/// Weights of a part.
const PART: usize = 16;
const PARTS: usize = K_LEN / PART;
/// The largest code, and the largest step and offset.
const TOP: i32 = 3;
const STEP_TOP: u8 = 15;

const PLAIN: Tries = Tries { top: TOP, first: -0.5, step: 0.1, last: 15, is_absolute: true };

/// Writes a block from what the search found.
#[inline(always)]
fn write(weights: &[f32; K_LEN], header: &Header<PARTS>, mut codes: [u8; K_LEN], block: &mut [u8; BYTES]) {
    k_affine::settle::<PARTS, PART>(TOP, header, weights, &mut codes);
    let (parts, rest) = block.split_first_chunk_mut::<16>().expect("a block has 84 bytes");
    let (packed, rest) = rest.split_first_chunk_mut::<64>().expect("a block has 84 bytes");
    *parts = std::array::from_fn(|part| header.steps[part] | header.offsets[part] << 4);
    *packed = pack_two_bits(&codes);
    rest[..2].copy_from_slice(&header.scale);
    rest[2..].copy_from_slice(&header.low);
}

#[inline(always)]
fn write_plain(weights: &[f32; K_LEN], found: Found<PARTS>, block: &mut [u8; BYTES]) {
    write(weights, &k_affine::plain_header(STEP_TOP, &found), found.codes, block);
}

#[inline(always)]
fn write_weighted(weights: &[f32; K_LEN], found: Found<PARTS>, block: &mut [u8; BYTES]) {
    write(weights, &k_affine::weighted_header(STEP_TOP, &found), found.codes, block);
}

fn encode_scalar(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks(weights, bytes, |weights, block| {
        let found = k_affine::search(PLAIN, weights, |_, weights: &[f32; PART]| weights.map(f32::abs));
        write_plain(weights, found, block);
    });
}

fn encode_weighted_scalar(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    encode_blocks_weighted(weights, importance, bytes, |weights, importance: &[f32; K_LEN], block| {
        let mean_square = sum_of_squares(weights) / K_LEN as f32;
        let found = k_affine::search(k_affine::weighted_tries(TOP), weights, |part, weights: &[f32; PART]| {
            importance_of(weights, &importance.as_chunks().0[part], mean_square)
        });
        write_weighted(weights, found, block);
    });
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        scalar => encode_scalar,
    }
    encode_variants_agree on crate::samples::finite_weights(), in DType::Q2K
}

fn encode_rows_weighted(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    encode_weighted_scalar(weights, importance, bytes);
}
