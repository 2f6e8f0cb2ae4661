//! Products of packed tiles of types with sub-blocks: as in `avx2/sub_block_product.rs`, with `vpdpbusd`.
//!
//! It multiplies unsigned by signed bytes. Numbers of the codebook are used with 128 added, which the start of the sums
//! subtracts.

use super::super::avx2::panel_product::repeat;
use super::super::avx2::store;
use super::super::avx2::sub_block_product::{add_scaled, ask_for_step, codes, starts, widened};
use super::super::panel_product::Tokens;
use super::super::quantize::ActivationBlock;
use super::super::sub_block::{Format, Scales, WORDS};
use super::super::sub_block_product::each_panel;
use crate::panel_block::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Most tokens whose sums find room in registers, with their totals.
const TOKENS: usize = 6;

/// What is added to numbers of the codebook.
const CODEBOOK_OFFSET: i32 = 128;

/// Of any format.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub fn product<const F: usize, const S: usize, const G: usize>(
    panels: &[PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    // Passes as even as can be.
    let count = tokens.div_ceil(tokens.div_ceil(TOKENS).max(1)).max(1);
    for (panel, sums) in each_panel::<F, S, G>(panels, xs, tokens, sums) {
        for (pass, sums) in sums.chunks_mut(count).enumerate() {
            let xs = Tokens { xs, tokens, first: pass * count };
            match sums.len() {
                1 => tile::<F, S, G, 1>(panel, xs, sums),
                2 => tile::<F, S, G, 2>(panel, xs, sums),
                3 => tile::<F, S, G, 3>(panel, xs, sums),
                4 => tile::<F, S, G, 4>(panel, xs, sums),
                5 => tile::<F, S, G, 5>(panel, xs, sums),
                _ => tile::<F, S, G, TOKENS>(panel, xs, sums),
            }
        }
    }
}

/// `T` tokens. Totals stay in memory from one half of the rows to the other.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn tile<const F: usize, const S: usize, const G: usize, const T: usize>(
    panel: &[PanelBlock<S, G>],
    xs: Tokens,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let mut totals = [[_mm256_setzero_ps(); T]; 2];
    let mut scales = Scales::ZERO;
    for (b, block) in panel.iter().enumerate() {
        scales.read::<F, S, G>(block, &widened(&block.scales[0]), &widened(&block.scales[S - 1]));
        for (half, totals) in totals.iter_mut().enumerate() {
            let steps = Format::<F>::BLOCKS / Format::<F>::STEP;
            for step in 0..steps {
                if half == 0 {
                    ask_for_step(block, step, steps);
                }
                let first = b * Format::<F>::BLOCKS + step * Format::<F>::STEP;
                add_block::<F, S, G, T, 0>(totals, block, half, &scales, xs.of_block(first), step);
                if Format::<F>::STEP > 1 {
                    add_block::<F, S, G, T, 1>(totals, block, half, &scales, xs.of_block(first + 1), step);
                }
                if Format::<F>::STEP > 2 {
                    add_block::<F, S, G, T, 2>(totals, block, half, &scales, xs.of_block(first + 2), step);
                    add_block::<F, S, G, T, 3>(totals, block, half, &scales, xs.of_block(first + 3), step);
                }
            }
        }
    }
    for (half, totals) in totals.into_iter().enumerate() {
        for (sums, totals) in sums.iter_mut().zip(totals) {
            sums.as_chunks_mut().0[half] = store(totals);
        }
    }
}

/// Adds the products of block `K` of a step and rows `8 half ...` to the totals.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn add_block<const F: usize, const S: usize, const G: usize, const T: usize, const K: usize>(
    totals: &mut [__m256; T],
    block: &PanelBlock<S, G>,
    half: usize,
    scales: &Scales,
    xs: &[ActivationBlock; T],
    step: usize,
) {
    let offset = if Format::<F>::IN_CODEBOOK { CODEBOOK_OFFSET } else { 0 };
    let place = (step * Format::<F>::STEP + K) * Format::<F>::SUBS;
    let mut dots = starts::<F, T>(xs, 0, offset);
    add_half::<F, S, G, T, K, 0>(&mut dots, block, half, xs, step);
    if Format::<F>::SUBS == 2 {
        add_scaled::<F, T>(totals, &dots, scales, half, place, xs, 0);
        dots = starts::<F, T>(xs, 1, offset);
    }
    add_half::<F, S, G, T, K, 1>(&mut dots, block, half, xs, step);
    let last = Format::<F>::SUBS - 1;
    add_scaled::<F, T>(totals, &dots, scales, half, place + last, xs, last);
}

/// Adds the products of half `H` of a block's codes, which lie at one place of their bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn add_half<const F: usize, const S: usize, const G: usize, const T: usize, const K: usize, const H: usize>(
    dots: &mut [__m256i; T],
    block: &PanelBlock<S, G>,
    half: usize,
    xs: &[ActivationBlock; T],
    step: usize,
) {
    for i in 0..WORDS / 2 {
        let word = H * WORDS / 2 + i;
        let mut codes = codes::<F, S, G, K, H>(block, half, step, word);
        if Format::<F>::IN_CODEBOOK {
            // Adds 128.
            codes = _mm256_xor_si256(codes, _mm256_set1_epi8(i8::MIN));
        }
        for i in 0..T {
            dots[i] = _mm256_dpbusd_avx_epi32(dots[i], codes, repeat(&xs[i], word));
        }
    }
}
