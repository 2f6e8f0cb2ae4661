//! `f32`: IEEE binary32, little-endian.
//!
//! ```text
//!  ┌────┬────┬────┬────┐
//!  │ 0  │ 1  │ 2  │ 3  │   one element
//!  └────┴────┴────┴────┘
//! ```

use crate::codec::{decode_blocks, encode_blocks};
use crate::{Block, DType};

const BYTES: usize = 4;
const _: () = assert!(BYTES == F32::DTYPE.block_bytes());

/// IEEE binary32; bits pass through unchanged, NaN payloads too.
pub struct F32;

impl Block for F32 {
    const DTYPE: DType = DType::F32;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_blocks::<BYTES, 1, f32>(bytes, weights, |element, [weight]| *weight = f32::from_le_bytes(*element));
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        decode_blocks::<BYTES, 1, f64>(bytes, weights, |element, [weight]| {
            *weight = f32::from_le_bytes(*element).into()
        });
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_blocks::<BYTES, 1>(weights, bytes, |[weight], element| *element = weight.to_le_bytes());
    }
}
