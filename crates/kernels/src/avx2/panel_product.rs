//! Products of panels: a 256-bit register holds four codes of each of eight rows, half a panel, and four tokens use it
//! before the next is loaded.
//!
//! `vpmaddubsw` multiplies unsigned by signed bytes and adds neighbours in 16 bits:
//!
//! ```text
//!  q8_0, q8_1   |w| * (x with the sign of w)     2 * 128 * 127 = 32,512           fits 16 bits once
//!  q4_0         (w + 8) * x                      8 * 2 * 15 * 127 = 30,480        fits 16 bits for a whole block; 8 * sum of x goes off
//!  q5_0         (w + 16) * x                     4 * 2 * 31 * 127 = 31,496        fits 16 bits for half a block; 16 * sum of x goes off
//!  q4_1, q5_1   q * x                            as q4_0 and q5_0; m * d * sum of x is added behind
//! ```

use super::super::panel_product::{Tokens, each_panel};
use super::super::quantize::ActivationBlock;
use super::{LANES, store};
use crate::panel_block::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Tokens that use a register of codes.
const TOKENS: usize = 4;

/// Of any format.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn product<const S: usize, const G: usize>(
    panels: &[PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    for (panel, sums) in each_panel(panels, xs, tokens, sums) {
        for (tile, sums) in sums.chunks_mut(TOKENS).enumerate() {
            let xs = Tokens { xs, tokens, first: tile * TOKENS };
            for half in 0..2 {
                match sums.len() {
                    1 => self::tile::<S, G, 1>(panel, half, xs, sums),
                    2 => self::tile::<S, G, 2>(panel, half, xs, sums),
                    3 => self::tile::<S, G, 3>(panel, half, xs, sums),
                    _ => self::tile::<S, G, TOKENS>(panel, half, xs, sums),
                }
            }
        }
    }
}

/// Rows `8 half ...` by `T` tokens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<const S: usize, const G: usize, const T: usize>(
    panel: &[PanelBlock<S, G>],
    half: usize,
    xs: Tokens,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let mut totals = [_mm256_setzero_ps(); T];
    for (b, block) in panel.iter().enumerate() {
        let xs = xs.of_block::<T>(b);
        let dots =
            if PanelBlock::<S, G>::BYTES { dots_of_bytes(block, half, xs) } else { dots_of_nibbles(block, half, xs) };
        multiply_add(&mut totals, &dots, block, half, xs);
    }
    for (sums, totals) in sums.iter_mut().zip(totals) {
        sums.as_chunks_mut().0[half] = store(totals);
    }
}

/// A block's products with codes that have a sign.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dots_of_bytes<const S: usize, const G: usize, const T: usize>(
    block: &PanelBlock<S, G>,
    half: usize,
    xs: &[ActivationBlock; T],
) -> [__m256i; T] {
    let ones = _mm256_set1_epi16(1);
    let mut dots = [_mm256_setzero_si256(); T];
    for (g, codes) in block.codes.iter().enumerate() {
        let codes = load(&codes.as_chunks().0[half]);
        let magnitudes = _mm256_abs_epi8(codes);
        for i in 0..T {
            let signed = _mm256_sign_epi8(repeat(&xs[i], g), codes);
            let pairs = _mm256_maddubs_epi16(magnitudes, signed);
            dots[i] = _mm256_add_epi32(dots[i], _mm256_madd_epi16(pairs, ones));
        }
    }
    dots
}

/// A block's products with codes that count from 0, and what these have too much taken off.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dots_of_nibbles<const S: usize, const G: usize, const T: usize>(
    block: &PanelBlock<S, G>,
    half: usize,
    xs: &[ActivationBlock; T],
) -> [__m256i; T] {
    let (ones, mut fifth_bits) = (_mm256_set1_epi16(1), load(&block.codes[0].as_chunks().0[half]));
    let (mut pairs, mut dots) = ([_mm256_setzero_si256(); T], [_mm256_setzero_si256(); T]);
    for g in 0..4 {
        let [low, high] = load_nibbles(block, half, g, fifth_bits);
        fifth_bits = _mm256_srli_epi32::<4>(fifth_bits);
        for i in 0..T {
            let first = _mm256_maddubs_epi16(low, repeat(&xs[i], g));
            let second = _mm256_maddubs_epi16(high, repeat(&xs[i], g + 4));
            pairs[i] = _mm256_add_epi16(pairs[i], _mm256_add_epi16(first, second));
        }
        // Half a block of five bits fills 16 bits.
        if PanelBlock::<S, G>::FIFTH_BITS && g == 1 {
            for i in 0..T {
                dots[i] = _mm256_madd_epi16(pairs[i], ones);
                pairs[i] = _mm256_setzero_si256();
            }
        }
    }
    for i in 0..T {
        let start = _mm256_set1_epi32(xs[i].start(PanelBlock::<S, G>::OFFSET));
        dots[i] = _mm256_add_epi32(_mm256_add_epi32(dots[i], start), _mm256_madd_epi16(pairs[i], ones));
    }
    dots
}

/// Codes of each row that count from 0: elements `4 group ...` and `16 + 4 group ...`. `fifth_bits` are shifted so that
/// those of the first are the lowest.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn load_nibbles<const S: usize, const G: usize>(
    block: &PanelBlock<S, G>,
    half: usize,
    group: usize,
    fifth_bits: __m256i,
) -> [__m256i; 2] {
    let (both, mask) = (load(&block.group(group).as_chunks().0[half]), _mm256_set1_epi8(0x0F));
    let (low, high) = (_mm256_and_si256(both, mask), _mm256_and_si256(_mm256_srli_epi16::<4>(both), mask));
    if !PanelBlock::<S, G>::FIFTH_BITS {
        return [low, high];
    }
    // Each byte of a row gets the row's first byte, or its third.
    let first = _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x0404_0404, 0x0808_0808, 0x0C0C_0C0C));
    let third = _mm256_add_epi8(first, _mm256_set1_epi8(2));
    [with_fifth(low, _mm256_shuffle_epi8(fifth_bits, first)), with_fifth(high, _mm256_shuffle_epi8(fifth_bits, third))]
}

/// Adds 16 to each code whose bit, one of the lowest four of its byte of `bits`, is set.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn with_fifth(codes: __m256i, bits: __m256i) -> __m256i {
    let own = _mm256_set1_epi32(0x0804_0201);
    let set = _mm256_cmpeq_epi8(_mm256_and_si256(bits, own), own);
    _mm256_or_si256(codes, _mm256_and_si256(set, _mm256_set1_epi8(16)))
}

/// Four bytes of each row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn load(group: &[[u8; 4]; LANES]) -> __m256i {
    // SAFETY: the arrays hold 32 bytes behind each other; the load needs no alignment.
    unsafe { _mm256_loadu_si256(group.as_ptr().cast()) }
}

/// A number of f16 of each row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen(halves: &[u16; LANES]) -> __m256 {
    // SAFETY: the array holds 16 bytes; the load needs no alignment.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(halves.as_ptr().cast()) })
}

/// Adds a block's products, each by its scales, and its minima, each by the sum of its activations, to the totals of
/// rows `8 half ...`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn multiply_add<const S: usize, const G: usize, const T: usize>(
    totals: &mut [__m256; T],
    dots: &[__m256i; T],
    block: &PanelBlock<S, G>,
    half: usize,
    xs: &[ActivationBlock; T],
) {
    let scales = widen(&block.scales[0].as_chunks().0[half]);
    let minima = widen(&block.scales[S - 1].as_chunks().0[half]);
    for i in 0..T {
        let scales = _mm256_mul_ps(scales, _mm256_set1_ps(xs[i].scale));
        totals[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[i]), scales, totals[i]);
        if PanelBlock::<S, G>::MINIMA {
            totals[i] = _mm256_fmadd_ps(minima, _mm256_set1_ps(xs[i].sum), totals[i]);
        }
    }
}

/// Four codes of the activations in each lane: elements `4 group ...` of the block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn repeat(x: &ActivationBlock, group: usize) -> __m256i {
    let codes = x.codes.as_chunks::<4>().0[group].map(|code| code as u8);
    _mm256_set1_epi32(i32::from_le_bytes(codes))
}
