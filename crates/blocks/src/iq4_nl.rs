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
use crate::scale::LEN;
use crate::{DType, f16, nibbles};

const BYTES: usize = f16::BYTES + nibbles::BYTES;
const _: () = assert!(BYTES == DType::Iq4Nl.block_bytes() && LEN == DType::Iq4Nl.block_len());

/// The steps, denser around zero.
const STEPS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub(crate) fn terms(block: &[u8; BYTES]) -> [Term; LEN] {
    let [d0, d1, pairs @ ..] = block;
    let scale = f16::widen([*d0, *d1]);
    nibbles::unpack(pairs).map(|place| Term { scale, step: 1, code: STEPS[usize::from(place)], ..Term::default() })
}
