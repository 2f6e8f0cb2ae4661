//! Products of panels: a 256-bit register holds four codes of each of eight rows, half a panel, and four tokens use it before the next is
//! loaded.
//!
//! `vpmaddubsw` multiplies unsigned by signed bytes and adds neighbours in 16 bits:
//!
//! ```text
//!  q8_0   |w| * (x with the sign of w)     2 * 128 * 127 = 32,512           fits 16 bits once
//!  q4_0   (w + 8) * x                      8 * 2 * 15 * 127 = 30,480        fits 16 bits for a whole block; 8 * sum of x goes off
//! ```

use super::super::panel_product::{Tokens, each_panel};
use super::super::quantize::ActivationBlock;
use super::{LANES, store};
use crate::device::cpu::panels::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Tokens that use a register of codes.
const TOKENS: usize = 4;

/// Of q8_0.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn q8_0(panels: &[PanelBlock<8>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    for (panel, sums) in each_panel(panels, xs, tokens, sums) {
        for (tile, sums) in sums.chunks_mut(TOKENS).enumerate() {
            let xs = Tokens { xs, tokens, first: tile * TOKENS };
            for half in 0..2 {
                match sums.len() {
                    1 => tile_q8_0::<1>(panel, half, xs, sums),
                    2 => tile_q8_0::<2>(panel, half, xs, sums),
                    3 => tile_q8_0::<3>(panel, half, xs, sums),
                    _ => tile_q8_0::<TOKENS>(panel, half, xs, sums),
                }
            }
        }
    }
}

/// Of q4_0.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn q4_0(panels: &[PanelBlock<4>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    for (panel, sums) in each_panel(panels, xs, tokens, sums) {
        for (tile, sums) in sums.chunks_mut(TOKENS).enumerate() {
            let xs = Tokens { xs, tokens, first: tile * TOKENS };
            for half in 0..2 {
                match sums.len() {
                    1 => tile_q4_0::<1>(panel, half, xs, sums),
                    2 => tile_q4_0::<2>(panel, half, xs, sums),
                    3 => tile_q4_0::<3>(panel, half, xs, sums),
                    _ => tile_q4_0::<TOKENS>(panel, half, xs, sums),
                }
            }
        }
    }
}

/// Rows `8 half ...` by `T` tokens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile_q8_0<const T: usize>(panel: &[PanelBlock<8>], half: usize, xs: Tokens, sums: &mut [[f32; PANEL_ROWS]]) {
    let ones = _mm256_set1_epi16(1);
    let mut totals = [_mm256_setzero_ps(); T];
    for (b, block) in panel.iter().enumerate() {
        let xs = xs.of_block::<T>(b);
        let mut dots = [_mm256_setzero_si256(); T];
        for (g, codes) in block.codes.iter().enumerate() {
            let codes = load_codes(&codes.as_chunks().0[half]);
            let magnitudes = _mm256_abs_epi8(codes);
            for i in 0..T {
                let signed = _mm256_sign_epi8(repeat(&xs[i], g), codes);
                let pairs = _mm256_maddubs_epi16(magnitudes, signed);
                dots[i] = _mm256_add_epi32(dots[i], _mm256_madd_epi16(pairs, ones));
            }
        }
        let scales = load_scales(&block.scales.as_chunks().0[half]);
        for i in 0..T {
            totals[i] = multiply_add(dots[i], scales, xs[i].scale, totals[i]);
        }
    }
    for (sums, totals) in sums.iter_mut().zip(totals) {
        sums.as_chunks_mut().0[half] = store(totals);
    }
}

/// Rows `8 half ...` by `T` tokens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile_q4_0<const T: usize>(panel: &[PanelBlock<4>], half: usize, xs: Tokens, sums: &mut [[f32; PANEL_ROWS]]) {
    let (ones, nibbles) = (_mm256_set1_epi16(1), _mm256_set1_epi8(15));
    let mut totals = [_mm256_setzero_ps(); T];
    for (b, block) in panel.iter().enumerate() {
        let xs = xs.of_block::<T>(b);
        let mut pairs = [_mm256_setzero_si256(); T];
        for (g, codes) in block.codes.iter().enumerate() {
            let codes = load_codes(&codes.as_chunks().0[half]);
            let low = _mm256_and_si256(codes, nibbles);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), nibbles);
            for i in 0..T {
                let first = _mm256_maddubs_epi16(low, repeat(&xs[i], g));
                let second = _mm256_maddubs_epi16(high, repeat(&xs[i], g + 4));
                pairs[i] = _mm256_add_epi16(pairs[i], _mm256_add_epi16(first, second));
            }
        }
        let scales = load_scales(&block.scales.as_chunks().0[half]);
        for i in 0..T {
            let dots = _mm256_add_epi32(_mm256_madd_epi16(pairs[i], ones), _mm256_set1_epi32(xs[i].bias));
            totals[i] = multiply_add(dots, scales, xs[i].scale, totals[i]);
        }
    }
    for (sums, totals) in sums.iter_mut().zip(totals) {
        sums.as_chunks_mut().0[half] = store(totals);
    }
}

/// Four bytes of codes of each row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn load_codes(codes: &[[u8; 4]; LANES]) -> __m256i {
    // SAFETY: the arrays hold 32 bytes behind each other; the load needs no alignment.
    unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
}

/// Each row's scale.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn load_scales(scales: &[u16; LANES]) -> __m256 {
    // SAFETY: the array holds 16 bytes; the load needs no alignment.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(scales.as_ptr().cast()) })
}

/// `totals + dots * (scales * scale)`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn multiply_add(dots: __m256i, scales: __m256, scale: f32, totals: __m256) -> __m256 {
    _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), _mm256_mul_ps(scales, _mm256_set1_ps(scale)), totals)
}

/// Four codes of the activations in each lane: elements `4 group ...` of the block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn repeat(x: &ActivationBlock, group: usize) -> __m256i {
    let codes = x.codes.as_chunks::<4>().0[group].map(|code| code as u8);
    _mm256_set1_epi32(i32::from_le_bytes(codes))
}
