//! `tq1_0`: 256 weights of -1, 0 and 1, five to a byte, and one scale, 1.6875 bits per weight.
//!
//! ```text
//!   0                     32          48    52    54
//!  ┌─────────────────────┬───────────┬─────┬─────┐
//!  │ 32 bytes            │ 16 bytes  │ 4   │ d   │   d: f16, little-endian
//!  └─────────────────────┴───────────┴─────┴─────┘
//!    byte m: m + 32 n      160 + m + 16 n  240 + m + 4 n   weight of digit n = 0 ..= 4 (of the last 4 bytes 0 ..= 3)
//! ```
//!
//! weight = d * (digit - 1). A byte is a fraction of 256: `ceil(256 N / 243)` for the number N of five digits in base
//! 3, so that multiplying it by 3 moves the first digit above its eight bits.

use crate::codec::encode_blocks;
use crate::decoder::K_LEN;
#[cfg(test)]
use crate::decoder::Term;
use crate::parts::{self, Parts};
use crate::ternary::digits_of;
use crate::{Block, DType, f16};

/// The bytes whose digits are the first 160 weights, the next 80, and the last 16.
const RUNS: [usize; 3] = [32, 16, 4];
const BYTES: usize = 32 + 16 + 4 + f16::BYTES;
const _: () = assert!(BYTES == DType::Tq1_0.block_bytes() && K_LEN == DType::Tq1_0.block_len());

/// Ternary weights, five to a byte.
pub struct Tq1_0;

impl Block for Tq1_0 {
    const DTYPE: DType = DType::Tq1_0;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        parts::decode_exact::<BYTES, K_LEN, 1, K_LEN>(bytes, weights, parts);
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }
}

/// Digit `number` of a byte.
#[inline(always)]
fn digit(byte: u8, number: u32) -> u8 {
    let rest = byte.wrapping_mul(3u8.pow(number));
    ((u16::from(rest) * 3) >> 8) as u8
}

/// The byte and the digit's number of element `e`.
#[cfg(test)]
fn place_of(e: usize) -> (usize, u32) {
    match e {
        0..160 => (e % 32, e as u32 / 32),
        160..240 => (32 + e % 16, (e as u32 - 160) / 16),
        _ => (48 + e % 4, (e as u32 - 240) / 4),
    }
}

/// Whether the encoder writes a byte: for five digits, and for four digits followed by 0.
const WRITTEN: [[bool; 256]; 2] = {
    let mut written = [[false; 256]; 2];
    let mut number = 0u32;
    while number < 243 {
        let byte = (256 * number).div_ceil(243) as usize;
        written[0][byte] = true;
        written[1][byte] = number.is_multiple_of(3);
        number += 1;
    }
    written
};

/// The first byte of a block that the encoder never writes.
pub(crate) fn unused_byte(block: &[u8]) -> Option<usize> {
    let written = |(place, byte): (usize, &u8)| WRITTEN[usize::from(place >= 48)][usize::from(*byte)];
    block[..BYTES - f16::BYTES].iter().enumerate().position(|byte| !written(byte))
}

/// The weight of a byte's first digit.
pub(crate) fn first_element(byte: usize) -> usize {
    match byte {
        0..32 => byte,
        32..48 => 160 + byte - 32,
        _ => 240 + byte - 48,
    }
}

#[cfg(test)]
fn terms(block: &[u8; BYTES]) -> [Term; K_LEN] {
    let scale = f16::widen([block[52], block[53]]);
    std::array::from_fn(|e| {
        let (byte, number) = place_of(e);
        Term { scale, step: 1, code: digit(block[byte], number) as i8 - 1, ..Term::default() }
    })
}

/// The parts of a block; its elements are those of `terms`, which only tests use.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<K_LEN, 1> {
    let mut codes = [0; K_LEN];
    let (mut rest, mut bytes) = (codes.as_mut_slice(), block.as_slice());
    for run in RUNS {
        let (packed, other_bytes) = bytes.split_at(run);
        let (digits, other_codes) = rest.split_at_mut((run * 5).min(rest.len()));
        for (number, digits) in digits.chunks_mut(run).enumerate() {
            for (code, byte) in digits.iter_mut().zip(packed) {
                *code = digit(*byte, number as u32) as i8 - 1;
            }
        }
        (rest, bytes) = (other_codes, other_bytes);
    }
    Parts { scales: [f16::widen([block[52], block[53]])], minima: None, codes }
}

#[inline(always)]
pub(crate) fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, K_LEN, 1, K_LEN>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    crate::decoder::decode(bytes, weights, terms);
}

#[inline(always)]
pub(crate) fn encode_parts(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks(weights, bytes, |weights: &[f32; K_LEN], block: &mut [u8; BYTES]| {
        let (scale, digits) = digits_of(weights);
        let mut rest = digits.as_slice();
        let (packed, d) = block.split_at_mut(BYTES - f16::BYTES);
        let mut packed = packed;
        for run in RUNS {
            let (digits, other_digits) = rest.split_at((run * 5).min(rest.len()));
            let (bytes, other_bytes) = packed.split_at_mut(run);
            for (place, byte) in bytes.iter_mut().enumerate() {
                // A digit that has no weight is 0.
                let of = |number: usize| digits.get(place + number * run).copied().map_or(0, u32::from);
                let number = (0..5).fold(0, |number, n| 3 * number + of(n));
                *byte = (256 * number).div_ceil(243) as u8;
            }
            (rest, packed) = (other_digits, other_bytes);
        }
        d.copy_from_slice(&f16::narrow(scale));
    });
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_tq1_0,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Tq1_0), in DType::Tq1_0
}

dispatch! {
    fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
        fast avx512("avx2", "avx512f", "avx512dq", "avx512bw", "avx512vl") => crate::avx512::compiled::encode_tq1_0,
        fast avx2("avx2", "f16c") => crate::avx2::compiled::encode_tq1_0,
        scalar => encode_parts,
    }
    encode_variants_agree on crate::samples::weights(), in DType::Tq1_0
}

exact_test! { Tq1_0 }
