//! Products of panels: a register holds four codes of each of four rows, and up to four tokens use it before the next
//! is loaded.
//!
//! `pmaddubsw` multiplies and adds as its wider form in AVX2 does (`avx2/panel_product.rs`).

use super::super::panel_product::{Tokens, each_panel};
use super::super::quantize::ActivationBlock;
use super::{LANES, multiply_add, store, widen_f16};
use crate::panel_block::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Tokens that use a register of codes.
const TOKENS: usize = 4;

/// Registers that hold codes of all rows of a panel.
pub(super) const REGISTERS: usize = PANEL_ROWS / LANES;

/// A register of four rows for each of `T` tokens: integers or f32.
type Each<R, const T: usize> = [R; T];

/// Of any format.
#[target_feature(enable = "sse4.1,ssse3")]
pub fn product<const S: usize, const G: usize>(
    panels: &[PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    for (panel, sums) in each_panel(panels, xs, tokens, sums) {
        for (tile, sums) in sums.chunks_mut(TOKENS).enumerate() {
            let xs = Tokens { xs, tokens, first: tile * TOKENS };
            for register in 0..REGISTERS {
                match sums.len() {
                    1 => self::tile::<S, G, 1>(panel, register, xs, sums),
                    2 => self::tile::<S, G, 2>(panel, register, xs, sums),
                    3 => self::tile::<S, G, 3>(panel, register, xs, sums),
                    _ => self::tile::<S, G, TOKENS>(panel, register, xs, sums),
                }
            }
        }
    }
}

/// Rows `4 register ...` by `T` tokens.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn tile<const S: usize, const G: usize, const T: usize>(
    panel: &[PanelBlock<S, G>],
    register: usize,
    xs: Tokens,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let mut totals: Each<__m128, T> = [_mm_setzero_ps(); T];
    for (b, block) in panel.iter().enumerate() {
        let xs = xs.of_block::<T>(b);
        let dots = if PanelBlock::<S, G>::BYTES {
            dots_of_bytes(block, register, xs)
        } else {
            dots_of_nibbles(block, register, xs)
        };
        add_block(&dots, block, register, xs, &mut totals);
    }
    for (sums, total) in sums.iter_mut().zip(totals) {
        sums.as_chunks_mut().0[register] = store(total);
    }
}

/// A block's products with codes that have a sign.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn dots_of_bytes<const S: usize, const G: usize, const T: usize>(
    block: &PanelBlock<S, G>,
    register: usize,
    xs: &[ActivationBlock; T],
) -> Each<__m128i, T> {
    let ones = _mm_set1_epi16(1);
    let mut dots: Each<__m128i, T> = [_mm_setzero_si128(); T];
    for (g, codes) in block.codes.iter().enumerate() {
        let codes = load(codes, register);
        let magnitudes = _mm_abs_epi8(codes);
        for i in 0..T {
            let signed = _mm_sign_epi8(repeat(&xs[i], g), codes);
            let pairs = _mm_maddubs_epi16(magnitudes, signed);
            dots[i] = _mm_add_epi32(dots[i], _mm_madd_epi16(pairs, ones));
        }
    }
    dots
}

/// A block's products with codes that count from 0, and what these have too much taken off.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn dots_of_nibbles<const S: usize, const G: usize, const T: usize>(
    block: &PanelBlock<S, G>,
    register: usize,
    xs: &[ActivationBlock; T],
) -> Each<__m128i, T> {
    let (ones, mut fifth_bits) = (_mm_set1_epi16(1), load(&block.codes[0], register));
    let mut pairs: Each<__m128i, T> = [_mm_setzero_si128(); T];
    let mut dots: Each<__m128i, T> = [_mm_setzero_si128(); T];
    for g in 0..4 {
        let [low, high] = load_nibbles(block, register, g, fifth_bits);
        fifth_bits = _mm_srli_epi32::<4>(fifth_bits);
        for i in 0..T {
            let first = _mm_maddubs_epi16(low, repeat(&xs[i], g));
            let second = _mm_maddubs_epi16(high, repeat(&xs[i], g + 4));
            pairs[i] = _mm_add_epi16(pairs[i], _mm_add_epi16(first, second));
        }
        // Half a block of five bits fills 16 bits.
        if PanelBlock::<S, G>::FIFTH_BITS && g == 1 {
            for i in 0..T {
                dots[i] = _mm_madd_epi16(pairs[i], ones);
                pairs[i] = _mm_setzero_si128();
            }
        }
    }
    for i in 0..T {
        let start = _mm_set1_epi32(xs[i].start(PanelBlock::<S, G>::OFFSET));
        dots[i] = _mm_add_epi32(_mm_add_epi32(dots[i], start), _mm_madd_epi16(pairs[i], ones));
    }
    dots
}

/// Codes of each of rows `4 register ...` that count from 0: elements `4 group ...` and `16 + 4 group ...`.
/// `fifth_bits` are shifted so that those of the first are the lowest.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn load_nibbles<const S: usize, const G: usize>(
    block: &PanelBlock<S, G>,
    register: usize,
    group: usize,
    fifth_bits: __m128i,
) -> [__m128i; 2] {
    let (both, mask) = (load(block.group(group), register), _mm_set1_epi8(0x0F));
    let (low, high) = (_mm_and_si128(both, mask), _mm_and_si128(_mm_srli_epi16::<4>(both), mask));
    if !PanelBlock::<S, G>::FIFTH_BITS {
        return [low, high];
    }
    // Each byte of a row gets the row's first byte, or its third.
    let first = _mm_setr_epi32(0, 0x0404_0404, 0x0808_0808, 0x0C0C_0C0C);
    let third = _mm_add_epi8(first, _mm_set1_epi8(2));
    [with_fifth(low, _mm_shuffle_epi8(fifth_bits, first)), with_fifth(high, _mm_shuffle_epi8(fifth_bits, third))]
}

/// Adds 16 to each code whose bit, one of the lowest four of its byte of `bits`, is set.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn with_fifth(codes: __m128i, bits: __m128i) -> __m128i {
    let own = _mm_set1_epi32(0x0804_0201);
    let set = _mm_cmpeq_epi8(_mm_and_si128(bits, own), own);
    _mm_or_si128(codes, _mm_and_si128(set, _mm_set1_epi8(16)))
}

/// Adds a block's products, each by its scales, and its minima, each by the sum of its activations, to the totals of
/// rows `4 register ...`.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn add_block<const S: usize, const G: usize, const T: usize>(
    dots: &Each<__m128i, T>,
    block: &PanelBlock<S, G>,
    register: usize,
    xs: &[ActivationBlock; T],
    totals: &mut Each<__m128, T>,
) {
    let (scales, minima) = (widen(&block.scales[0], register), widen(&block.scales[S - 1], register));
    for i in 0..T {
        let scale = _mm_mul_ps(scales, _mm_set1_ps(xs[i].scale));
        totals[i] = multiply_add(_mm_cvtepi32_ps(dots[i]), scale, totals[i]);
        if PanelBlock::<S, G>::MINIMA {
            totals[i] = multiply_add(minima, _mm_set1_ps(xs[i].sum), totals[i]);
        }
    }
}

/// Four bytes of each of rows `4 register ...`.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
pub(super) fn load(group: &[[u8; 4]; PANEL_ROWS], register: usize) -> __m128i {
    let group: &[[u8; 4]; LANES] = &group.as_chunks().0[register];
    // SAFETY: the arrays hold 16 bytes behind each other; the load needs no alignment.
    unsafe { _mm_loadu_si128(group.as_ptr().cast()) }
}

/// A number of f16 of each of rows `4 register ...`.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
pub(super) fn widen(halves: &[u16; PANEL_ROWS], register: usize) -> __m128 {
    let halves: &[u16; LANES] = &halves.as_chunks().0[register];
    // SAFETY: the array holds 8 bytes; the load needs no alignment.
    widen_f16(unsafe { _mm_loadl_epi64(halves.as_ptr().cast()) })
}

/// Four codes of the activations in each lane: elements `4 group ...` of the block.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
pub(super) fn repeat(x: &ActivationBlock, group: usize) -> __m128i {
    let codes = x.codes.as_chunks::<4>().0[group].map(|code| code as u8);
    _mm_set1_epi32(i32::from_le_bytes(codes))
}
