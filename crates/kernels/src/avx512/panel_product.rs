//! Products of panels: a 512-bit register holds four codes of each of a panel's rows, and up to six tokens use it, and
//! that of a second panel, before the next is loaded.
//!
//! `vpdpbusd` multiplies unsigned by signed bytes and adds four products to a lane of 32 bits, without saturation:
//!
//! ```text
//!  q8_0, q8_1   (w + 128) * x, the sign bit turned over      128 * sum of x goes off before
//!  q4_0         (w + 8) * x                                  8 * sum of x goes off before
//!  q5_0         (w + 16) * x                                 16 * sum of x goes off before
//!  q4_1, q5_1   q * x                                        m * d * sum of x is added behind
//! ```

use super::super::panel_product::{Tokens, each_panel};
use super::super::quantize::ActivationBlock;
use super::{ask_for_again, prefetch_streamed, store};
use crate::panel_block::{PANEL_ROWS, PanelBlock};
use crate::prefetch::STREAMED_TOKENS;
use std::arch::x86_64::*;

/// Most tokens whose sums, of two panels, find room in registers.
pub(super) const TOKENS: usize = 6;

/// Calls a function for as many tokens as there are: its registers are counted when it is compiled.
macro_rules! of_tokens {
    ($count:expr, $tile:ident::<$($constant:tt),+>($($argument:expr),*)) => {
        match $count {
            0 => {}
            1 => $tile::<$($constant),+, 1>($($argument),*),
            2 => $tile::<$($constant),+, 2>($($argument),*),
            3 => $tile::<$($constant),+, 3>($($argument),*),
            4 => $tile::<$($constant),+, 4>($($argument),*),
            5 => $tile::<$($constant),+, 5>($($argument),*),
            TOKENS => $tile::<$($constant),+, TOKENS>($($argument),*),
            tokens => unreachable!("{tokens} tokens at once are more than {TOKENS}"),
        }
    };
}
pub(super) use of_tokens;

/// Of any format.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn product<const S: usize, const G: usize>(
    panels: &[PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let mut each = each_panel(panels, xs, tokens, sums);
    let passes = tokens.div_ceil(TOKENS).max(1);
    let step = tokens.div_ceil(passes).max(1);
    while let Some((panel, sums)) = each.next() {
        // With few tokens, panels are multiplied faster than they are read: one after the other. With more, two of them
        // share each register of activations.
        let second = if tokens > STREAMED_TOKENS { each.next() } else { None };
        let mut ends = (sums, second);
        for first in (0..tokens).step_by(step) {
            let xs = Tokens { xs, tokens, first };
            let count = step.min(tokens - first);
            match &mut ends {
                (sums, None) => {
                    let sums = [&mut sums[first..]];
                    of_tokens!(count, tile::<S, G, 1>([panel], xs, sums));
                }
                (sums, Some((second, others))) => {
                    let sums = [&mut sums[first..], &mut others[first..]];
                    of_tokens!(count, tile::<S, G, 2>([panel, *second], xs, sums));
                }
            }
        }
    }
}

/// `T` tokens by `P` panels.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn tile<const S: usize, const G: usize, const P: usize, const T: usize>(
    panels: [&[PanelBlock<S, G>]; P],
    xs: Tokens,
    sums: [&mut [[f32; PANEL_ROWS]]; P],
) {
    let mut totals = [[_mm512_setzero_ps(); P]; T];
    for b in 0..panels[0].len() {
        let (blocks, xs) = (panels.map(|panel| &panel[b]), xs.of_block::<T>(b));
        blocks.iter().for_each(|block| ask_for::<_, T>(*block));
        let mut dots = [[_mm512_setzero_si512(); P]; T];
        for (dots, x) in dots.iter_mut().zip(xs) {
            *dots = [_mm512_set1_epi32(x.start(PanelBlock::<S, G>::OFFSET)); P];
        }
        if PanelBlock::<S, G>::BYTES {
            add_bytes(&mut dots, blocks, xs);
        } else {
            add_nibbles(&mut dots, blocks, xs);
        }
        add_blocks(&mut totals, dots, blocks, xs);
    }
    store_all(&totals, sums);
}

/// Adds the products of a block's codes of a byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_bytes<const S: usize, const G: usize, const P: usize, const T: usize>(
    dots: &mut [[__m512i; P]; T],
    blocks: [&PanelBlock<S, G>; P],
    xs: &[ActivationBlock; T],
) {
    for g in 0..G {
        let mut codes = [_mm512_setzero_si512(); P];
        for p in 0..P {
            codes[p] = _mm512_xor_si512(load(&blocks[p].codes[g]), _mm512_set1_epi8(i8::MIN));
        }
        add_products(dots, codes, xs, g);
    }
}

/// Adds the products of a block's nibbles, perhaps with a fifth bit.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_nibbles<const S: usize, const G: usize, const P: usize, const T: usize>(
    dots: &mut [[__m512i; P]; T],
    blocks: [&PanelBlock<S, G>; P],
    xs: &[ActivationBlock; T],
) {
    let mask = _mm512_set1_epi8(0x0F);
    let mut fifth_bits = [_mm512_setzero_si512(); P];
    for p in 0..P {
        fifth_bits[p] = load(&blocks[p].codes[0]);
    }
    for g in 0..4 {
        let (mut low, mut high) = ([_mm512_setzero_si512(); P], [_mm512_setzero_si512(); P]);
        for p in 0..P {
            let codes = load(blocks[p].group(g));
            low[p] = _mm512_and_si512(codes, mask);
            high[p] = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), mask);
            if PanelBlock::<S, G>::FIFTH_BITS {
                // Each byte of a row gets the row's first byte, or its third.
                let first = _mm512_set4_epi32(0x0C0C_0C0C, 0x0808_0808, 0x0404_0404, 0);
                let third = _mm512_set4_epi32(0x0E0E_0E0E, 0x0A0A_0A0A, 0x0606_0606, 0x0202_0202);
                low[p] = with_fifth(low[p], _mm512_shuffle_epi8(fifth_bits[p], first));
                high[p] = with_fifth(high[p], _mm512_shuffle_epi8(fifth_bits[p], third));
                fifth_bits[p] = _mm512_srli_epi32::<4>(fifth_bits[p]);
            }
        }
        add_products(dots, low, xs, g);
        add_products(dots, high, xs, g + 4);
    }
}

/// Adds 16 to each code whose bit, one of the lowest four of its byte of `bits`, is set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn with_fifth(codes: __m512i, bits: __m512i) -> __m512i {
    let set = _mm512_test_epi8_mask(bits, _mm512_set1_epi32(0x0804_0201));
    _mm512_mask_add_epi8(codes, set, codes, _mm512_set1_epi8(16))
}

/// Prefetches weights: those of few tokens are used once, others by the next tile too.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn ask_for<W, const T: usize>(weights: &W) {
    if T <= STREAMED_TOKENS { prefetch_streamed(weights) } else { ask_for_again(weights) }
}

/// Adds the products of four codes of each row with those of each token.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn add_products<const P: usize, const T: usize>(
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

/// Adds a block's products, each by its scales, and its minima, each by the sum of its activations, to the totals.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_blocks<const S: usize, const G: usize, const P: usize, const T: usize>(
    totals: &mut [[__m512; P]; T],
    dots: [[__m512i; P]; T],
    blocks: [&PanelBlock<S, G>; P],
    xs: &[ActivationBlock; T],
) {
    let (mut scales, mut minima) = ([_mm512_setzero_ps(); P], [_mm512_setzero_ps(); P]);
    for p in 0..P {
        (scales[p], minima[p]) = (widen(&blocks[p].scales[0]), widen(&blocks[p].scales[S - 1]));
    }
    for i in 0..T {
        let (x, sum) = (_mm512_set1_ps(xs[i].scale), _mm512_set1_ps(xs[i].sum));
        for p in 0..P {
            let scale = _mm512_mul_ps(scales[p], x);
            totals[i][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i][p]), scale, totals[i][p]);
            if PanelBlock::<S, G>::MINIMA {
                totals[i][p] = _mm512_fmadd_ps(minima[p], sum, totals[i][p]);
            }
        }
    }
}

/// Four bytes of each row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn load(group: &[[u8; 4]; PANEL_ROWS]) -> __m512i {
    // SAFETY: the arrays hold 64 bytes behind each other; the load needs no alignment.
    unsafe { _mm512_loadu_si512(group.as_ptr().cast()) }
}

/// A number of f16 of each row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn widen(halves: &[u16; PANEL_ROWS]) -> __m512 {
    // SAFETY: the array holds 32 bytes; the load needs no alignment.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(halves.as_ptr().cast()) })
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
pub(super) fn store_all<const P: usize, const T: usize>(
    totals: &[[__m512; P]; T],
    sums: [&mut [[f32; PANEL_ROWS]]; P],
) {
    for (p, sums) in sums.into_iter().enumerate() {
        for (sums, totals) in sums.iter_mut().zip(totals) {
            *sums = store(totals[p]);
        }
    }
}
