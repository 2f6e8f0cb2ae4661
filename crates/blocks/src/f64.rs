//! `f64`: IEEE binary64, little-endian.
//!
//! ```text
//!  ┌────┬────┬────┬────┬────┬────┬────┬────┐
//!  │ 0  │ 1  │ 2  │ 3  │ 4  │ 5  │ 6  │ 7  │   one element
//!  └────┴────┴────┴────┴────┴────┴────┴────┘
//! ```

use crate::codec::{decode_blocks, encode_blocks};
use crate::{Block, DType};

const BYTES: usize = 8;
const _: () = assert!(BYTES == F64::DTYPE.block_bytes());

/// IEEE binary64. Decoding to f32 rounds to nearest, ties to even, and overflows to infinity.
pub struct F64;

impl Block for F64 {
    const DTYPE: DType = DType::F64;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_blocks::<BYTES, 1, f32>(bytes, weights, |element, [weight]| {
            *weight = f64::from_le_bytes(*element) as f32
        });
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        decode_blocks::<BYTES, 1, f64>(bytes, weights, |element, [weight]| *weight = f64::from_le_bytes(*element));
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_blocks::<BYTES, 1>(weights, bytes, |[weight], element| *element = f64::from(*weight).to_le_bytes());
    }
}
