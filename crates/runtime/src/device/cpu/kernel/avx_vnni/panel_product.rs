//! Products of panels: a 256-bit register holds four codes of each of eight rows, half a panel, and up to six tokens use it before the next
//! is loaded.
//!
//! `vpdpbusd` multiplies unsigned by signed bytes and adds four products to a lane of 32 bits, without saturation:
//!
//! ```text
//!  q8_0   (w + 128) * x, the sign bit turned over      128 * sum of x goes off before
//!  q4_0   (w + 8) * x                                  8 * sum of x goes off before
//! ```

use super::super::avx2::panel_product::{load_codes, load_scales, multiply_add, repeat};
use super::super::avx2::store;
use super::super::panel_product::{Tokens, each_panel};
use super::super::quantize::ActivationBlock;
use crate::device::cpu::panels::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Most tokens whose sums find room in registers, with their totals.
const TOKENS: usize = 6;

/// Groups of four codes that a row has in a block.
const GROUPS: usize = 8;

/// Of q8_0.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub fn q8_0(panels: &[PanelBlock<8>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    let sign = _mm256_set1_epi8(i8::MIN);
    let codes = |block: &PanelBlock<8>, half: usize, group: usize| {
        _mm256_xor_si256(load_codes(&block.codes[group].as_chunks().0[half]), sign)
    };
    product(panels, xs, tokens, sums, codes, |bias| 16 * bias);
}

/// Of q4_0.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub fn q4_0(panels: &[PanelBlock<4>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    let nibbles = _mm256_set1_epi8(15);
    let codes = |block: &PanelBlock<4>, half: usize, group: usize| {
        let both = load_codes(&block.codes[group % 4].as_chunks().0[half]);
        _mm256_and_si256(if group < 4 { both } else { _mm256_srli_epi16::<4>(both) }, nibbles)
    };
    product(panels, xs, tokens, sums, codes, |bias| bias);
}

/// `codes` gives a group's unsigned codes of half a panel, and `start` what their products begin with, from minus eight times the sum of
/// the activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn product<const G: usize>(
    panels: &[PanelBlock<G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
    codes: impl Fn(&PanelBlock<G>, usize, usize) -> __m256i + Copy,
    start: impl Fn(i32) -> i32 + Copy,
) {
    // Passes as even as can be.
    let step = tokens.div_ceil(tokens.div_ceil(TOKENS).max(1)).max(1);
    for (panel, sums) in each_panel(panels, xs, tokens, sums) {
        for (pass, sums) in sums.chunks_mut(step).enumerate() {
            let xs = Tokens { xs, tokens, first: pass * step };
            for half in 0..2 {
                match sums.len() {
                    1 => tile::<G, 1>(panel, half, xs, sums, codes, start),
                    2 => tile::<G, 2>(panel, half, xs, sums, codes, start),
                    3 => tile::<G, 3>(panel, half, xs, sums, codes, start),
                    4 => tile::<G, 4>(panel, half, xs, sums, codes, start),
                    5 => tile::<G, 5>(panel, half, xs, sums, codes, start),
                    _ => tile::<G, TOKENS>(panel, half, xs, sums, codes, start),
                }
            }
        }
    }
}

/// Rows `8 half ...` by `T` tokens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn tile<const G: usize, const T: usize>(
    panel: &[PanelBlock<G>],
    half: usize,
    xs: Tokens,
    sums: &mut [[f32; PANEL_ROWS]],
    codes: impl Fn(&PanelBlock<G>, usize, usize) -> __m256i,
    start: impl Fn(i32) -> i32,
) {
    let mut totals = [_mm256_setzero_ps(); T];
    for (b, block) in panel.iter().enumerate() {
        let xs = xs.of_block::<T>(b);
        let mut dots = [_mm256_setzero_si256(); T];
        for (dots, x) in dots.iter_mut().zip(xs) {
            *dots = _mm256_set1_epi32(start(x.bias));
        }
        for group in 0..GROUPS {
            let codes = codes(block, half, group);
            for (dots, x) in dots.iter_mut().zip(xs) {
                *dots = _mm256_dpbusd_avx_epi32(*dots, codes, repeat(x, group));
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
