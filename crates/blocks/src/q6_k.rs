//! `q6_k`: 256 weights in 6 bits each, in 16 parts with a scale of 8 bits, 6.5625 bits a weight. Only read.
//!
//! ```text
//!   0                           128            192         208   210
//!  ┌───────────────────────────┬──────────────┬───────────┬─────┐
//!  │ 128 bytes of lower nibbles│ upper bits   │ 16 steps  │ d   │   steps: i8; d: f16, little-endian
//!  └───────────────────────────┴──────────────┴───────────┴─────┘
//! ```
//!
//! weight = d * step * (code - 32). Of each 128 elements, the first 64 are low nibbles of 64 bytes and the last 64
//! their high ones.

use crate::decoder::{K_LEN, Term, two_bits};
use crate::parts::{self, Parts, all_nibbles, all_two_bits, multiples};
use crate::{DType, f16};

const BYTES: usize = K_LEN / 2 + K_LEN / 4 + K_LEN / 16 + f16::BYTES;
const _: () = assert!(BYTES == DType::Q6K.block_bytes() && K_LEN == DType::Q6K.block_len());

pub(crate) fn terms(block: &[u8; BYTES]) -> [Term; K_LEN] {
    let (lower, rest) = block.split_first_chunk::<128>().expect("a block has 210 bytes");
    let (upper, rest) = rest.split_first_chunk::<64>().expect("a block has 210 bytes");
    let scale = f16::widen([rest[16], rest[17]]);
    std::array::from_fn(|e| {
        let nibble = lower[e / 128 * 64 + e % 64] >> (e % 128 / 64 * 4) & 15;
        let code = nibble | two_bits(upper, e) << 4;
        Term { scale, step: rest[e / 16] as i8, code: code as i8 - 32, ..Term::default() }
    })
}

/// What [`terms`] says, read at once.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<K_LEN, 16> {
    let (lower, rest) = block.split_first_chunk::<128>().expect("a block has 210 bytes");
    let (upper, rest) = rest.split_first_chunk::<64>().expect("a block has 210 bytes");
    let (steps, rest) = rest.split_first_chunk::<16>().expect("a block has 210 bytes");
    let (lower, upper) = (all_nibbles::<64>(lower), all_two_bits(upper));
    Parts {
        scales: multiples(f16::widen([rest[0], rest[1]]), steps.map(|step| step as i8)),
        minima: None,
        codes: std::array::from_fn(|e| (lower[e] | upper[e] << 4) as i8 - 32),
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
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_q6_k,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q6K), in DType::Q6K
}
