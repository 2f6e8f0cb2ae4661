//! Products of packed tiles of types with sub-blocks: as in `avx2/sub_block_product.rs`, in registers of four rows.

use super::super::panel_product::Tokens;
use super::super::quantize::ActivationBlock;
use super::super::sub_block::{Format, High, Scales, WORDS};
use super::super::sub_block_product::{each_panel, words_in_16_bits};
use super::panel_product::{REGISTERS, load, repeat, widen};
use super::{LANES, load_f32, multiply_add, store};
use crate::panel_block::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Tokens that use a register of codes.
const TOKENS: usize = 4;

/// Of any format.
#[target_feature(enable = "sse4.1,ssse3")]
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
#[target_feature(enable = "sse4.1,ssse3")]
fn tile<const F: usize, const S: usize, const G: usize, const T: usize>(
    panel: &[PanelBlock<S, G>],
    xs: Tokens,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let mut totals = [[_mm_setzero_ps(); T]; REGISTERS];
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
#[target_feature(enable = "sse4.1,ssse3")]
fn add_block<const F: usize, const S: usize, const G: usize, const T: usize, const K: usize>(
    totals: &mut [__m128; T],
    block: &PanelBlock<S, G>,
    register: usize,
    scales: &Scales,
    xs: &[ActivationBlock; T],
    step: usize,
) {
    let place = (step * Format::<F>::STEP + K) * Format::<F>::SUBS;
    let mut dots = starts::<F, T>(xs, 0);
    let mut pairs = [_mm_setzero_si128(); T];
    add_half::<F, S, G, T, K, 0>(&mut dots, &mut pairs, block, register, xs, step);
    if Format::<F>::SUBS == 2 {
        add_scaled::<F, T>(totals, &dots, scales, register, place, xs, 0);
        dots = starts::<F, T>(xs, 1);
    }
    add_half::<F, S, G, T, K, 1>(&mut dots, &mut pairs, block, register, xs, step);
    let last = Format::<F>::SUBS - 1;
    add_scaled::<F, T>(totals, &dots, scales, register, place + last, xs, last);
}

/// What sums of a sub-block begin with.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn starts<const F: usize, const T: usize>(xs: &[ActivationBlock; T], sub: usize) -> [__m128i; T] {
    let mut dots = [_mm_setzero_si128(); T];
    for i in 0..T {
        dots[i] = _mm_set1_epi32(Format::<F>::start(&xs[i], sub, 0));
    }
    dots
}

/// Adds the products of half `H` of a block's codes, which lie at one place of their bytes.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn add_half<const F: usize, const S: usize, const G: usize, const T: usize, const K: usize, const H: usize>(
    dots: &mut [__m128i; T],
    pairs: &mut [__m128i; T],
    block: &PanelBlock<S, G>,
    register: usize,
    xs: &[ActivationBlock; T],
    step: usize,
) {
    let signed = Format::<F>::IN_CODEBOOK;
    let ones = _mm_set1_epi16(1);
    for i in 0..WORDS / 2 {
        let word = H * WORDS / 2 + i;
        let codes = codes::<F, S, G, K, H>(block, register, step, word);
        let magnitudes = if signed { _mm_abs_epi8(codes) } else { codes };
        let is_full = (word + 1).is_multiple_of(words_in_16_bits::<F>());
        for i in 0..T {
            let x = repeat(&xs[i], word);
            let x = if signed { _mm_sign_epi8(x, codes) } else { x };
            pairs[i] = _mm_add_epi16(pairs[i], _mm_maddubs_epi16(magnitudes, x));
            if is_full {
                dots[i] = _mm_add_epi32(dots[i], _mm_madd_epi16(pairs[i], ones));
                pairs[i] = _mm_setzero_si128();
            }
        }
    }
}

/// Adds the products of a sub-block of rows `4 register ...`, times its scale, and its minimum, times the sum of the
/// activations, to the totals.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn add_scaled<const F: usize, const T: usize>(
    totals: &mut [__m128; T],
    dots: &[__m128i; T],
    scales: &Scales,
    register: usize,
    place: usize,
    xs: &[ActivationBlock; T],
    sub: usize,
) {
    let minima = load_f32(&scales.minima[place].as_chunks().0[register]);
    let scales = load_f32(&scales.scales[place].as_chunks().0[register]);
    for i in 0..T {
        let scale = _mm_mul_ps(scales, _mm_set1_ps(xs[i].scale));
        totals[i] = multiply_add(_mm_cvtepi32_ps(dots[i]), scale, totals[i]);
        if Format::<F>::MINIMA {
            totals[i] = multiply_add(minima, _mm_set1_ps(Format::<F>::sum(&xs[i], sub)), totals[i]);
        }
    }
}

/// Codes of word `word`, one of half `H` of all words, of rows `4 register ...`.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn codes<const F: usize, const S: usize, const G: usize, const K: usize, const H: usize>(
    block: &PanelBlock<S, G>,
    register: usize,
    step: usize,
    word: usize,
) -> __m128i {
    let shift = Format::<F>::shift::<K, H>(word);
    let bits = shifted_right(load(&block.codes[Format::<F>::low(step, K, word).group], register), shift);
    let bits = _mm_and_si128(bits, _mm_set1_epi8(Format::<F>::LOW_MASK.cast_signed()));
    match Format::<F>::high(step, K, word) {
        High::None if Format::<F>::IN_CODEBOOK => {
            // SAFETY: the array holds 16 bytes; the load needs no alignment.
            _mm_shuffle_epi8(unsafe { _mm_loadu_si128(Format::<F>::CODEBOOK.as_ptr().cast()) }, bits)
        }
        High::None => bits,
        High::Bit(place, worth) => {
            let own = _mm_set1_epi8(1 << place.shift);
            let set = _mm_cmpeq_epi8(_mm_and_si128(load(&block.codes[place.group], register), own), own);
            _mm_or_si128(bits, _mm_and_si128(set, _mm_set1_epi8(worth.cast_signed())))
        }
        High::Two(place) => {
            let high = load(&block.codes[place.group], register);
            // To bits 4 and 5 of each byte.
            let high = match K {
                0 => _mm_slli_epi16::<4>(high),
                1 => _mm_slli_epi16::<2>(high),
                _ => shifted_right(high, 2 * K - 4),
            };
            _mm_or_si128(bits, _mm_and_si128(high, _mm_set1_epi8(0x30)))
        }
    }
}

/// Words shifted; bits of a byte go to the next.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn shifted_right(words: __m128i, shift: usize) -> __m128i {
    match shift {
        0 => words,
        2 => _mm_srli_epi16::<2>(words),
        4 => _mm_srli_epi16::<4>(words),
        _ => _mm_srli_epi16::<6>(words),
    }
}

/// Sixteen f16, widened.
#[inline]
#[target_feature(enable = "sse4.1,ssse3")]
fn widened(halves: &[u16; PANEL_ROWS]) -> [f32; PANEL_ROWS] {
    let mut numbers = [0.0; PANEL_ROWS];
    for (register, numbers) in numbers.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        *numbers = store(widen(halves, register));
    }
    numbers
}
