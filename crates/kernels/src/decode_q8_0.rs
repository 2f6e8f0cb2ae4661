//! Rows of a KV cache in blocks of 32 codes, as numbers.

use super::kernel;
use super::rows::Rows;
#[cfg(feature = "samples")]
use super::samples::numbers;
#[cfg(feature = "samples")]
use crate::isa::Instructions;
use crate::panel_block::BLOCK_LEN;
use half::f16;
use trueup_blocks::DType;

/// Bytes of a block: an f16 scale and the codes.
pub(super) const BLOCK_BYTES: usize = DType::Q8_0.block_bytes();

kernel! {
    /// The elements of rows of q8_0, whole blocks each, row behind row: products of numbers of 11 and 8 bits, which f32
    /// holds exactly.
    fn decode_q8_0(rows: Rows<u8>, elements: &mut [f32]) {
        avx512 => super::avx512::decode_q8_0::decode_q8_0,
        avx2 => recompiled,
        scalar => decode,
    }
    decode_q8_0_samples on samples
}

#[inline(always)]
pub(super) fn decode(rows: Rows<u8>, elements: &mut [f32]) {
    for (blocks, elements) in each_row(rows, elements) {
        for ([low, high, codes @ ..], elements) in blocks.iter().zip(elements) {
            let scale = f16::from_le_bytes([*low, *high]).to_f32();
            for (code, element) in codes.iter().zip(elements) {
                *element = scale * f32::from(*code as i8);
            }
        }
    }
}

/// Each row's blocks and the place of their elements. Panics where the elements are not as many as the blocks have.
#[inline(always)]
pub(super) fn each_row<'a>(
    rows: Rows<'a, u8>,
    elements: &'a mut [f32],
) -> impl Iterator<Item = (&'a [[u8; BLOCK_BYTES]], &'a mut [[f32; BLOCK_LEN]])> {
    let blocks = rows.len() / BLOCK_BYTES;
    let (elements, rest) = elements.as_chunks_mut();
    let is_whole = rest.is_empty() && blocks * BLOCK_BYTES == rows.len();
    assert!(is_whole && elements.len() == rows.count() * blocks, "32 elements for each whole block");
    elements
        .chunks_exact_mut(blocks.max(1))
        .enumerate()
        .map(move |(row, elements)| (rows.row(row).as_chunks().0, elements))
}

/// One to nine rows of one to five blocks, all codes among them, and scales that are large, small and zero.
#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut results = Vec::new();
    for (count, blocks) in [(1, 1), (3, 2), (9, 1), (2, 5), (0, 3)] {
        let stride = blocks * BLOCK_BYTES + 34;
        let mut bytes: Vec<u8> = (0..count * stride).map(|place| (place * 37 + count) as u8).collect();
        let scales = numbers(count * (blocks + 1), 5);
        for (block, scale) in bytes.chunks_exact_mut(BLOCK_BYTES).zip(&scales) {
            block[..2].copy_from_slice(&f16::from_f32(*scale).to_le_bytes());
        }
        if let Some(first) = bytes.first_chunk_mut() {
            *first = f16::from_bits(1).to_le_bytes();
        }
        let mut elements = vec![f32::NAN; count * blocks * BLOCK_LEN];
        decode_q8_0(instructions, Rows::strided(&bytes, count, blocks * BLOCK_BYTES, stride), &mut elements);
        results.extend(elements);
    }
    results
}
