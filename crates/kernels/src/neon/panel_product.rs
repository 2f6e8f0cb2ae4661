//! Products of panels: a register holds four codes of each of four rows, and up to four tokens use it before the next
//! is loaded.
//!
//! `sdot` multiplies signed bytes and adds four products to a lane of 32 bits; the four bytes of activations that all
//! rows are multiplied with are one lane of a register:
//!
//! ```text
//!  codes      │ row 0: 4 g ... │ row 1: 4 g ... │ row 2: 4 g ... │ row 3: 4 g ... │
//!  x          │ x[0 ... 3]     │ x[4 ... 7]     │ x[8 ... 11]    │ x[12 ... 15]   │      lane g % 4 goes to all four
//!
//!  q8_0, q8_1   w * x
//!  q4_0         (w + 8) * x          8 * sum of x goes off before
//!  q5_0         (w + 16) * x         16 * sum of x goes off before
//!  q4_1, q5_1   q * x                m * d * sum of x is added behind
//! ```

use super::super::panel_product::{Tokens, each_panel};
use super::super::quantize::ActivationBlock;
use super::{LANES, add_dots, store, widen_f16};
use crate::panel_block::{PANEL_ROWS, PanelBlock};
use std::arch::aarch64::*;

/// Tokens that use a register of codes.
const TOKENS: usize = 4;

/// Registers that hold codes of all rows of a panel.
pub(super) const REGISTERS: usize = PANEL_ROWS / LANES;

/// Sums of `V` registers of rows for each of `T` tokens.
type Dots<const T: usize, const V: usize> = [[int32x4_t; V]; T];

/// Of any format: with all rows at once as long as their sums find room in registers, else half after half.
#[target_feature(enable = "neon,dotprod")]
pub fn product<const S: usize, const G: usize>(
    panels: &[PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    const HALF: usize = REGISTERS / 2;
    for (panel, sums) in each_panel(panels, xs, tokens, sums) {
        for (tile, sums) in sums.chunks_mut(TOKENS).enumerate() {
            let xs = Tokens { xs, tokens, first: tile * TOKENS };
            match sums.len() {
                1 => self::tile::<S, G, 1, REGISTERS>(panel, 0, xs, sums),
                2 => self::tile::<S, G, 2, REGISTERS>(panel, 0, xs, sums),
                3 => (0..2).for_each(|half| self::tile::<S, G, 3, HALF>(panel, half, xs, sums)),
                _ => (0..2).for_each(|half| self::tile::<S, G, TOKENS, HALF>(panel, half, xs, sums)),
            }
        }
    }
}

/// Rows `4 V part ...` by `T` tokens.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn tile<const S: usize, const G: usize, const T: usize, const V: usize>(
    panel: &[PanelBlock<S, G>],
    part: usize,
    xs: Tokens,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let bytes = PanelBlock::<S, G>::BYTES;
    let offset = if bytes { 0 } else { PanelBlock::<S, G>::OFFSET };
    let mut totals = [[vdupq_n_f32(0.0); V]; T];
    for (b, block) in panel.iter().enumerate() {
        let xs = xs.of_block::<T>(b);
        let mut dots: Dots<T, V> = std::array::from_fn(|i| [vdupq_n_s32(xs[i].start(offset)); V]);
        let x = [load_activations(xs, 0), load_activations(xs, 1)];
        add_group::<0, T, V>(&mut dots, &load_codes::<S, G, 0, V>(block, part), &x[0]);
        add_group::<0, T, V>(&mut dots, &load_codes::<S, G, 4, V>(block, part), &x[1]);
        add_group::<1, T, V>(&mut dots, &load_codes::<S, G, 1, V>(block, part), &x[0]);
        add_group::<1, T, V>(&mut dots, &load_codes::<S, G, 5, V>(block, part), &x[1]);
        add_group::<2, T, V>(&mut dots, &load_codes::<S, G, 2, V>(block, part), &x[0]);
        add_group::<2, T, V>(&mut dots, &load_codes::<S, G, 6, V>(block, part), &x[1]);
        add_group::<3, T, V>(&mut dots, &load_codes::<S, G, 3, V>(block, part), &x[0]);
        add_group::<3, T, V>(&mut dots, &load_codes::<S, G, 7, V>(block, part), &x[1]);
        multiply_add(&dots, block, part, xs, &mut totals);
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

/// Elements `16 half ...` of each token's block.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(super) fn load_activations<const T: usize>(xs: &[ActivationBlock; T], half: usize) -> [int8x16_t; T] {
    std::array::from_fn(|i| {
        let codes = &xs[i].codes.as_chunks::<16>().0[half];
        // SAFETY: the array holds 16 bytes; the load needs no alignment.
        unsafe { vld1q_s8(codes.as_ptr()) }
    })
}

/// Codes of each of rows `4 V part ...`, elements `4 GROUP ...`: bytes with their sign, others counted from 0.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_codes<const S: usize, const G: usize, const GROUP: usize, const V: usize>(
    block: &PanelBlock<S, G>,
    part: usize,
) -> [int8x16_t; V] {
    let mut codes: [uint8x16_t; V] = load(block.group(GROUP), part);
    if !PanelBlock::<S, G>::BYTES {
        for codes in &mut codes {
            *codes = if GROUP < 4 { vandq_u8(*codes, vdupq_n_u8(0x0F)) } else { vshrq_n_u8::<4>(*codes) };
        }
    }
    if PanelBlock::<S, G>::FIFTH_BITS {
        // Each byte of a row gets the fifth bits of its eight elements, and looks at its own.
        let own = vreinterpretq_u8_u32(vdupq_n_u32(if GROUP.is_multiple_of(2) { 0x0804_0201 } else { 0x8040_2010 }));
        let first_bytes = [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12];
        // SAFETY: the array holds 16 bytes; the load needs no alignment.
        let bytes = vaddq_u8(unsafe { vld1q_u8(first_bytes.as_ptr()) }, vdupq_n_u8((GROUP / 2) as u8));
        let fifth_bits: [uint8x16_t; V] = load(&block.codes[0], part);
        for (codes, fifth_bits) in codes.iter_mut().zip(fifth_bits) {
            let set = vtstq_u8(vqtbl1q_u8(fifth_bits, bytes), own);
            *codes = vorrq_u8(*codes, vandq_u8(set, vdupq_n_u8(16)));
        }
    }
    codes.map(|codes| vreinterpretq_s8_u8(codes))
}

/// Four bytes of each of rows `4 V part ...`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(super) fn load<const V: usize>(group: &[[u8; 4]; PANEL_ROWS], part: usize) -> [uint8x16_t; V] {
    let rows = &group.as_chunks::<LANES>().0[part * V..][..V];
    std::array::from_fn(|i| {
        let group: &[u8; 16] = rows[i].as_flattened().first_chunk().expect("four bytes of four rows");
        // SAFETY: the array holds 16 bytes; the load needs no alignment.
        unsafe { vld1q_u8(group.as_ptr()) }
    })
}

/// A number of f16 of each of rows `4 V part ...`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn widen<const V: usize>(halves: &[u16; PANEL_ROWS], part: usize) -> [float32x4_t; V] {
    let rows = &halves.as_chunks::<LANES>().0[part * V..][..V];
    // SAFETY: each array holds 8 bytes; the load needs no alignment.
    std::array::from_fn(|i| widen_f16(unsafe { vld1_u16(rows[i].as_ptr()) }))
}

/// `totals + dots * (scales * scale)`, and behind it the minima times the sum of a block's activations, for each token.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn multiply_add<const S: usize, const G: usize, const T: usize, const V: usize>(
    dots: &Dots<T, V>,
    block: &PanelBlock<S, G>,
    part: usize,
    xs: &[ActivationBlock; T],
    totals: &mut [[float32x4_t; V]; T],
) {
    let scales: [float32x4_t; V] = widen(&block.scales[0], part);
    let minima: [float32x4_t; V] = widen(&block.scales[S - 1], part);
    for ((totals, dots), x) in totals.iter_mut().zip(dots).zip(xs) {
        for i in 0..V {
            totals[i] = vfmaq_f32(totals[i], vcvtq_f32_s32(dots[i]), vmulq_n_f32(scales[i], x.scale));
            if PanelBlock::<S, G>::MINIMA {
                totals[i] = vfmaq_f32(totals[i], minima[i], vdupq_n_f32(x.sum));
            }
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
