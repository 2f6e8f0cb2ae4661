//! Products of packed tiles of types with sub-blocks: as in `panel_product.rs`, sub-block after sub-block.
//!
//! `vpmaddubsw` multiplies unsigned by signed bytes and adds neighbors in 16 bits. Sums go to 32 bits before they
//! exceed these:
//!
//! ```text
//!  q2_k, q3_k, q4_k   q * x                          8 * 2 * 15 * 127 = 30,480       once a sub-block
//!  tq2_0              q * x                          8 * 2 * 3 * 127 = 6,096         once a sub-block
//!  mxfp4              |v| * (x with the sign of v)   8 * 2 * 12 * 127 = 24,384       once a sub-block
//!  nvfp4              |v| * (x with the sign of v)   4 * 2 * 12 * 127 = 12,192       once a sub-block
//!  q5_k               q * x                          4 * 2 * 31 * 127 = 31,496       every four words
//!  q6_k               q * x                          2 * 2 * 63 * 127 = 32,004       every two words
//!  iq4_nl, iq4_xs     |v| * (x with the sign of v)   2 * 127 * 127 = 32,258          every word
//! ```

use super::super::panel_product::Tokens;
use super::super::quantize::ActivationBlock;
use super::super::sub_block::{Format, High, Scales, WORDS};
use super::super::sub_block_product::{each_panel, words_in_16_bits};
use super::panel_product::{load, repeat};
use super::{LANES, load_f32, store};
use crate::panel_block::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Tokens that use a register of codes.
const TOKENS: usize = 4;

/// How far ahead weights are asked for: two pages.
const PREFETCH_BYTES: usize = 8192;

/// Of any format.
#[target_feature(enable = "avx2,fma,f16c")]
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

/// `T` tokens. Totals stay in memory from one half of the rows to the other.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
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

/// Asks for one of `steps` parts of the weights that come later.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn ask_for_step<W>(weights: &W, step: usize, steps: usize) {
    let start: *const W = weights;
    let bytes = size_of::<W>() / steps;
    for line in (0..bytes).step_by(64) {
        // Touches nothing: an address of no memory is passed over.
        let address = start.wrapping_byte_add(PREFETCH_BYTES + step * bytes + line);
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
}

/// Adds the products of block `K` of a step and rows `8 half ...` to the totals.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_block<const F: usize, const S: usize, const G: usize, const T: usize, const K: usize>(
    totals: &mut [__m256; T],
    block: &PanelBlock<S, G>,
    half: usize,
    scales: &Scales,
    xs: &[ActivationBlock; T],
    step: usize,
) {
    let place = (step * Format::<F>::STEP + K) * Format::<F>::SUBS;
    let mut dots = starts::<F, T>(xs, 0, 0);
    let mut pairs = [_mm256_setzero_si256(); T];
    add_half::<F, S, G, T, K, 0>(&mut dots, &mut pairs, block, half, xs, step);
    if Format::<F>::SUBS == 2 {
        add_scaled::<F, T>(totals, &dots, scales, half, place, xs, 0);
        dots = starts::<F, T>(xs, 1, 0);
    }
    add_half::<F, S, G, T, K, 1>(&mut dots, &mut pairs, block, half, xs, step);
    let last = Format::<F>::SUBS - 1;
    add_scaled::<F, T>(totals, &dots, scales, half, place + last, xs, last);
}

/// What sums of a sub-block begin with where codes are used with `added` more.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn starts<const F: usize, const T: usize>(
    xs: &[ActivationBlock; T],
    sub: usize,
    added: i32,
) -> [__m256i; T] {
    let mut dots = [_mm256_setzero_si256(); T];
    for i in 0..T {
        dots[i] = _mm256_set1_epi32(Format::<F>::start(&xs[i], sub, added));
    }
    dots
}

/// Adds the products of half `H` of a block's codes, which lie at one place of their bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_half<const F: usize, const S: usize, const G: usize, const T: usize, const K: usize, const H: usize>(
    dots: &mut [__m256i; T],
    pairs: &mut [__m256i; T],
    block: &PanelBlock<S, G>,
    half: usize,
    xs: &[ActivationBlock; T],
    step: usize,
) {
    for i in 0..WORDS / 2 {
        let word = H * WORDS / 2 + i;
        let codes = codes::<F, S, G, K, H>(block, half, step, word);
        add_products::<F, T>(dots, pairs, codes, xs, word);
    }
}

/// Adds the products of a sub-block of rows `8 half ...`, times its scale, and its minimum, times the sum of the
/// activations, to the totals.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn add_scaled<const F: usize, const T: usize>(
    totals: &mut [__m256; T],
    dots: &[__m256i; T],
    scales: &Scales,
    half: usize,
    place: usize,
    xs: &[ActivationBlock; T],
    sub: usize,
) {
    let minima = load_f32(&scales.minima[place].as_chunks().0[half]);
    let scales = load_f32(&scales.scales[place].as_chunks().0[half]);
    for i in 0..T {
        let scale = _mm256_mul_ps(scales, _mm256_set1_ps(xs[i].scale));
        totals[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[i]), scale, totals[i]);
        if Format::<F>::MINIMA {
            totals[i] = _mm256_fmadd_ps(minima, _mm256_set1_ps(Format::<F>::sum(&xs[i], sub)), totals[i]);
        }
    }
}

/// Adds the products of four codes of each row with those of each token.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_products<const F: usize, const T: usize>(
    dots: &mut [__m256i; T],
    pairs: &mut [__m256i; T],
    codes: __m256i,
    xs: &[ActivationBlock; T],
    word: usize,
) {
    let signed = Format::<F>::IN_CODEBOOK;
    let magnitudes = if signed { _mm256_abs_epi8(codes) } else { codes };
    let is_full = (word + 1).is_multiple_of(words_in_16_bits::<F>());
    for i in 0..T {
        let x = repeat(&xs[i], word);
        let x = if signed { _mm256_sign_epi8(x, codes) } else { x };
        pairs[i] = _mm256_add_epi16(pairs[i], _mm256_maddubs_epi16(magnitudes, x));
        if is_full {
            dots[i] = _mm256_add_epi32(dots[i], _mm256_madd_epi16(pairs[i], _mm256_set1_epi16(1)));
            pairs[i] = _mm256_setzero_si256();
        }
    }
}

/// Codes of word `word`, one of half `H` of all words, of rows `8 half ...`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn codes<const F: usize, const S: usize, const G: usize, const K: usize, const H: usize>(
    block: &PanelBlock<S, G>,
    half: usize,
    step: usize,
    word: usize,
) -> __m256i {
    let shift = Format::<F>::shift::<K, H>(word);
    let bits = shifted_right(load_group(block, half, Format::<F>::low(step, K, word).group), shift);
    let bits = _mm256_and_si256(bits, _mm256_set1_epi8(Format::<F>::LOW_MASK.cast_signed()));
    match Format::<F>::high(step, K, word) {
        High::None if Format::<F>::IN_CODEBOOK => _mm256_shuffle_epi8(codebook::<F>(), bits),
        High::None => bits,
        High::Bit(place, worth) => {
            let own = _mm256_set1_epi8(1 << place.shift);
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(load_group(block, half, place.group), own), own);
            _mm256_or_si256(bits, _mm256_and_si256(set, _mm256_set1_epi8(worth.cast_signed())))
        }
        High::Two(place) => {
            let high = load_group(block, half, place.group);
            // To bits 4 and 5 of each byte.
            let high = if K < 2 {
                if K == 0 { _mm256_slli_epi16::<4>(high) } else { _mm256_slli_epi16::<2>(high) }
            } else {
                shifted_right(high, 2 * K - 4)
            };
            _mm256_or_si256(bits, _mm256_and_si256(high, _mm256_set1_epi8(0x30)))
        }
    }
}

/// Four bytes of each of rows `8 half ...`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_group<const S: usize, const G: usize>(block: &PanelBlock<S, G>, half: usize, group: usize) -> __m256i {
    load(&block.codes[group].as_chunks().0[half])
}

/// Words shifted; bits of a byte go to the next.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn shifted_right(words: __m256i, shift: usize) -> __m256i {
    match shift {
        0 => words,
        2 => _mm256_srli_epi16::<2>(words),
        4 => _mm256_srli_epi16::<4>(words),
        _ => _mm256_srli_epi16::<6>(words),
    }
}

/// The codebook in each half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn codebook<const F: usize>() -> __m256i {
    let numbers = Format::<F>::CODEBOOK;
    // SAFETY: the array holds 16 bytes; the load needs no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(numbers.as_ptr().cast()) })
}

/// Sixteen f16, widened.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn widened(halves: &[u16; PANEL_ROWS]) -> [f32; PANEL_ROWS] {
    let mut numbers = [0.0; PANEL_ROWS];
    for (numbers, halves) in numbers.as_chunks_mut::<LANES>().0.iter_mut().zip(halves.as_chunks::<LANES>().0) {
        // SAFETY: the array holds 16 bytes; the load needs no alignment.
        *numbers = store(_mm256_cvtph_ps(unsafe { _mm_loadu_si128(halves.as_ptr().cast()) }));
    }
    numbers
}
