//! Products of panels: a 512-bit register holds four codes of each of a panel's rows, and up to six tokens use it, and
//! that of a second panel, before the next is loaded.
//!
//! `vpdpbusd` multiplies unsigned by signed bytes and adds four products to a lane of 32 bits, without saturation:
//!
//! ```text
//!  q8_0   (w + 128) * x, the sign bit turned over      128 * sum of x goes off before
//!  q4_0   (w + 8) * x                                  8 * sum of x goes off before; of few tokens high nibbles stay where they are, as
//!                                                      16 (w + 8), and their sum is shifted once a block
//! ```

use super::super::panel_product::{Tokens, each_panel};
use super::super::quantize::ActivationBlock;
use super::{ask_for_again, ask_for_once, store};
use crate::device::cpu::panels::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Up to so many tokens, panels are multiplied faster than they come from memory: they are read one by one. With more, two of them share
/// each register of activations.
const TOKENS_STREAMED: usize = 4;

/// Most tokens whose sums, of two panels, find room in registers.
const TOKENS: usize = 6;

/// Calls a function for as many tokens as there are: its registers are counted when it is compiled.
macro_rules! of_tokens {
    ($count:expr, $tile:ident::<$panels:literal>($($argument:expr),*)) => {
        match $count {
            0 => {}
            1 => $tile::<$panels, 1>($($argument),*),
            2 => $tile::<$panels, 2>($($argument),*),
            3 => $tile::<$panels, 3>($($argument),*),
            4 => $tile::<$panels, 4>($($argument),*),
            5 => $tile::<$panels, 5>($($argument),*),
            TOKENS => $tile::<$panels, TOKENS>($($argument),*),
            tokens => unreachable!("{tokens} tokens at once are more than {TOKENS}"),
        }
    };
}

/// Goes through panels, alone or in pairs, with some tokens at a time.
macro_rules! through_panels {
    ($tile:ident, $panels:ident, $xs:ident, $tokens:ident, $sums:ident) => {
        let mut each = each_panel($panels, $xs, $tokens, $sums);
        let passes = $tokens.div_ceil(TOKENS).max(1);
        let step = $tokens.div_ceil(passes).max(1);
        while let Some((panel, sums)) = each.next() {
            let second = if $tokens > TOKENS_STREAMED { each.next() } else { None };
            let mut ends = (sums, second);
            for first in (0..$tokens).step_by(step) {
                let xs = Tokens { xs: $xs, tokens: $tokens, first };
                let count = step.min($tokens - first);
                match &mut ends {
                    (sums, None) => {
                        let sums = [&mut sums[first..]];
                        of_tokens!(count, $tile::<1>([panel], xs, sums));
                    }
                    (sums, Some((second, others))) => {
                        let sums = [&mut sums[first..], &mut others[first..]];
                        of_tokens!(count, $tile::<2>([panel, *second], xs, sums));
                    }
                }
            }
        }
    };
}

/// Of q8_0.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn q8_0(panels: &[PanelBlock<8>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    through_panels!(tile_q8_0, panels, xs, tokens, sums);
}

/// Of q4_0.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn q4_0(panels: &[PanelBlock<4>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    through_panels!(tile_q4_0, panels, xs, tokens, sums);
}

/// `T` tokens by `P` panels.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn tile_q8_0<const P: usize, const T: usize>(
    panels: [&[PanelBlock<8>]; P],
    xs: Tokens,
    sums: [&mut [[f32; PANEL_ROWS]]; P],
) {
    let sign = _mm512_set1_epi8(i8::MIN);
    let mut totals = [[_mm512_setzero_ps(); P]; T];
    for b in 0..panels[0].len() {
        let (blocks, xs) = (panels.map(|panel| &panel[b]), xs.of_block::<T>(b));
        blocks.iter().for_each(|block| ask_for::<_, T>(*block));
        let mut dots: [[__m512i; P]; T] =
            std::array::from_fn(|i| [_mm512_slli_epi32::<4>(_mm512_set1_epi32(xs[i].bias)); P]);
        for g in 0..8 {
            let codes = blocks.map(|block| _mm512_xor_si512(load_codes(&block.codes[g]), sign));
            add_products(&mut dots, codes, xs, g);
        }
        add_blocks(&mut totals, dots, blocks.map(|block| &block.scales), xs);
    }
    store_all(&totals, sums);
}

/// `T` tokens by `P` panels.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn tile_q4_0<const P: usize, const T: usize>(
    panels: [&[PanelBlock<4>]; P],
    xs: Tokens,
    sums: [&mut [[f32; PANEL_ROWS]]; P],
) {
    let mut totals = [[_mm512_setzero_ps(); P]; T];
    for b in 0..panels[0].len() {
        let (blocks, xs) = (panels.map(|panel| &panel[b]), xs.of_block::<T>(b));
        blocks.iter().for_each(|block| ask_for::<_, T>(*block));
        let dots = if T <= TOKENS_STREAMED { dots_apart(blocks, xs) } else { dots_together(blocks, xs) };
        add_blocks(&mut totals, dots, blocks.map(|block| &block.scales), xs);
    }
    store_all(&totals, sums);
}

/// A block's products, high nibbles where they are: few instructions, two registers a token.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn dots_apart<const P: usize, const T: usize>(
    blocks: [&PanelBlock<4>; P],
    xs: &[ActivationBlock; T],
) -> [[__m512i; P]; T] {
    let (low, high) = (_mm512_set1_epi8(0x0F), _mm512_set1_epi8(0xF0_u8 as i8));
    let mut lows = biases(xs);
    let mut highs = [[_mm512_setzero_si512(); P]; T];
    for g in 0..4 {
        let codes = blocks.map(|block| load_codes(&block.codes[g]));
        add_products(&mut lows, codes.map(|codes| _mm512_and_si512(codes, low)), xs, g);
        add_products(&mut highs, codes.map(|codes| _mm512_and_si512(codes, high)), xs, g + 4);
    }
    std::array::from_fn(|i| std::array::from_fn(|p| _mm512_add_epi32(lows[i][p], _mm512_srai_epi32::<4>(highs[i][p]))))
}

/// The same with high nibbles brought down: one register a token.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn dots_together<const P: usize, const T: usize>(
    blocks: [&PanelBlock<4>; P],
    xs: &[ActivationBlock; T],
) -> [[__m512i; P]; T] {
    let low = _mm512_set1_epi8(0x0F);
    let mut dots = biases(xs);
    for g in 0..4 {
        let codes = blocks.map(|block| load_codes(&block.codes[g]));
        add_products(&mut dots, codes.map(|codes| _mm512_and_si512(codes, low)), xs, g);
        let second = codes.map(|codes| _mm512_and_si512(_mm512_srli_epi16::<4>(codes), low));
        add_products(&mut dots, second, xs, g + 4);
    }
    dots
}

/// What products of codes that count from 0 begin with.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn biases<const P: usize, const T: usize>(xs: &[ActivationBlock; T]) -> [[__m512i; P]; T] {
    std::array::from_fn(|i| [_mm512_set1_epi32(xs[i].bias); P])
}

/// Asks for weights that come later: those of few tokens are used once, others by the next tile too.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn ask_for<W, const T: usize>(weights: &W) {
    if T <= TOKENS_STREAMED { ask_for_once(weights) } else { ask_for_again(weights) }
}

/// Adds the products of four codes of each row with those of each token.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_products<const P: usize, const T: usize>(
    dots: &mut [[__m512i; P]; T],
    codes: [__m512i; P],
    xs: &[ActivationBlock; T],
    group: usize,
) {
    for i in 0..T {
        let x = repeat(&xs[i], group);
        for p in 0..P {
            dots[i][p] = _mm512_dpbusd_epi32(dots[i][p], codes[p], x);
        }
    }
}

/// Adds a block's products, each by its scales, to the totals.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_blocks<const P: usize, const T: usize>(
    totals: &mut [[__m512; P]; T],
    dots: [[__m512i; P]; T],
    scales: [&[u16; PANEL_ROWS]; P],
    xs: &[ActivationBlock; T],
) {
    let scales = scales.map(|scales| load_scales(scales));
    for i in 0..T {
        let x = _mm512_set1_ps(xs[i].scale);
        for p in 0..P {
            let scale = _mm512_mul_ps(scales[p], x);
            totals[i][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i][p]), scale, totals[i][p]);
        }
    }
}

/// Four bytes of codes of each row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load_codes(codes: &[[u8; 4]; PANEL_ROWS]) -> __m512i {
    // SAFETY: the arrays hold 64 bytes behind each other; the load needs no alignment.
    unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) }
}

/// Each row's scale.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load_scales(scales: &[u16; PANEL_ROWS]) -> __m512 {
    // SAFETY: the array holds 32 bytes; the load needs no alignment.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(scales.as_ptr().cast()) })
}

/// Four codes of the activations in each lane: elements `4 group ...` of the block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn repeat(x: &ActivationBlock, group: usize) -> __m512i {
    let codes = x.codes.as_chunks::<4>().0[group].map(|code| code as u8);
    _mm512_set1_epi32(i32::from_le_bytes(codes))
}

/// Each token's sums of each panel.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn store_all<const P: usize, const T: usize>(totals: &[[__m512; P]; T], sums: [&mut [[f32; PANEL_ROWS]]; P]) {
    for (p, sums) in sums.into_iter().enumerate() {
        for (sums, totals) in sums.iter_mut().zip(totals) {
            *sums = store(totals[p]);
        }
    }
}
