//! `q4_k`: 256 weights in 4 bits each, in 8 parts with a scale and a minimum of 6 bits, 4.5 bits a weight. Only read.
//!
//! ```text
//!   0     2     4           16                                 144
//!  ┌─────┬─────┬───────────┬──────────────────────────────────┐
//!  │ d   │ min │ 8 parts   │ 128 bytes of code pairs          │   d, min: f16, little-endian
//!  └─────┴─────┴───────────┴──────────────────────────────────┘
//! ```
//!
//! weight = d * step * code - min * offset.

use crate::decoder::{K_LEN, Term, nibble, six_bits};
use crate::parts::{self, Parts, all_nibbles, eight_steps_and_offsets, multiples};
use crate::{DType, f16};

const BYTES: usize = 2 * f16::BYTES + 12 + K_LEN / 2;
const _: () = assert!(BYTES == DType::Q4K.block_bytes() && K_LEN == DType::Q4K.block_len());

pub(crate) fn terms(block: &[u8; BYTES]) -> [Term; K_LEN] {
    let ([d0, d1, m0, m1], rest) = block.split_first_chunk().expect("a block has 144 bytes");
    let (parts, rest) = rest.split_first_chunk::<12>().expect("a block has 144 bytes");
    let codes = rest.first_chunk::<128>().expect("a block has 144 bytes");
    let (scale, low) = (f16::widen([*d0, *d1]), f16::widen([*m0, *m1]));
    std::array::from_fn(|e| {
        let (step, offset) = six_bits(parts, e / 32);
        Term { scale, step, code: nibble(codes, e) as i8, low, offset }
    })
}

/// What [`terms`] says, read at once.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<K_LEN, 8> {
    let ([d0, d1, m0, m1], rest) = block.split_first_chunk().expect("a block has 144 bytes");
    let (packed, rest) = rest.split_first_chunk::<12>().expect("a block has 144 bytes");
    let codes = rest.first_chunk::<128>().expect("a block has 144 bytes");
    let [steps, offsets] = eight_steps_and_offsets(packed);
    Parts {
        scales: multiples(f16::widen([*d0, *d1]), steps),
        minima: Some(multiples(f16::widen([*m0, *m1]), offsets)),
        codes: all_nibbles::<32>(codes).map(|code| code as i8),
    }
}

#[inline(always)]
pub(crate) fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, K_LEN, 8, 32>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    crate::decoder::decode(bytes, weights, terms);
}

dispatch! {
    pub(crate) fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_q4_k,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q4K), in DType::Q4K
}
