//! `q2_k`: 256 weights in 2 bits each, in 16 parts with a scale and a minimum of 4 bits, 2.625 bits a weight. Only read.
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
