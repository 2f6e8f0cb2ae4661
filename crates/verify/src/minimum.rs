//! Which formats store a minimum in addition to the scale of a block, and where.
//!
//! ```text
//!   q4_1, q5_1         │ d │ m │ codes │           weight = d code + m, one minimum for a block of 32
//!   q2_k, q4_k, q5_k   │ ... │ dmin │ ... │        weight = d step code - dmin offset, a minimum for each part of a block
//! ```
//!
//! The second f16 of `q8_1` is a sum of its codes, no minimum.

use crate::operand::{Data, Operand, decode};
use std::ops::Range;
use trueup_blocks::DType;
use trueup_graph::TensorType;

/// Whether decoding adds a minimum to a product, which rounds in f32.
pub(crate) fn is_affine(dtype: DType) -> bool {
    place(dtype).is_some()
}

/// The bytes of the f16 that all minima of a block are multiples of; `None` for formats without minima.
pub(crate) fn place(dtype: DType) -> Option<Range<usize>> {
    let second = matches!(dtype, DType::Q4_1 | DType::Q5_1 | DType::Q4K | DType::Q5K);
    second.then_some(2..4).or((dtype == DType::Q2K).then_some(82..84))
}

/// Whether this is a matrix in blocks of which each has one minimum for all of its elements.
pub(crate) fn is_one_a_block(weights: &Operand) -> bool {
    matches!(weights.data, Data::Blocks(_)) && matches!(weights.ty.dtype, DType::Q4_1 | DType::Q5_1)
}

/// Elements that share a scale and, in formats with minima, a minimum. Kernels sum their products in integers.
pub(crate) fn sub_block_len(dtype: DType) -> usize {
    if matches!(dtype, DType::Q2K | DType::Q3K | DType::Q6K) { 16 } else { 32 }
}

/// Whether this is a matrix in blocks with minima. Kernels that sum in integers multiply these separately.
pub(crate) fn is_apart(weights: &Operand) -> bool {
    matches!(weights.data, Data::Blocks(_)) && is_affine(weights.ty.dtype)
}

/// The minimum of each sub-block of row `row`, exact; none for formats without minima.
pub(crate) fn of_sub_blocks(weights: &Operand, row: usize) -> Vec<f64> {
    if is_one_a_block(weights) {
        of_row(weights, row).collect()
    } else if is_apart(weights) {
        of_elements(weights, row).into_iter().step_by(sub_block_len(weights.ty.dtype)).collect()
    } else {
        Vec::new()
    }
}

/// The minimum of each block of row `row`, exact; none where blocks do not have one minimum each.
pub(crate) fn of_row<'a>(weights: &Operand<'a>, row: usize) -> impl Iterator<Item = f64> + use<'a> {
    let dtype = weights.ty.dtype;
    let bytes = if is_one_a_block(weights) { weights.row_bytes(row) } else { None };
    let blocks = bytes.unwrap_or_default().chunks_exact(dtype.block_bytes());
    blocks.filter_map(move |block| of_block(block, place(dtype)?))
}

/// The minimum above which each element of row `row` lies, exact: what its block decodes to with all codes zero.
/// Empty for formats that are multiplied in one part.
pub(crate) fn of_elements(weights: &Operand, row: usize) -> Vec<f64> {
    let dtype = weights.ty.dtype;
    let (Some(codes), Some(bytes)) = (codes(dtype), weights.row_bytes(row)) else { return Vec::new() };
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        block.get_mut(codes.clone()).into_iter().for_each(|codes| codes.fill(0));
    }
    decode(&TensorType::new(dtype, &[weights.ty.shape[0]]), &bytes)
}

/// Whether kernels for activations in q8_1 or q8_K multiply codes and minima apart. Those of q6_k do so with its
/// unsigned codes and its offset.
pub(crate) fn is_split(dtype: DType) -> bool {
    codes(dtype).is_some()
}

/// The bytes of a block that hold the codes of its elements; `None` for formats that are multiplied in one part.
fn codes(dtype: DType) -> Option<Range<usize>> {
    match dtype {
        DType::Q4_1 | DType::Q5_1 => Some(4..dtype.block_bytes()),
        DType::Q4K | DType::Q5K => Some(16..dtype.block_bytes()),
        DType::Q2K => Some(16..80),
        DType::Q6K => Some(0..192),
        _ => None,
    }
}

/// The f16 at a place of a block.
fn of_block(block: &[u8], place: Range<usize>) -> Option<f64> {
    let bytes = block.get(place)?.first_chunk()?;
    Some(half::f16::from_le_bytes(*bytes).to_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every type whose elements change where its minima are zeroed is affine, and no other.
    #[test]
    fn places_are_those_that_decoding_reads() {
        for dtype in [DType::Q4_1, DType::Q5_1, DType::Q2K, DType::Q4K, DType::Q5K] {
            let ty = TensorType::new(dtype, &[dtype.block_len()]);
            let mut bytes = vec![0x11; dtype.block_bytes()];
            let with = decode(&ty, &bytes);
            bytes[place(dtype).unwrap()].fill(0);
            let without = decode(&ty, &bytes);
            assert!(with.iter().zip(&without).all(|(with, without)| with != without), "{dtype}");
        }
        for dtype in [DType::Q4_0, DType::Q5_0, DType::Q8_0, DType::Q8_1, DType::Q3K, DType::Q6K, DType::Iq4Nl] {
            assert!(!is_affine(dtype), "{dtype}");
        }
    }

    #[test]
    fn every_weight_is_no_less_than_its_minimum_and_one_of_few_multiples_above_it() {
        for dtype in [DType::Q4_1, DType::Q5_1, DType::Q2K, DType::Q4K, DType::Q5K, DType::Q6K] {
            let ty = TensorType::new(dtype, &[512]);
            // No scale and no code is zero, whatever bits of a byte hold it.
            let mut bytes = vec![0x55; ty.bytes()];
            bytes.iter_mut().enumerate().for_each(|(place, byte)| *byte ^= (place * 37 % 64) as u8 & 0x0a);
            let (operand, weights) = (Operand::blocks(ty, &bytes), decode(&ty, &bytes));
            let minima = of_elements(&operand, 0);
            assert_eq!(minima.len(), 512, "{dtype}");
            for (weights, minima) in weights.chunks(16).zip(minima.chunks(16)) {
                assert!(minima.iter().all(|minimum| *minimum == minima[0]), "{dtype}: {minima:?}");
                let above = weights.iter().map(|weight| (weight - minima[0]).abs()).fold(0.0, f64::max);
                assert!(above > 0.0, "{dtype}: no weight is above its minimum");
            }
        }
        let bytes = vec![0x35; DType::Q4_0.block_bytes()];
        assert!(of_elements(&Operand::blocks(TensorType::new(DType::Q4_0, &[32]), &bytes), 0).is_empty());
    }

    #[test]
    fn minima_of_a_row_are_its_smallest_weights() {
        for dtype in [DType::Q4_1, DType::Q5_1] {
            let weights: Vec<f32> = (0..192).map(|i| (i * 37 % 64) as f32 - 20.0 - (i / 32) as f32).collect();
            let ty = TensorType::new(dtype, &[96, 2]);
            let mut bytes = vec![0; ty.bytes()];
            (dtype.codec().unwrap().encode)(&weights, &mut bytes);
            let operand = Operand::blocks(ty, &bytes);
            for row in 0..2 {
                let blocks = weights[row * 96..][..96].chunks(32);
                let smallest: Vec<f64> =
                    blocks.map(|block| f64::from(block.iter().copied().fold(f32::INFINITY, f32::min))).collect();
                assert_eq!(of_row(&operand, row).collect::<Vec<f64>>(), smallest, "{dtype}");
            }
        }
    }

    /// All weights of a sub-block are its minimum or above it by multiples of one scale.
    #[test]
    fn sub_blocks_share_a_scale_and_a_minimum() {
        for dtype in [DType::Q2K, DType::Q3K, DType::Q4K, DType::Q5K, DType::Q6K, DType::Iq4Xs, DType::Q4_1] {
            let ty = TensorType::new(dtype, &[512]);
            let bytes: Vec<u8> = (0..ty.bytes()).map(|place| (place * 37 % 113) as u8 & 0x5b).collect();
            let operand = Operand::blocks(ty, &bytes);
            let (weights, minima) = (decode(&ty, &bytes), of_sub_blocks(&operand, 0));
            let len = sub_block_len(dtype);
            assert_eq!(minima.len(), if is_affine(dtype) { 512 / len } else { 0 }, "{dtype}");
            let mut distinct = 0;
            for (place, weights) in weights.chunks(len).enumerate() {
                let minimum = minima.get(place).copied().unwrap_or(0.0);
                let above = weights.iter().map(|weight| (weight - minimum).abs()).filter(|above| *above > 0.0);
                let above: Vec<f64> = above.collect();
                let least = above.iter().copied().fold(f64::INFINITY, f64::min);
                let is_multiple = |above: &f64| (1..=127).any(|n| (above * f64::from(n) / least).fract() == 0.0);
                assert!(above.iter().all(is_multiple), "{dtype}, sub-block {place}: {above:?}");
                distinct += usize::from(!above.is_empty());
            }
            assert!(distinct > 4, "{dtype}: most sub-blocks are zero");
        }
    }

    #[test]
    fn a_sum_is_no_minimum_and_numbers_have_none() {
        let (sums, ty) = (vec![1; 36], TensorType::new(DType::Q8_1, &[32]));
        assert_eq!(of_row(&Operand::blocks(ty, &sums), 0).count(), 0);
        let numbers = Operand::numbers(TensorType::new(DType::Q4_1, &[32]), &[1.0; 32]);
        assert_eq!(of_row(&numbers, 0).count(), 0);
    }
}
