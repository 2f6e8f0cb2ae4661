//! `tq2_0`: 256 weights of -1, 0 and 1 in 2 bits each and one scale, 2.0625 bits per weight.
//!
//! ```text
//!   0                               64    66
//!  ┌───────────────────────────────┬─────┐
//!  │ 64 bytes of codes             │ d   │   d: f16, little-endian
//!  └───────────────────────────────┴─────┘   of each 128 weights, byte l holds l, l + 32, l + 64, l + 96, the first lowest
//! ```
//!
//! weight = d * (code - 1). The encoder writes the codes 0, 1 and 2.

use crate::codec::encode_blocks;
use crate::decoder::K_LEN;
#[cfg(test)]
use crate::decoder::{Term, two_bits};
use crate::packing::pack_two_bits;
use crate::parts::{self, Parts, all_two_bits};
use crate::ternary::digits_of;
use crate::{Block, DType, f16};

const BYTES: usize = K_LEN / 4 + f16::BYTES;
const _: () = assert!(BYTES == DType::Tq2_0.block_bytes() && K_LEN == DType::Tq2_0.block_len());

/// Ternary weights in two bits each.
pub struct Tq2_0;

impl Block for Tq2_0 {
    const DTYPE: DType = DType::Tq2_0;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        parts::decode_exact::<BYTES, K_LEN, 1, K_LEN>(bytes, weights, parts);
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }
}

/// Bits that are set in a byte for each code 3 in it.
fn unused_pairs(byte: u8) -> u8 {
    byte & byte >> 1 & 0x55
}

/// The first byte of a block with the code 3.
pub(crate) fn unused_byte(block: &[u8]) -> Option<usize> {
    block[..BYTES - f16::BYTES].iter().position(|byte| unused_pairs(*byte) != 0)
}

/// The first weight with the code 3 in a byte that has one.
pub(crate) fn first_unused(place: usize, byte: u8) -> usize {
    place / 32 * 128 + place % 32 + 32 * (unused_pairs(byte).trailing_zeros() as usize / 2)
}

#[cfg(test)]
fn terms(block: &[u8; BYTES]) -> [Term; K_LEN] {
    let (codes, rest) = block.split_first_chunk::<64>().expect("a block has 66 bytes");
    let scale = f16::widen([rest[0], rest[1]]);
    std::array::from_fn(|e| Term { scale, step: 1, code: two_bits(codes, e) as i8 - 1, ..Term::default() })
}

/// The parts of a block; its elements are those of `terms`, which only tests use.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<K_LEN, 1> {
    let (codes, rest) = block.split_first_chunk::<64>().expect("a block has 66 bytes");
    let scales = [f16::widen([rest[0], rest[1]])];
    Parts { scales, minima: None, codes: all_two_bits(codes).map(|code| code as i8 - 1) }
}

#[inline(always)]
pub(crate) fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, K_LEN, 1, K_LEN>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    crate::decoder::decode(bytes, weights, terms);
}

#[inline(always)]
pub(crate) fn encode_parts(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks(weights, bytes, |weights: &[f32; K_LEN], block: &mut [u8; BYTES]| {
        let (scale, digits) = digits_of(weights);
        let (codes, rest) = block.split_first_chunk_mut::<64>().expect("a block has 66 bytes");
        *codes = pack_two_bits(&digits);
        rest.copy_from_slice(&f16::narrow(scale));
    });
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_tq2_0,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Tq2_0), in DType::Tq2_0
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        fast avx512("avx2", "avx512f", "avx512dq", "avx512bw", "avx512vl") => crate::avx512::compiled::encode_tq2_0,
        fast avx2("avx2", "f16c") => crate::avx2::compiled::encode_tq2_0,
        scalar => encode_parts,
    }
    encode_variants_agree on crate::samples::weights(), in DType::Tq2_0
}

exact_test! { Tq2_0 }
