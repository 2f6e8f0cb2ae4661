//! Products of panels: a 256-bit register holds four codes of each of eight rows, half a panel, and up to six tokens
//! use it before the next is loaded.
//!
//! `vpdpbusd` multiplies unsigned by signed bytes as its wider form in AVX-512 does (`avx512/panel_product.rs`).

use super::super::avx2::panel_product::{load, load_nibbles, multiply_add, repeat};
use super::super::avx2::store;
use super::super::panel_product::{Tokens, each_panel};
use super::super::quantize::ActivationBlock;
use crate::panel_block::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Most tokens whose sums find room in registers, with their totals.
const TOKENS: usize = 6;

/// Of any format.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub fn product<const S: usize, const G: usize>(
    panels: &[PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    // Passes as even as can be.
    let step = tokens.div_ceil(tokens.div_ceil(TOKENS).max(1)).max(1);
    for (panel, sums) in each_panel(panels, xs, tokens, sums) {
        for (pass, sums) in sums.chunks_mut(step).enumerate() {
            let xs = Tokens { xs, tokens, first: pass * step };
            for half in 0..2 {
                match sums.len() {
                    1 => tile::<S, G, 1>(panel, half, xs, sums),
                    2 => tile::<S, G, 2>(panel, half, xs, sums),
                    3 => tile::<S, G, 3>(panel, half, xs, sums),
                    4 => tile::<S, G, 4>(panel, half, xs, sums),
                    5 => tile::<S, G, 5>(panel, half, xs, sums),
                    _ => tile::<S, G, TOKENS>(panel, half, xs, sums),
                }
            }
        }
    }
}

/// Rows `8 half ...` by `T` tokens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn tile<const S: usize, const G: usize, const T: usize>(
    panel: &[PanelBlock<S, G>],
    half: usize,
    xs: Tokens,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let mut totals = [_mm256_setzero_ps(); T];
    for (b, block) in panel.iter().enumerate() {
        let xs = xs.of_block::<T>(b);
        let mut dots = [_mm256_setzero_si256(); T];
        for (dots, x) in dots.iter_mut().zip(xs) {
            *dots = _mm256_set1_epi32(x.start(PanelBlock::<S, G>::OFFSET));
        }
        if PanelBlock::<S, G>::BYTES {
            for (g, codes) in block.codes.iter().enumerate() {
                let codes = _mm256_xor_si256(load(&codes.as_chunks().0[half]), _mm256_set1_epi8(i8::MIN));
                add_products(&mut dots, codes, xs, g);
            }
        } else {
            let mut fifth_bits = load(&block.codes[0].as_chunks().0[half]);
            for g in 0..4 {
                let [low, high] = load_nibbles(block, half, g, fifth_bits);
                fifth_bits = _mm256_srli_epi32::<4>(fifth_bits);
                add_products(&mut dots, low, xs, g);
                add_products(&mut dots, high, xs, g + 4);
            }
        }
        multiply_add(&mut totals, &dots, block, half, xs);
    }
    for (sums, totals) in sums.iter_mut().zip(totals) {
        sums.as_chunks_mut().0[half] = store(totals);
    }
}

/// Adds the products of four codes of each row with those of each token.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn add_products<const T: usize>(dots: &mut [__m256i; T], codes: __m256i, xs: &[ActivationBlock; T], group: usize) {
    for (dots, x) in dots.iter_mut().zip(xs) {
        *dots = _mm256_dpbusd_avx_epi32(*dots, codes, repeat(x, group));
    }
}
