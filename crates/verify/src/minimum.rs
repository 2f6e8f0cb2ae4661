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
    if matches!(dtype, DType::Q2K | DType::Q3K | DType::Q6K | DType::Nvfp4) { 16 } else { 32 }
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

/// The minimum above which each element of row `row` lies, exact: what its block decodes to with all codes zero. Where
/// the file stores minima, the scale is zeroed too: a product of an infinite scale and a code of zero is NaN. Empty for
/// formats that are multiplied in one part.
pub(crate) fn of_elements(weights: &Operand, row: usize) -> Vec<f64> {
    let dtype = weights.ty.dtype;
    let (Some(codes), Some(bytes)) = (codes(dtype), weights.row_bytes(row)) else { return Vec::new() };
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        for zeroed in [Some(codes.clone()), scale(dtype)].into_iter().flatten() {
            block.get_mut(zeroed).into_iter().for_each(|bytes| bytes.fill(0));
        }
    }
    decode(&TensorType::new(dtype, &[weights.ty.shape[0]]), &bytes)
}

/// The scale of each sub-block of row `row`, exact: the value of one unit of the codes. Empty for formats without
/// sub-blocks.
pub(crate) fn scales_of_sub_blocks(weights: &Operand, row: usize) -> Vec<f64> {
    let dtype = weights.ty.dtype;
    let (Some(ones), Some(bytes)) = (ones(dtype), weights.row_bytes(row)) else { return Vec::new() };
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        let minima = place(dtype).map(|place| (place, 0));
        for (filled, byte) in ones.iter().cloned().chain(minima) {
            block.get_mut(filled).into_iter().for_each(|bytes| bytes.fill(byte));
        }
    }
    let weights = decode(&TensorType::new(dtype, &[weights.ty.shape[0]]), &bytes);
    weights.into_iter().step_by(sub_block_len(dtype)).collect()
}

/// Bytes with which all codes of a block are worth 1, by their place; `None` for formats without sub-blocks.
fn ones(dtype: DType) -> Option<Vec<(Range<usize>, u8)>> {
    match dtype {
        DType::Q2K => Some(vec![(16..80, 0x55)]),
        // Codes 5, less 4.
        DType::Q3K => Some(vec![(0..32, 0xFF), (32..96, 0x55)]),
        DType::Q4K => Some(vec![(16..144, 0x11)]),
        DType::Q5K => Some(vec![(16..48, 0), (48..176, 0x11)]),
        // Codes 33, less 32.
        DType::Q6K => Some(vec![(0..128, 0x11), (128..192, 0xAA)]),
        // Entry 8 of the codebook is 1.
        DType::Iq4Xs => Some(vec![(8..136, 0x88)]),
        // FP4's 0.5, which is 1 in the table of doubled numbers: 1 times half of the scale.
        DType::Nvfp4 => Some(vec![(4..36, 0x11)]),
        _ => None,
    }
}

/// The bytes of the scale that all codes of a block are multiplied by, in formats that store minima.
fn scale(dtype: DType) -> Option<Range<usize>> {
    let minima = place(dtype)?;
    Some(minima.start - 2..minima.start)
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

    /// What the codes of sub-block `j` are multiplied by, in units of the block's scale, and the largest magnitude of a
    /// code: by ggml's `dequantize_row_*`.
    fn factor(dtype: DType, block: &[u8], j: usize) -> (f64, f64) {
        let low_and_high = |low: u8, high: u8, bits: usize| f64::from(low & 15 | (high >> bits & 3) << 4);
        match dtype {
            DType::Q2K => (f64::from(block[j] & 15), 3.0),
            DType::Q3K => {
                let fields = &block[96..108];
                (low_and_high(fields[j % 8] >> (j / 8 * 4), fields[8 + j % 4], j / 4 * 2) - 32.0, 4.0)
            }
            DType::Q4K | DType::Q5K => {
                let (fields, largest) = (&block[4..16], if dtype == DType::Q4K { 15.0 } else { 31.0 });
                let factor = if j < 4 { fields[j] & 63 } else { fields[j + 4] & 15 | fields[j - 4] >> 6 << 4 };
                (f64::from(factor), largest)
            }
            DType::Q6K => (f64::from(block[192 + j].cast_signed()), 32.0),
            DType::Iq4Xs => {
                let high = u16::from_le_bytes([block[2], block[3]]);
                (low_and_high(block[4 + j / 2] >> (j % 2 * 4), (high >> (2 * j)) as u8, 0) - 32.0, 127.0)
            }
            // UE4M3 by the OCP's definition, 0.5 times which is the scale of twice the numbers of FP4.
            DType::Nvfp4 => {
                let (exponent, fraction) = (i32::from(block[j] >> 3 & 15), f64::from(block[j] & 7) / 8.0);
                let normal = (1.0 + fraction) * 2f64.powi(exponent - 7);
                (if exponent == 0 { fraction * 2f64.powi(-6) } else { normal }, 12.0)
            }
            _ => panic!("{dtype} has no sub-blocks"),
        }
    }

    /// Where the block's scale is, and the length of its sub-blocks.
    const SUB_BLOCKS: [(DType, usize, usize); 7] = [
        (DType::Q2K, 80, 16),
        (DType::Q3K, 108, 16),
        (DType::Q4K, 0, 32),
        (DType::Q5K, 0, 32),
        (DType::Q6K, 208, 16),
        (DType::Iq4Xs, 0, 32),
        // Its first two scales become 0 and 1.
        (DType::Nvfp4, 0, 16),
    ];

    /// Two blocks of any bytes, whose scales are 0.5.
    fn two_blocks(dtype: DType, at: usize) -> (TensorType, Vec<u8>) {
        let ty = TensorType::new(dtype, &[512]);
        let mut bytes: Vec<u8> = (0..ty.bytes()).map(|place| (place * 151 % 253) as u8).collect();
        for block in bytes.chunks_mut(dtype.block_bytes()) {
            block[at..at + 2].copy_from_slice(&[0x00, 0x38]);
            if let Some(place) = place(dtype) {
                block[place].copy_from_slice(&[0x00, 0x34]);
            }
        }
        (ty, bytes)
    }

    /// Each weight is a whole number of scales from its minimum, and the neighbor's scale is another one.
    #[test]
    fn sub_blocks_share_a_scale_and_a_minimum() {
        for (dtype, at, len) in SUB_BLOCKS {
            let (ty, bytes) = two_blocks(dtype, at);
            let operand = Operand::blocks(ty, &bytes);
            let (weights, minima) = (decode(&ty, &bytes), of_sub_blocks(&operand, 0));
            let scales = scales_of_sub_blocks(&operand, 0);
            assert_eq!((sub_block_len(dtype), scales.len()), (len, 512 / len), "{dtype}");
            assert_eq!(minima.len(), if is_affine(dtype) { 512 / len } else { 0 }, "{dtype}");
            for (place, weights) in weights.chunks(len).enumerate() {
                let of_block = dtype.block_len() / len;
                let block = &bytes[place / of_block * dtype.block_bytes()..];
                let (factor, largest) = factor(dtype, block, place % of_block);
                assert_eq!(scales[place], 0.5 * factor, "{dtype}, sub-block {place}");
                let minimum = minima.get(place).copied().unwrap_or(0.0);
                let codes: Vec<f64> = weights.iter().map(|weight| (weight - minimum) / scales[place]).collect();
                let fits = |code: &f64| code.fract() == 0.0 && code.abs() <= largest;
                assert!(factor == 0.0 || codes.iter().all(fits), "{dtype}, sub-block {place}: {codes:?}");
            }
            let distinct = scales.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!(distinct > 512 / len / 2, "{dtype}: {scales:?}");
        }
    }

    /// Minima do not depend on the scale, whatever it is.
    #[test]
    fn minima_below_an_infinite_scale_are_numbers() {
        for dtype in [DType::Q4_1, DType::Q5_1, DType::Q2K, DType::Q4K, DType::Q5K] {
            let ty = TensorType::new(dtype, &[256]);
            let mut bytes = vec![0x35; ty.bytes()];
            let expected = of_sub_blocks(&Operand::blocks(ty, &bytes), 0);
            assert!(expected.iter().all(|minimum| minimum.is_finite() && *minimum != 0.0), "{dtype}");
            for block in bytes.chunks_mut(dtype.block_bytes()) {
                block[scale(dtype).unwrap()].copy_from_slice(&half::f16::INFINITY.to_le_bytes());
            }
            let operand = Operand::blocks(ty, &bytes);
            assert_eq!(of_sub_blocks(&operand, 0), expected, "{dtype}");
            assert_eq!(of_elements(&operand, 0).len(), 256, "{dtype}");
            assert!(of_elements(&operand, 0).iter().all(|minimum| expected.contains(minimum)), "{dtype}");
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
