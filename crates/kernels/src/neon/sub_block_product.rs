//! Products of packed tiles of types with sub-blocks: as in `panel_product.rs`, sub-block after sub-block.
//!
//! `sdot` multiplies signed bytes: codes, at most 63, are used as they are stored, and numbers of the codebook with
//! their sign.

use super::super::panel_product::Tokens;
use super::super::quantize::ActivationBlock;
use super::super::sub_block::{Format, High, Scales, WORDS};
use super::super::sub_block_product::each_panel;
use super::panel_product::{REGISTERS, load, load_activations};
use super::{LANES, add_dots, load_f32, store, widen_f16};
use crate::panel_block::{PANEL_ROWS, PanelBlock};
use std::arch::aarch64::*;

/// Tokens that use a register of codes.
const TOKENS: usize = 4;

/// Of any format.
#[target_feature(enable = "neon,dotprod")]
pub fn product<const F: usize, const S: usize, const G: usize>(
    panels: &[PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    for (panel, sums) in each_panel::<F, S, G>(panels, xs, tokens, sums) {
        for (tile, sums) in sums.chunks_mut(TOKENS).enumerate() {
            let xs = Tokens { xs, tokens, first: tile * TOKENS };
            match sums.len() {
                1 => self::tile::<F, S, G, 1>(panel, xs, sums),
                2 => self::tile::<F, S, G, 2>(panel, xs, sums),
                3 => self::tile::<F, S, G, 3>(panel, xs, sums),
                _ => self::tile::<F, S, G, TOKENS>(panel, xs, sums),
            }
        }
    }
}

/// `T` tokens. Totals stay in memory from one register of rows to the next.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn tile<const F: usize, const S: usize, const G: usize, const T: usize>(
    panel: &[PanelBlock<S, G>],
    xs: Tokens,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let mut totals = [[vdupq_n_f32(0.0); T]; REGISTERS];
    let mut scales = Scales::ZERO;
    for (b, block) in panel.iter().enumerate() {
        scales.read::<F, S, G>(block, &widened(&block.scales[0]), &widened(&block.scales[S - 1]));
        for (register, totals) in totals.iter_mut().enumerate() {
            for step in 0..Format::<F>::BLOCKS / Format::<F>::STEP {
                let first = b * Format::<F>::BLOCKS + step * Format::<F>::STEP;
                add_block::<F, S, G, T, 0>(totals, block, register, &scales, xs.of_block(first), step);
                if Format::<F>::STEP > 1 {
                    add_block::<F, S, G, T, 1>(totals, block, register, &scales, xs.of_block(first + 1), step);
                }
                if Format::<F>::STEP > 2 {
                    add_block::<F, S, G, T, 2>(totals, block, register, &scales, xs.of_block(first + 2), step);
                    add_block::<F, S, G, T, 3>(totals, block, register, &scales, xs.of_block(first + 3), step);
                }
            }
        }
    }
    for (register, totals) in totals.into_iter().enumerate() {
        for (sums, totals) in sums.iter_mut().zip(totals) {
            sums.as_chunks_mut().0[register] = store(totals);
        }
    }
}

/// Adds the products of block `K` of a step and rows `4 register ...` to the totals.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_block<const F: usize, const S: usize, const G: usize, const T: usize, const K: usize>(
    totals: &mut [float32x4_t; T],
    block: &PanelBlock<S, G>,
    register: usize,
    scales: &Scales,
    xs: &[ActivationBlock; T],
    step: usize,
) {
    let place = (step * Format::<F>::STEP + K) * Format::<F>::SUBS;
    let mut dots = starts::<F, T>(xs, 0);
    add_half::<F, S, G, T, K, 0>(&mut dots, block, register, xs, step);
    if Format::<F>::SUBS == 2 {
        add_scaled::<F, T>(totals, &dots, scales, register, place, xs, 0);
        dots = starts::<F, T>(xs, 1);
    }
    add_half::<F, S, G, T, K, 1>(&mut dots, block, register, xs, step);
    let last = Format::<F>::SUBS - 1;
    add_scaled::<F, T>(totals, &dots, scales, register, place + last, xs, last);
}

/// What sums of a sub-block begin with.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn starts<const F: usize, const T: usize>(xs: &[ActivationBlock; T], sub: usize) -> [int32x4_t; T] {
    let mut dots = [vdupq_n_s32(0); T];
    for i in 0..T {
        dots[i] = vdupq_n_s32(Format::<F>::start(&xs[i], sub, 0));
    }
    dots
}

/// Adds the products of half `H` of a block's codes, which lie at one place of their bytes.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_half<const F: usize, const S: usize, const G: usize, const T: usize, const K: usize, const H: usize>(
    dots: &mut [int32x4_t; T],
    block: &PanelBlock<S, G>,
    register: usize,
    xs: &[ActivationBlock; T],
    step: usize,
) {
    let x = load_activations(xs, H);
    let first = H * WORDS / 2;
    add_word::<0, T>(dots, codes::<F, S, G, K, H>(block, register, step, first), &x);
    add_word::<1, T>(dots, codes::<F, S, G, K, H>(block, register, step, first + 1), &x);
    add_word::<2, T>(dots, codes::<F, S, G, K, H>(block, register, step, first + 2), &x);
    add_word::<3, T>(dots, codes::<F, S, G, K, H>(block, register, step, first + 3), &x);
}

/// Four codes of each row, with lane `LANE` of each token's activations.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_word<const LANE: i32, const T: usize>(dots: &mut [int32x4_t; T], codes: int8x16_t, x: &[int8x16_t; T]) {
    for i in 0..T {
        dots[i] = add_dots::<LANE>(dots[i], codes, x[i]);
    }
}

/// Adds the products of a sub-block of rows `4 register ...`, times its scale, and its minimum, times the sum of the
/// activations, to the totals.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_scaled<const F: usize, const T: usize>(
    totals: &mut [float32x4_t; T],
    dots: &[int32x4_t; T],
    scales: &Scales,
    register: usize,
    place: usize,
    xs: &[ActivationBlock; T],
    sub: usize,
) {
    let minima = load_f32(&scales.minima[place].as_chunks().0[register]);
    let scales = load_f32(&scales.scales[place].as_chunks().0[register]);
    for i in 0..T {
        totals[i] = vfmaq_f32(totals[i], vcvtq_f32_s32(dots[i]), vmulq_n_f32(scales, xs[i].scale));
        if Format::<F>::MINIMA {
            totals[i] = vfmaq_f32(totals[i], minima, vdupq_n_f32(Format::<F>::sum(&xs[i], sub)));
        }
    }
}

/// Codes of word `word`, one of half `H` of all words, of rows `4 register ...`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn codes<const F: usize, const S: usize, const G: usize, const K: usize, const H: usize>(
    block: &PanelBlock<S, G>,
    register: usize,
    step: usize,
    word: usize,
) -> int8x16_t {
    let shift = Format::<F>::shift::<K, H>(word);
    let bits = shifted_right(group(block, register, Format::<F>::low(step, K, word).group), shift);
    let bits = vandq_u8(bits, vdupq_n_u8(Format::<F>::LOW_MASK));
    let codes = match Format::<F>::high(step, K, word) {
        High::None if Format::<F>::IN_CODEBOOK => {
            // SAFETY: the array holds 16 bytes; the load needs no alignment.
            return vqtbl1q_s8(unsafe { vld1q_s8(Format::<F>::CODEBOOK.as_ptr()) }, bits);
        }
        High::None => bits,
        High::Bit(place, worth) => {
            let set = vtstq_u8(group(block, register, place.group), vdupq_n_u8(1 << place.shift));
            vorrq_u8(bits, vandq_u8(set, vdupq_n_u8(worth)))
        }
        High::Two(place) => {
            let high = group(block, register, place.group);
            // To bits 4 and 5.
            let high = match K {
                0 => vshlq_n_u8::<4>(high),
                1 => vshlq_n_u8::<2>(high),
                _ => shifted_right(high, 2 * K - 4),
            };
            vorrq_u8(bits, vandq_u8(high, vdupq_n_u8(0x30)))
        }
    };
    vreinterpretq_s8_u8(codes)
}

/// Four bytes of each of rows `4 register ...`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn group<const S: usize, const G: usize>(block: &PanelBlock<S, G>, register: usize, group: usize) -> uint8x16_t {
    let [bytes] = load::<1>(&block.codes[group], register);
    bytes
}

/// Bytes shifted.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn shifted_right(bytes: uint8x16_t, shift: usize) -> uint8x16_t {
    match shift {
        0 => bytes,
        2 => vshrq_n_u8::<2>(bytes),
        4 => vshrq_n_u8::<4>(bytes),
        _ => vshrq_n_u8::<6>(bytes),
    }
}

/// Sixteen f16, widened.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn widened(halves: &[u16; PANEL_ROWS]) -> [f32; PANEL_ROWS] {
    let mut numbers = [0.0; PANEL_ROWS];
    for (numbers, halves) in numbers.as_chunks_mut::<LANES>().0.iter_mut().zip(halves.as_chunks::<LANES>().0) {
        // SAFETY: the array holds 8 bytes; the load needs no alignment.
        *numbers = store(widen_f16(unsafe { vld1_u16(halves.as_ptr()) }));
    }
    numbers
}
