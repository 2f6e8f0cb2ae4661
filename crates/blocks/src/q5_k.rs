//! `q5_k`: 256 weights in 5 bits each, in 8 parts with a scale and a minimum of 6 bits, 5.5 bits a weight. Only read.
//!
//! ```text
//!   0     2     4           16             48                                 176
//!  ┌─────┬─────┬───────────┬──────────────┬──────────────────────────────────┐
//!  │ d   │ min │ 8 parts   │ fifth bits   │ 128 bytes of code pairs          │   d, min: f16, little-endian
//!  └─────┴─────┴───────────┴──────────────┴──────────────────────────────────┘   fifth bit of element e: bit e / 32 of byte e % 32
//! ```
//!
//! weight = d * step * code - min * offset.

use crate::decoder::{K_LEN, Term, nibble, six_bits};
use crate::{DType, f16};

const BYTES: usize = 2 * f16::BYTES + 12 + K_LEN / 8 + K_LEN / 2;
const _: () = assert!(BYTES == DType::Q5K.block_bytes() && K_LEN == DType::Q5K.block_len());

pub(crate) fn terms(block: &[u8; BYTES]) -> [Term; K_LEN] {
    let ([d0, d1, m0, m1], rest) = block.split_first_chunk().expect("a block has 176 bytes");
    let (parts, rest) = rest.split_first_chunk::<12>().expect("a block has 176 bytes");
    let (fifth, rest) = rest.split_first_chunk::<32>().expect("a block has 176 bytes");
    let codes = rest.first_chunk::<128>().expect("a block has 176 bytes");
    let (scale, low) = (f16::widen([*d0, *d1]), f16::widen([*m0, *m1]));
    std::array::from_fn(|e| {
        let (step, offset) = six_bits(parts, e / 32);
        let code = nibble(codes, e) | (fifth[e % 32] >> (e / 32) & 1) << 4;
        Term { scale, step, code: code as i8, low, offset }
    })
}
