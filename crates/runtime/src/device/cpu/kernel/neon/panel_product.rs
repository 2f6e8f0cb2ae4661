//! Products of panels: a register holds four codes of each of four rows, and up to four tokens use it before the next is loaded.
//!
//! `sdot` multiplies signed bytes and adds four products to a lane of 32 bits; the four bytes of activations that all rows are
//! multiplied with are one lane of a register:
//!
//! ```text
//!  codes      │ row 0: 4 g ... │ row 1: 4 g ... │ row 2: 4 g ... │ row 3: 4 g ... │
//!  x          │ x[0 ... 3]     │ x[4 ... 7]     │ x[8 ... 11]    │ x[12 ... 15]   │      lane g % 4 goes to all four
//!
//!  q8_0   w * x
//!  q4_0   (w + 8) * x          8 * sum of x goes off before
//! ```

use super::super::panel_product::{Tokens, each_panel};
use super::super::quantize::ActivationBlock;
use super::{LANES, add_dots, store, widen_f16};
use crate::device::cpu::panels::{PANEL_ROWS, PanelBlock};
use std::arch::aarch64::*;

/// Tokens that use a register of codes.
const TOKENS: usize = 4;

/// Registers that hold codes of all rows of a panel.
const REGISTERS: usize = PANEL_ROWS / LANES;

/// Sums of `V` registers of rows for each of `T` tokens.
type Dots<const T: usize, const V: usize> = [[int32x4_t; V]; T];

/// Calls tiles of up to four tokens, with all rows at once as long as their sums find room in registers, else half after half.
macro_rules! each_tile {
    ($tile:ident($panels:ident, $xs:ident, $tokens:ident, $sums:ident)) => {
        for (panel, sums) in each_panel($panels, $xs, $tokens, $sums) {
            for (tile, sums) in sums.chunks_mut(TOKENS).enumerate() {
                let xs = Tokens { xs: $xs, tokens: $tokens, first: tile * TOKENS };
                match sums.len() {
                    1 => $tile::<1, REGISTERS>(panel, 0, xs, sums),
                    2 => $tile::<2, REGISTERS>(panel, 0, xs, sums),
                    3 => (0..2).for_each(|half| $tile::<3, { REGISTERS / 2 }>(panel, half, xs, sums)),
                    _ => (0..2).for_each(|half| $tile::<TOKENS, { REGISTERS / 2 }>(panel, half, xs, sums)),
                }
            }
        }
    };
}

/// Of q8_0.
#[target_feature(enable = "neon,dotprod")]
pub fn q8_0(panels: &[PanelBlock<8>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    each_tile!(tile_q8_0(panels, xs, tokens, sums));
}

/// Of q4_0.
#[target_feature(enable = "neon,dotprod")]
pub fn q4_0(panels: &[PanelBlock<4>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    each_tile!(tile_q4_0(panels, xs, tokens, sums));
}

/// Rows `4 V part ...` by `T` tokens.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn tile_q8_0<const T: usize, const V: usize>(
    panel: &[PanelBlock<8>],
    part: usize,
    xs: Tokens,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let mut totals = [[vdupq_n_f32(0.0); V]; T];
    for (b, block) in panel.iter().enumerate() {
        let xs = xs.of_block::<T>(b);
        let mut dots = [[vdupq_n_s32(0); V]; T];
        for (half, groups) in block.codes.as_chunks::<4>().0.iter().enumerate() {
            let x = load_activations(xs, half);
            let codes = |group: usize| load_codes(&groups[group], part).map(|codes| vreinterpretq_s8_u8(codes));
            add_group::<0, T, V>(&mut dots, &codes(0), &x);
            add_group::<1, T, V>(&mut dots, &codes(1), &x);
            add_group::<2, T, V>(&mut dots, &codes(2), &x);
            add_group::<3, T, V>(&mut dots, &codes(3), &x);
        }
        multiply_add(&dots, &load_scales(&block.scales, part), xs, &mut totals);
    }
    store_all(&totals, part, sums);
}

/// Rows `4 V part ...` by `T` tokens.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn tile_q4_0<const T: usize, const V: usize>(
    panel: &[PanelBlock<4>],
    part: usize,
    xs: Tokens,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let mut totals = [[vdupq_n_f32(0.0); V]; T];
    for (b, block) in panel.iter().enumerate() {
        let xs = xs.of_block::<T>(b);
        let mut dots: Dots<T, V> = std::array::from_fn(|i| [vdupq_n_s32(xs[i].bias); V]);
        let (low, high) = (load_activations(xs, 0), load_activations(xs, 1));
        let codes = |group: usize| load_codes(&block.codes[group], part);
        add_nibbles::<0, T, V>(&mut dots, codes(0), &low, &high);
        add_nibbles::<1, T, V>(&mut dots, codes(1), &low, &high);
        add_nibbles::<2, T, V>(&mut dots, codes(2), &low, &high);
        add_nibbles::<3, T, V>(&mut dots, codes(3), &low, &high);
        multiply_add(&dots, &load_scales(&block.scales, part), xs, &mut totals);
    }
    store_all(&totals, part, sums);
}

/// A group of four codes of each row, with lane `LANE` of each token's activations.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_group<const LANE: i32, const T: usize, const V: usize>(
    dots: &mut Dots<T, V>,
    codes: &[int8x16_t; V],
    x: &[int8x16_t; T],
) {
    for (dots, x) in dots.iter_mut().zip(x) {
        for (dots, codes) in dots.iter_mut().zip(codes) {
            *dots = add_dots::<LANE>(*dots, *codes, *x);
        }
    }
}

/// Low nibbles with the first half of a block's activations, high nibbles with the second.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_nibbles<const LANE: i32, const T: usize, const V: usize>(
    dots: &mut Dots<T, V>,
    codes: [uint8x16_t; V],
    low: &[int8x16_t; T],
    high: &[int8x16_t; T],
) {
    let mask = vdupq_n_u8(0x0F);
    add_group::<LANE, T, V>(dots, &codes.map(|codes| vreinterpretq_s8_u8(vandq_u8(codes, mask))), low);
    add_group::<LANE, T, V>(dots, &codes.map(|codes| vreinterpretq_s8_u8(vshrq_n_u8::<4>(codes))), high);
}

/// Elements `16 half ...` of each token's block.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_activations<const T: usize>(xs: &[ActivationBlock; T], half: usize) -> [int8x16_t; T] {
    std::array::from_fn(|i| {
        let codes = &xs[i].codes.as_chunks::<16>().0[half];
        // SAFETY: the array holds 16 bytes; the load needs no alignment.
        unsafe { vld1q_s8(codes.as_ptr()) }
    })
}

/// Four bytes of codes of each of rows `4 V part ...`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_codes<const V: usize>(codes: &[[u8; 4]; PANEL_ROWS], part: usize) -> [uint8x16_t; V] {
    let rows = &codes.as_chunks::<LANES>().0[part * V..][..V];
    std::array::from_fn(|i| {
        let codes: &[u8; 16] = rows[i].as_flattened().first_chunk().expect("four bytes of four rows");
        // SAFETY: the array holds 16 bytes; the load needs no alignment.
        unsafe { vld1q_u8(codes.as_ptr()) }
    })
}

/// Scales of rows `4 V part ...`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_scales<const V: usize>(scales: &[u16; PANEL_ROWS], part: usize) -> [float32x4_t; V] {
    let rows = &scales.as_chunks::<LANES>().0[part * V..][..V];
    // SAFETY: each array holds 8 bytes; the load needs no alignment.
    std::array::from_fn(|i| widen_f16(unsafe { vld1_u16(rows[i].as_ptr()) }))
}

/// `totals + dots * (scales * scale)`, for each token.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn multiply_add<const T: usize, const V: usize>(
    dots: &Dots<T, V>,
    scales: &[float32x4_t; V],
    xs: &[ActivationBlock; T],
    totals: &mut [[float32x4_t; V]; T],
) {
    for ((totals, dots), x) in totals.iter_mut().zip(dots).zip(xs) {
        for ((total, dots), scales) in totals.iter_mut().zip(dots).zip(scales) {
            *total = vfmaq_f32(*total, vcvtq_f32_s32(*dots), vmulq_n_f32(*scales, x.scale));
        }
    }
}

/// Sums of rows `4 V part ...`, for each token.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn store_all<const T: usize, const V: usize>(
    totals: &[[float32x4_t; V]; T],
    part: usize,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    for (sums, totals) in sums.iter_mut().zip(totals) {
        let sums = &mut sums.as_chunks_mut::<LANES>().0[part * V..][..V];
        for (sums, total) in sums.iter_mut().zip(totals) {
            *sums = store(*total);
        }
    }
}
