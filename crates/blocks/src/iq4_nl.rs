//! `iq4_nl`: 32 weights as 4-bit places in a table of 16 steps, and one scale, 4.5 bits a weight. Only read.
//!
//! ```text
//!   0     2                                  18
//!  ┌─────┬──────────────────────────────────┐
//!  │ d   │ 16 bytes of place pairs          │   d: f16, little-endian
//!  └─────┴──────────────────────────────────┘   place j low, place j + 16 high in byte j
//! ```
//!
//! weight = d * STEPS[place].

use crate::decoder::Term;
use crate::parts::{self, Parts};
use crate::scale::LEN;
use crate::{DType, f16, nibbles};

pub(crate) const BYTES: usize = f16::BYTES + nibbles::BYTES;
const _: () = assert!(BYTES == DType::Iq4Nl.block_bytes() && LEN == DType::Iq4Nl.block_len());

/// The steps, denser around zero.
pub(crate) const STEPS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub(crate) fn terms(block: &[u8; BYTES]) -> [Term; LEN] {
    let [d0, d1, pairs @ ..] = block;
    let scale = f16::widen([*d0, *d1]);
    nibbles::unpack(pairs).map(|place| Term { scale, step: 1, code: STEPS[usize::from(place)], ..Term::default() })
}

/// What [`terms`] says, read at once.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<LEN, 1> {
    let [d0, d1, pairs @ ..] = block;
    let mut codes = [0; LEN];
    let (low, high) = codes.split_at_mut(nibbles::BYTES);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(pairs) {
        (*low, *high) = (STEPS[usize::from(byte & 15)], STEPS[usize::from(byte >> 4)]);
    }
    Parts { scales: [f16::widen([*d0, *d1])], minima: None, codes }
}

fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, LEN, 1, LEN>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    crate::decoder::decode(bytes, weights, terms);
}

dispatch! {
    pub(crate) fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::iq4_nl::decode,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Iq4Nl), in DType::Iq4Nl
}
