//! `q2_k`: 256 weights in 2 bits each, in 16 parts with a scale and a minimum of 4 bits, 2.625 bits a weight. Only
//! read.
//!
//! ```text
//!   0                16                      80    82    84
//!  ┌────────────────┬───────────────────────┬─────┬─────┐
//!  │ 16 parts       │ 64 bytes of codes     │ d   │ min │   part: step low, offset high in a byte
//!  └────────────────┴───────────────────────┴─────┴─────┘   d, min: f16; all little-endian
//! ```
//!
//! weight = d * step * code - min * offset.

use crate::decoder::{K_LEN, Term, two_bits};
use crate::parts::{self, Parts, all_two_bits, multiples};
use crate::{DType, f16};

const BYTES: usize = K_LEN / 16 + K_LEN / 4 + 2 * f16::BYTES;
const _: () = assert!(BYTES == DType::Q2K.block_bytes() && K_LEN == DType::Q2K.block_len());

pub(crate) fn terms(block: &[u8; BYTES]) -> [Term; K_LEN] {
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
    crate::decoder::decode(bytes, weights, terms);
}

dispatch! {
    pub(crate) fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_q2_k,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q2K), in DType::Q2K
}
