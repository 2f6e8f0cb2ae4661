//! Rows of a KV cache in blocks of 32 codes, as registers of numbers: products of numbers of 11 and 8 bits, which f32
//! holds exactly.

use super::super::decode_q8_0::BLOCK_BYTES;
use super::super::rows::Rows;
use super::LANES;
use crate::panel_block::BLOCK_LEN;
use std::arch::x86_64::*;

/// A block as it lies in memory: an f16 scale and the codes.
pub type Block = [u8; BLOCK_BYTES];

/// Codes of a 32-bit lane.
const CODES: usize = 4;

/// Numbers of a row. Panics where a row is not whole blocks.
pub fn len_of(rows: Rows<u8>) -> usize {
    let blocks = rows.len() / BLOCK_BYTES;
    assert_eq!(rows.len(), blocks * BLOCK_BYTES, "whole blocks");
    blocks * BLOCK_LEN
}

/// The numbers of half a block, the lower or the upper.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn half_of(block: &Block, half: usize) -> __m512 {
    let [low, high, codes @ ..] = block;
    let scale = _mm512_cvtph_ps(_mm256_set1_epi16(i16::from_le_bytes([*low, *high])));
    let codes = &codes.as_chunks::<LANES>().0[half];
    // SAFETY: the array holds 16 bytes; the load needs no alignment.
    let codes = unsafe { _mm_loadu_si128(codes.as_ptr().cast()) };
    _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)))
}

/// The numbers of blocks of sixteen rows, turned over: number by number, a register holds that of all rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn turned(blocks: [&Block; LANES], mut keep: impl FnMut(usize, __m512)) {
    let scales = scales_of(blocks);
    let product = |codes| _mm512_mul_ps(scales, _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(codes)));
    for (quad, codes) in turned_codes(blocks).into_iter().enumerate() {
        keep(CODES * quad, product(_mm512_slli_epi32::<24>(codes)));
        keep(CODES * quad + 1, product(_mm512_slli_epi32::<16>(codes)));
        keep(CODES * quad + 2, product(_mm512_slli_epi32::<8>(codes)));
        keep(CODES * quad + 3, product(codes));
    }
}

/// A lane for each row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn scales_of(blocks: [&Block; LANES]) -> __m512 {
    let bits: [i16; LANES] = blocks.map(|[low, high, ..]| i16::from_le_bytes([*low, *high]));
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bits;
    _mm512_cvtph_ps(_mm256_setr_epi16(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p))
}

/// Four codes of each row in its lane: codes 0 to 3, 4 to 7, ...
///
/// ```text
///  row i, codes 0 .. 32 │ row i + 4     four such registers: quarters are turned over, then those of eight rows and eight come together
/// ```
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn turned_codes(blocks: [&Block; LANES]) -> [__m512i; BLOCK_LEN / CODES] {
    let codes = |row: usize| {
        let [_, _, codes @ ..] = blocks[row];
        // SAFETY: the array holds 32 bytes; the load needs no alignment.
        unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
    };
    // Quarters of number e: codes of rows 0 to 3 in dword e, in dword 4 + e, and those of rows 4 to 7; the rows count
    // from `first` on.
    let eight = |first: usize| -> [__m512i; 4] {
        let rows: [__m512i; 4] = std::array::from_fn(|i| {
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(codes(first + i)), codes(first + 4 + i))
        });
        let [a, b, c, d] = rows;
        let (low, other_low) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (high, other_high) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        [
            _mm512_unpacklo_epi64(low, other_low),
            _mm512_unpackhi_epi64(low, other_low),
            _mm512_unpacklo_epi64(high, other_high),
            _mm512_unpackhi_epi64(high, other_high),
        ]
    };
    let (lower, upper) = (eight(0), eight(LANES / 2));
    std::array::from_fn(|dword| {
        let (a, b) = (lower[dword % 4], upper[dword % 4]);
        if dword < 4 { _mm512_shuffle_i32x4::<0x88>(a, b) } else { _mm512_shuffle_i32x4::<0xDD>(a, b) }
    })
}
