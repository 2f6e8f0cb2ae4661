//! `q3_k`: 256 weights in 3 bits each, in 16 parts with a scale of 6 bits, 3.4375 bits a weight. Only read.
//!
//! ```text
//!   0                32                      96          108   110
//!  ┌────────────────┬───────────────────────┬───────────┬─────┐
//!  │ third bits     │ 64 bytes of codes     │ 16 steps  │ d   │   third bit of element e: bit e / 32 of byte e % 32
//!  └────────────────┴───────────────────────┴───────────┴─────┘   d: f16; all little-endian
//! ```
//!
//! weight = d * (step - 32) * (code - 4). Four bits of step j stand in byte j % 8 of the steps, low where j < 8; its
//! upper two bits in byte 8 + j % 4 at bit 2 (j / 4).

use crate::decoder::{K_LEN, Term, two_bits};
use crate::parts::{self, Parts, all_two_bits, multiples, put_single_bits, sixteen_steps};
use crate::{DType, f16};

const BYTES: usize = K_LEN / 8 + K_LEN / 4 + 12 + f16::BYTES;
const _: () = assert!(BYTES == DType::Q3K.block_bytes() && K_LEN == DType::Q3K.block_len());

pub(crate) fn terms(block: &[u8; BYTES]) -> [Term; K_LEN] {
    let (third, rest) = block.split_first_chunk::<32>().expect("a block has 110 bytes");
    let (codes, rest) = rest.split_first_chunk::<64>().expect("a block has 110 bytes");
    let scale = f16::widen([rest[12], rest[13]]);
    std::array::from_fn(|e| {
        let code = two_bits(codes, e) | (third[e % 32] >> (e / 32) & 1) << 2;
        Term { scale, step: step(rest, e / 16), code: code as i8 - 4, ..Term::default() }
    })
}

fn step(packed: &[u8], part: usize) -> i8 {
    let lower = packed[part % 8] >> (part / 8 * 4) & 15;
    let upper = packed[8 + part % 4] >> (part / 4 * 2) & 3;
    (lower | upper << 4) as i8 - 32
}

/// What [`terms`] says, read at once.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<K_LEN, 16> {
    let (third, rest) = block.split_first_chunk::<32>().expect("a block has 110 bytes");
    let (codes, rest) = rest.split_first_chunk::<64>().expect("a block has 110 bytes");
    let (packed, rest) = rest.split_first_chunk::<12>().expect("a block has 110 bytes");
    let mut codes = all_two_bits(codes);
    put_single_bits(&mut codes, third, 2);
    Parts {
        scales: multiples(f16::widen([rest[0], rest[1]]), sixteen_steps(packed).map(|step| step - 32)),
        minima: None,
        codes: codes.map(|code| code as i8 - 4),
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
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_q3_k,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q3K), in DType::Q3K
}
