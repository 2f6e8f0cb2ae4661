//! The split-scale layout: all codes of a tensor in one plane, all scales in another, as NPUs want them.
//!
//! ```text
//!  blocks  │ d │ codes │ d │ codes │ d │ codes │
//!            │     └───────┬──┼───────────┐
//!  values    │     │ codes │ codes │ codes │       q8_0: 32 bytes per block, unchanged
//!            └──┬──────────┘                       q4_0: 16 bytes, adjacent codes in a byte, signed:
//!  scales  │ d │ d │ d │                                 byte k = (code 2k - 8) low, (code 2k + 1 - 8) high
//! ```
//!
//! Both planes keep the order of the blocks. Nothing is lost: [`SplitScale::join`] is the exact inverse of
//! [`SplitScale::split`] on any bytes. The layout is the one that ggml's CANN backend makes when it loads a tensor.

use crate::codec::whole_blocks;
use crate::scale::LEN;
use crate::{DType, f16, nibbles, q4_0, q8_0};

/// Flips the top bit of both nibbles: a code of 0 ..= 15 to the two's complement of code - 8, and back.
const SIGNED_NIBBLES: u8 = 0x88;

/// A type that has a split-scale layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitScale {
    codes: Codes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Codes {
    Q4_0,
    Q8_0,
}

impl SplitScale {
    /// Bytes of one block's scale.
    pub const SCALE_BYTES: usize = f16::BYTES;

    /// The types that have this layout.
    pub const DTYPES: [DType; 2] = [DType::Q4_0, DType::Q8_0];

    /// The layout of a type; `None` for a type that has none.
    pub fn of(dtype: DType) -> Option<SplitScale> {
        let layouts = [Codes::Q4_0, Codes::Q8_0].map(|codes| SplitScale { codes });
        layouts.into_iter().find(|layout| layout.dtype() == dtype)
    }

    /// The type whose blocks are split.
    pub fn dtype(self) -> DType {
        match self.codes {
            Codes::Q4_0 => DType::Q4_0,
            Codes::Q8_0 => DType::Q8_0,
        }
    }

    /// Bytes of one block's codes in the plane of values.
    pub fn value_bytes(self) -> usize {
        match self.codes {
            Codes::Q4_0 => nibbles::BYTES,
            Codes::Q8_0 => LEN,
        }
    }

    /// Moves `n` blocks into `n` times [`SplitScale::value_bytes`] bytes of `values` and `n` times
    /// [`SplitScale::SCALE_BYTES`] bytes of `scales`; slices that do not fit panic.
    pub fn split(self, blocks: &[u8], values: &mut [u8], scales: &mut [u8]) {
        match self.codes {
            Codes::Q4_0 => split_blocks::<{ q4_0::BYTES }, { nibbles::BYTES }>(blocks, values, scales, |block| {
                let [d0, d1, pairs @ ..] = block;
                ([*d0, *d1], adjacent_pairs(pairs))
            }),
            Codes::Q8_0 => split_blocks::<{ q8_0::BYTES }, LEN>(blocks, values, scales, |block| {
                let [d0, d1, codes @ ..] = block;
                ([*d0, *d1], *codes)
            }),
        }
    }

    /// Moves both planes back into blocks; slices as in [`SplitScale::split`].
    pub fn join(self, values: &[u8], scales: &[u8], blocks: &mut [u8]) {
        match self.codes {
            Codes::Q4_0 => {
                join_blocks::<{ q4_0::BYTES }, { nibbles::BYTES }>(values, scales, blocks, |scale, values, block| {
                    let [d0, d1, pairs @ ..] = block;
                    [*d0, *d1] = scale;
                    *pairs = halves(values);
                })
            }
            Codes::Q8_0 => join_blocks::<{ q8_0::BYTES }, LEN>(values, scales, blocks, |scale, values, block| {
                let [d0, d1, codes @ ..] = block;
                [*d0, *d1] = scale;
                *codes = *values;
            }),
        }
    }
}

/// Converts code pairs (j, j + 16) to signed pairs (2k, 2k + 1).
fn adjacent_pairs(pairs: &[u8; nibbles::BYTES]) -> [u8; nibbles::BYTES] {
    let codes = nibbles::unpack(pairs);
    std::array::from_fn(|k| (codes[2 * k] | codes[2 * k + 1] << 4) ^ SIGNED_NIBBLES)
}

/// Converts signed pairs (2k, 2k + 1) to code pairs (j, j + 16).
fn halves(values: &[u8; nibbles::BYTES]) -> [u8; nibbles::BYTES] {
    nibbles::pack(&std::array::from_fn(|i| (values[i / 2] ^ SIGNED_NIBBLES) >> (4 * (i % 2)) & 15))
}

fn split_blocks<const BLOCK: usize, const VALUES: usize>(
    blocks: &[u8],
    values: &mut [u8],
    scales: &mut [u8],
    split: impl Fn(&[u8; BLOCK]) -> ([u8; f16::BYTES], [u8; VALUES]),
) {
    let (blocks, values) = whole_blocks(blocks.as_chunks::<BLOCK>(), values.as_chunks_mut::<VALUES>());
    let (blocks, scales) = whole_blocks((blocks, &[0u8; 0]), scales.as_chunks_mut::<{ f16::BYTES }>());
    for ((block, value), scale) in blocks.iter().zip(values).zip(scales) {
        (*scale, *value) = split(block);
    }
}

fn join_blocks<const BLOCK: usize, const VALUES: usize>(
    values: &[u8],
    scales: &[u8],
    blocks: &mut [u8],
    join: impl Fn([u8; f16::BYTES], &[u8; VALUES], &mut [u8; BLOCK]),
) {
    let (values, blocks) = whole_blocks(values.as_chunks::<VALUES>(), blocks.as_chunks_mut::<BLOCK>());
    let (scales, blocks) = whole_blocks(scales.as_chunks::<{ f16::BYTES }>(), (blocks, &mut [0u8; 0]));
    for ((value, scale), block) in values.iter().zip(scales).zip(blocks) {
        join(*scale, value, block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_0_pairs_adjacent_codes_as_signed_nibbles() {
        // Code of element i is i mod 16, so element i stands for i mod 16 - 8.
        let mut block = [0u8; q4_0::BYTES];
        block[..2].copy_from_slice(&[0x34, 0x12]);
        for j in 0..16 {
            block[2 + j] = (j | j << 4) as u8;
        }
        let (mut values, mut scales) = ([0u8; 16], [0u8; 2]);
        SplitScale::of(DType::Q4_0).unwrap().split(&block, &mut values, &mut scales);
        assert_eq!(scales, [0x34, 0x12]);
        // Elements 0 and 1 are -8 and -7: nibbles 8 and 9; elements 8 and 9 are 0 and 1.
        assert_eq!(values[..5], [0x98, 0xBA, 0xDC, 0xFE, 0x10]);
        assert_eq!(values[8..], values[..8], "elements 16 to 31 repeat the codes of 0 to 15");
    }

    #[test]
    fn only_listed_types_split() {
        let found: Vec<DType> = DType::all().filter(|&dtype| SplitScale::of(dtype).is_some()).collect();
        assert_eq!(found, SplitScale::DTYPES);
        for dtype in found {
            let layout = SplitScale::of(dtype).unwrap();
            assert_eq!(layout.value_bytes() + SplitScale::SCALE_BYTES, dtype.block_bytes());
        }
    }

    #[test]
    fn every_byte_of_q4_0_comes_back() {
        let blocks: Vec<u8> = crate::samples::encoded(DType::Q4_0);
        let n = blocks.len() / q4_0::BYTES;
        let (mut values, mut scales, mut joined) = (vec![0; n * 16], vec![0; n * 2], vec![0; blocks.len()]);
        let layout = SplitScale::of(DType::Q4_0).unwrap();
        layout.split(&blocks, &mut values, &mut scales);
        layout.join(&values, &scales, &mut joined);
        assert_eq!(joined, blocks);
    }

    #[test]
    #[should_panic(expected = "source and target differ in blocks")]
    fn planes_of_another_size_are_refused() {
        SplitScale::of(DType::Q8_0).unwrap().split(&[0; 68], &mut [0; 64], &mut [0; 2]);
    }
}
