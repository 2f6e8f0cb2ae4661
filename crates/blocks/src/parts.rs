//! Decodes whole blocks: computes the scale of each part once, and expands the codes to bytes in the order of the
//! elements. The results are those of [`Term`](crate::decoder::Term); the compiler vectorizes the loops.
//!
//! ```text
//!  bytes of a block ──parts──▶ scale and minimum of each part, LEN codes ──▶ scale * code - minimum
//! ```
//!
//! All elements of a part have the same `scale * step` and the same minimum, `low * offset`.

use crate::codec::{decode_blocks, whole_blocks};
use crate::decoder::K_LEN;

/// A block of `LEN` elements in `PARTS` parts of equal length.
pub(crate) struct Parts<const LEN: usize, const PARTS: usize> {
    /// Scale of the codes of each part.
    pub scales: [f32; PARTS],
    /// Value subtracted from the products of each part; `None` for formats without minima.
    pub minima: Option<[f32; PARTS]>,
    /// The codes, in the range of the format.
    pub codes: [i8; LEN],
}

/// Decodes whole blocks to f32. `parts` reads the parts of a block; `PART` is `LEN / PARTS`.
#[inline(always)]
pub(crate) fn decode<const BYTES: usize, const LEN: usize, const PARTS: usize, const PART: usize>(
    bytes: &[u8],
    weights: &mut [f32],
    parts: impl Fn(&[u8; BYTES]) -> Parts<LEN, PARTS>,
) {
    const { assert!(PARTS * PART == LEN) };
    decode_blocks(bytes, weights, |block: &[u8; BYTES], weights: &mut [f32; LEN]| {
        let Parts { scales, minima, codes } = parts(block);
        let (codes, _) = codes.as_chunks::<PART>();
        let (weights, _) = weights.as_chunks_mut::<PART>();
        match minima {
            Some(minima) => {
                for (((weights, codes), scale), minimum) in weights.iter_mut().zip(codes).zip(scales).zip(minima) {
                    for (weight, &code) in weights.iter_mut().zip(codes) {
                        *weight = scale * f32::from(code) - minimum;
                    }
                }
            }
            None => {
                for ((weights, codes), scale) in weights.iter_mut().zip(codes).zip(scales) {
                    for (weight, &code) in weights.iter_mut().zip(codes) {
                        *weight = scale * f32::from(code);
                    }
                }
            }
        }
    });
}

/// Decodes whole blocks exactly: scales and minima are exact in f32, and `scale * code - minimum` is exact in f64.
#[inline(always)]
pub(crate) fn decode_exact<const BYTES: usize, const LEN: usize, const PARTS: usize, const PART: usize>(
    bytes: &[u8],
    weights: &mut [f64],
    parts: impl Fn(&[u8; BYTES]) -> Parts<LEN, PARTS>,
) {
    const { assert!(PARTS * PART == LEN) };
    // A loop, because a closure is not inlined into the variants of `codec::decode_exact`.
    let (blocks, targets) = whole_blocks(bytes.as_chunks::<BYTES>(), weights.as_chunks_mut::<LEN>());
    for (block, weights) in blocks.iter().zip(targets) {
        let Parts { scales, minima, codes } = parts(block);
        let minima = minima.unwrap_or([0.0; PARTS]);
        let (codes, _) = codes.as_chunks::<PART>();
        let (weights, _) = weights.as_chunks_mut::<PART>();
        for (((weights, codes), scale), minimum) in weights.iter_mut().zip(codes).zip(scales).zip(minima) {
            let (scale, minimum) = (f64::from(scale), f64::from(minimum));
            for (weight, &code) in weights.iter_mut().zip(codes) {
                *weight = scale * f64::from(code) - minimum;
            }
        }
    }
}

/// `scale` times each of the integers.
#[inline(always)]
pub(crate) fn multiples<const PARTS: usize>(scale: f32, integers: [i8; PARTS]) -> [f32; PARTS] {
    let mut multiples = [0.0; PARTS];
    for (multiple, integer) in multiples.iter_mut().zip(integers) {
        *multiple = scale * f32::from(integer);
    }
    multiples
}

/// The two bits of each element of a K type, as in [`two_bits`](crate::decoder::two_bits).
#[inline(always)]
pub(crate) fn all_two_bits(packed: &[u8; K_LEN / 4]) -> [u8; K_LEN] {
    let mut codes = [0; K_LEN];
    for (packed, codes) in packed.as_chunks::<32>().0.iter().zip(codes.as_chunks_mut::<128>().0) {
        for (place, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (code, byte) in codes.iter_mut().zip(packed) {
                *code = byte >> (2 * place) & 3;
            }
        }
    }
    codes
}

/// The nibble of each element of a K type. Each `2 * RUN` elements take `RUN` bytes: the low nibbles hold the first
/// `RUN` elements, the high nibbles the last `RUN`.
#[inline(always)]
pub(crate) fn all_nibbles<const RUN: usize>(packed: &[u8; K_LEN / 2]) -> [u8; K_LEN] {
    let mut codes = [0; K_LEN];
    let (runs, _) = codes.as_chunks_mut::<RUN>();
    for (packed, [low, high]) in packed.as_chunks::<RUN>().0.iter().zip(runs.as_chunks_mut::<2>().0) {
        for ((low, high), byte) in low.iter_mut().zip(high).zip(packed) {
            (*low, *high) = (byte & 15, byte >> 4);
        }
    }
    codes
}

/// Sets bit `place` of each code of a K type. The bit of element e is bit e / 32 of byte e % 32.
#[inline(always)]
pub(crate) fn put_single_bits(codes: &mut [u8; K_LEN], packed: &[u8; K_LEN / 8], place: usize) {
    for (number, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (code, byte) in codes.iter_mut().zip(packed) {
            *code |= (byte >> number & 1) << place;
        }
    }
}

/// A word in which every byte is `byte`.
const fn all(byte: u8) -> u32 {
    u32::from_le_bytes([byte; 4])
}

/// The twelve bytes of packed six-bit integers as three words, for the next two functions.
#[inline(always)]
fn words(packed: &[u8; 12]) -> [u32; 3] {
    let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3] = *packed;
    [[a0, a1, a2, a3], [b0, b1, b2, b3], [c0, c1, c2, c3]].map(u32::from_le_bytes)
}

/// The six-bit steps and offsets of eight parts, as in [`six_bits`](crate::decoder::six_bits).
#[inline(always)]
pub(crate) fn eight_steps_and_offsets(packed: &[u8; 12]) -> [[i8; 8]; 2] {
    let [steps, offsets, nibbles] = words(packed);
    let six = |whole: u32, nibbles: u32| {
        let last = nibbles & all(15) | whole >> 2 & all(48);
        let integers = u64::from(whole & all(63)) | u64::from(last) << 32;
        integers.to_le_bytes().map(|integer| integer as i8)
    };
    [six(steps, nibbles), six(offsets, nibbles >> 4)]
}

/// The sixteen six-bit steps of [`q3_k`](crate::q3_k), before subtracting 32.
#[inline(always)]
pub(crate) fn sixteen_steps(packed: &[u8; 12]) -> [i8; 16] {
    let [first, second, upper] = words(packed);
    let lower = [first, second, first >> 4, second >> 4];
    let mut steps = [0; 16];
    for (place, (steps, lower)) in steps.as_chunks_mut::<4>().0.iter_mut().zip(lower).enumerate() {
        let upper = upper >> (2 * place) & all(3);
        *steps = (lower & all(15) | upper << 4).to_le_bytes().map(|step| step as i8);
    }
    steps
}
