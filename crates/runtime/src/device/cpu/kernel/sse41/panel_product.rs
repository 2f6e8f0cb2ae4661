//! Products of panels: a register holds four codes of each of four rows, and up to four tokens use it before the next is loaded.
//!
//! `pmaddubsw` multiplies and adds as its wider form in AVX2 does (`avx2/panel_product.rs`).

use super::super::panel_product::{Tokens, each_panel};
use super::super::quantize::ActivationBlock;
use super::{LANES, multiply_add, store, widen_f16};
use crate::device::cpu::panels::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Tokens that use a register of codes.
const TOKENS: usize = 4;

/// Registers that hold codes of all rows of a panel.
const REGISTERS: usize = PANEL_ROWS / LANES;

/// A register of four rows for each of `T` tokens: integers or f32.
type Each<R, const T: usize> = [R; T];

/// Calls tiles of up to four tokens, four rows after the other.
macro_rules! each_tile {
    ($tile:ident($panels:ident, $xs:ident, $tokens:ident, $sums:ident)) => {
        for (panel, sums) in each_panel($panels, $xs, $tokens, $sums) {
            for (tile, sums) in sums.chunks_mut(TOKENS).enumerate() {
                let xs = Tokens { xs: $xs, tokens: $tokens, first: tile * TOKENS };
                for register in 0..REGISTERS {
                    match sums.len() {
                        1 => $tile::<1>(panel, register, xs, sums),
                        2 => $tile::<2>(panel, register, xs, sums),
                        3 => $tile::<3>(panel, register, xs, sums),
                        _ => $tile::<TOKENS>(panel, register, xs, sums),
                    }
                }
            }
        }
    };
}

/// Of q8_0.
#[target_feature(enable = "sse4.1,ssse3")]
pub fn q8_0(panels: &[PanelBlock<8>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    each_tile!(tile_q8_0(panels, xs, tokens, sums));
}

/// Of q4_0.
#[target_feature(enable = "sse4.1,ssse3")]
pub fn q4_0(panels: &[PanelBlock<4>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    each_tile!(tile_q4_0(panels, xs, tokens, sums));
}

/// Rows `4 register ...` by `T` tokens.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn tile_q8_0<const T: usize>(panel: &[PanelBlock<8>], register: usize, xs: Tokens, sums: &mut [[f32; PANEL_ROWS]]) {
    let ones = _mm_set1_epi16(1);
    let mut totals: Each<__m128, T> = [_mm_setzero_ps(); T];
    for (b, block) in panel.iter().enumerate() {
        let xs = xs.of_block::<T>(b);
        let mut dots: Each<__m128i, T> = [_mm_setzero_si128(); T];
        for (g, codes) in block.codes.iter().enumerate() {
            let codes = load_codes(codes, register);
            let magnitudes = _mm_abs_epi8(codes);
            for i in 0..T {
                let signed = _mm_sign_epi8(repeat(&xs[i], g), codes);
                let pairs = _mm_maddubs_epi16(magnitudes, signed);
                dots[i] = _mm_add_epi32(dots[i], _mm_madd_epi16(pairs, ones));
            }
        }
        add_block(&dots, load_scales(&block.scales, register), xs, &mut totals);
    }
    store_all(&totals, register, sums);
}

/// Rows `4 register ...` by `T` tokens.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn tile_q4_0<const T: usize>(panel: &[PanelBlock<4>], register: usize, xs: Tokens, sums: &mut [[f32; PANEL_ROWS]]) {
    let (ones, nibbles) = (_mm_set1_epi16(1), _mm_set1_epi8(15));
    let mut totals: Each<__m128, T> = [_mm_setzero_ps(); T];
    for (b, block) in panel.iter().enumerate() {
        let xs = xs.of_block::<T>(b);
        let mut pairs: Each<__m128i, T> = [_mm_setzero_si128(); T];
        for (g, codes) in block.codes.iter().enumerate() {
            let codes = load_codes(codes, register);
            let low = _mm_and_si128(codes, nibbles);
            let high = _mm_and_si128(_mm_srli_epi16::<4>(codes), nibbles);
            for i in 0..T {
                let first = _mm_maddubs_epi16(low, repeat(&xs[i], g));
                let second = _mm_maddubs_epi16(high, repeat(&xs[i], g + 4));
                pairs[i] = _mm_add_epi16(pairs[i], _mm_add_epi16(first, second));
            }
        }
        let dots = std::array::from_fn(|i| _mm_add_epi32(_mm_madd_epi16(pairs[i], ones), _mm_set1_epi32(xs[i].bias)));
        add_block(&dots, load_scales(&block.scales, register), xs, &mut totals);
    }
    store_all(&totals, register, sums);
}

/// `totals + dots * (scales * scale)`, for each token.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn add_block<const T: usize>(
    dots: &Each<__m128i, T>,
    scales: __m128,
    xs: &[ActivationBlock; T],
    totals: &mut Each<__m128, T>,
) {
    for i in 0..T {
        let scale = _mm_mul_ps(scales, _mm_set1_ps(xs[i].scale));
        totals[i] = multiply_add(_mm_cvtepi32_ps(dots[i]), scale, totals[i]);
    }
}

/// Four bytes of codes of each of rows `4 register ...`.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn load_codes(codes: &[[u8; 4]; PANEL_ROWS], register: usize) -> __m128i {
    let codes: &[[u8; 4]; LANES] = &codes.as_chunks().0[register];
    // SAFETY: the arrays hold 16 bytes behind each other; the load needs no alignment.
    unsafe { _mm_loadu_si128(codes.as_ptr().cast()) }
}

/// Scales of rows `4 register ...`.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn load_scales(scales: &[u16; PANEL_ROWS], register: usize) -> __m128 {
    let scales: &[u16; LANES] = &scales.as_chunks().0[register];
    // SAFETY: the array holds 8 bytes; the load needs no alignment.
    widen_f16(unsafe { _mm_loadl_epi64(scales.as_ptr().cast()) })
}

/// Four codes of the activations in each lane: elements `4 group ...` of the block.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn repeat(x: &ActivationBlock, group: usize) -> __m128i {
    let codes = x.codes.as_chunks::<4>().0[group].map(|code| code as u8);
    _mm_set1_epi32(i32::from_le_bytes(codes))
}

/// Sums of rows `4 register ...`, for each token.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn store_all<const T: usize>(totals: &Each<__m128, T>, register: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    for (sums, total) in sums.iter_mut().zip(totals) {
        sums.as_chunks_mut().0[register] = store(*total);
    }
}
