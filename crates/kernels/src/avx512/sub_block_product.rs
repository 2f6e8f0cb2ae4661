//! Products of packed tiles of types with sub-blocks: as in `panel_product.rs`, sub-block after sub-block.
//!
//! `vpdpbusd` multiplies unsigned by signed bytes, so codes are used as they are stored, and numbers of the codebook
//! with 128 added. What that adds to the sums is subtracted at their start. Scales are widened once for each block.

use super::super::panel_product::Tokens;
use super::super::quantize::ActivationBlock;
use super::super::sub_block::{Format, High, Scales, WORDS};
use super::super::sub_block_product::each_panel;
use super::panel_product::{TOKENS, add_products, load, of_tokens, store_all, widen};
use super::{PREFETCH_BYTES, ask_for_line, load_f32, prefetch_streamed_bytes, store};
use crate::panel_block::{PANEL_ROWS, PanelBlock};
use crate::prefetch::STREAMED_TOKENS;
use std::arch::x86_64::*;

/// What is added to numbers of the codebook.
const CODEBOOK_OFFSET: i32 = 128;

/// Of any format.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn product<const F: usize, const S: usize, const G: usize>(
    panels: &[PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let mut each = each_panel::<F, S, G>(panels, xs, tokens, sums);
    let passes = tokens.div_ceil(TOKENS).max(1);
    let step = tokens.div_ceil(passes).max(1);
    while let Some((panel, sums)) = each.next() {
        let second = if tokens > STREAMED_TOKENS { each.next() } else { None };
        let mut ends = (sums, second);
        for first in (0..tokens).step_by(step) {
            let xs = Tokens { xs, tokens, first };
            let count = step.min(tokens - first);
            match &mut ends {
                (sums, None) => {
                    let sums = [&mut sums[first..]];
                    of_tokens!(count, tile::<F, S, G, 1>([panel], xs, sums));
                }
                (sums, Some((second, others))) => {
                    let sums = [&mut sums[first..], &mut others[first..]];
                    of_tokens!(count, tile::<F, S, G, 2>([panel, *second], xs, sums));
                }
            }
        }
    }
}

/// `T` tokens by `P` tiles.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn tile<const F: usize, const S: usize, const G: usize, const P: usize, const T: usize>(
    panels: [&[PanelBlock<S, G>]; P],
    xs: Tokens,
    sums: [&mut [[f32; PANEL_ROWS]]; P],
) {
    let mut totals = [[_mm512_setzero_ps(); P]; T];
    let mut scales = [Scales::ZERO; P];
    for (b, first) in panels[0].iter().enumerate() {
        let mut blocks = [first; P];
        for p in 0..P {
            blocks[p] = &panels[p][b];
            let d = store(widen(&blocks[p].scales[0]));
            let dmin = store(widen(&blocks[p].scales[S - 1]));
            scales[p].read::<F, S, G>(blocks[p], &d, &dmin);
        }
        let steps = Format::<F>::BLOCKS / Format::<F>::STEP;
        for step in 0..steps {
            for block in blocks {
                ask_for_step::<_, T>(block, step, steps);
            }
            let first = b * Format::<F>::BLOCKS + step * Format::<F>::STEP;
            add_block::<F, S, G, P, T, 0>(&mut totals, blocks, &scales, xs.of_block(first), step);
            if Format::<F>::STEP > 1 {
                add_block::<F, S, G, P, T, 1>(&mut totals, blocks, &scales, xs.of_block(first + 1), step);
            }
            if Format::<F>::STEP > 2 {
                add_block::<F, S, G, P, T, 2>(&mut totals, blocks, &scales, xs.of_block(first + 2), step);
                add_block::<F, S, G, P, T, 3>(&mut totals, blocks, &scales, xs.of_block(first + 3), step);
            }
        }
    }
    store_all(&totals, sums);
}

/// Asks for one of `steps` parts of the weights that come later: those of few tokens are used once, others by the next
/// tile too.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn ask_for_step<W, const T: usize>(weights: &W, step: usize, steps: usize) {
    let start: *const W = weights;
    let bytes = size_of::<W>() / steps;
    let start = start.wrapping_byte_add(step * bytes);
    if T <= STREAMED_TOKENS {
        return prefetch_streamed_bytes(start, bytes);
    }
    for line in (0..bytes).step_by(64) {
        ask_for_line(start.wrapping_byte_add(PREFETCH_BYTES + line));
    }
}

/// Adds the products of block `K` of a step to the totals.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_block<const F: usize, const S: usize, const G: usize, const P: usize, const T: usize, const K: usize>(
    totals: &mut [[__m512; P]; T],
    blocks: [&PanelBlock<S, G>; P],
    scales: &[Scales; P],
    xs: &[ActivationBlock; T],
    step: usize,
) {
    let place = (step * Format::<F>::STEP + K) * Format::<F>::SUBS;
    let mut dots = starts::<F, P, T>(xs, 0);
    add_half::<F, S, G, P, T, K, 0>(&mut dots, blocks, xs, step);
    if Format::<F>::SUBS == 2 {
        add_scaled::<F, P, T>(totals, &dots, scales, place, xs, 0);
        dots = starts::<F, P, T>(xs, 1);
    }
    add_half::<F, S, G, P, T, K, 1>(&mut dots, blocks, xs, step);
    let last = Format::<F>::SUBS - 1;
    add_scaled::<F, P, T>(totals, &dots, scales, place + last, xs, last);
}

/// What sums of a sub-block begin with.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn starts<const F: usize, const P: usize, const T: usize>(xs: &[ActivationBlock; T], sub: usize) -> [[__m512i; P]; T] {
    let mut dots = [[_mm512_setzero_si512(); P]; T];
    for i in 0..T {
        let x = &xs[i];
        let added = if Format::<F>::IN_CODEBOOK { CODEBOOK_OFFSET } else { 0 };
        dots[i] = [_mm512_set1_epi32(Format::<F>::start(x, sub, added)); P];
    }
    dots
}

/// Adds the products of half `H` of a block's codes, which lie at one place of their bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_half<
    const F: usize,
    const S: usize,
    const G: usize,
    const P: usize,
    const T: usize,
    const K: usize,
    const H: usize,
>(
    dots: &mut [[__m512i; P]; T],
    blocks: [&PanelBlock<S, G>; P],
    xs: &[ActivationBlock; T],
    step: usize,
) {
    for word in H * WORDS / 2..(H + 1) * WORDS / 2 {
        add_products(dots, codes::<F, S, G, P, K, H>(blocks, step, word), xs, word);
    }
}

/// Adds the products of a sub-block, times its scale, and its minimum, times the sum of the activations, to the totals.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_scaled<const F: usize, const P: usize, const T: usize>(
    totals: &mut [[__m512; P]; T],
    dots: &[[__m512i; P]; T],
    scales: &[Scales; P],
    place: usize,
    xs: &[ActivationBlock; T],
    sub: usize,
) {
    for i in 0..T {
        let (x, sum) = (_mm512_set1_ps(xs[i].scale), _mm512_set1_ps(Format::<F>::sum(&xs[i], sub)));
        for p in 0..P {
            let scale = _mm512_mul_ps(load_f32(&scales[p].scales[place]), x);
            totals[i][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i][p]), scale, totals[i][p]);
            if Format::<F>::MINIMA {
                totals[i][p] = _mm512_fmadd_ps(load_f32(&scales[p].minima[place]), sum, totals[i][p]);
            }
        }
    }
}

/// Codes of word `word`, one of half `H` of all words, as unsigned bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn codes<const F: usize, const S: usize, const G: usize, const P: usize, const K: usize, const H: usize>(
    blocks: [&PanelBlock<S, G>; P],
    step: usize,
    word: usize,
) -> [__m512i; P] {
    let low = Format::<F>::low(step, K, word);
    let shift = Format::<F>::shift::<K, H>(word);
    let mut codes = [_mm512_setzero_si512(); P];
    for p in 0..P {
        let bits = shifted_right(load(&blocks[p].codes[low.group]), shift);
        let bits = _mm512_and_si512(bits, _mm512_set1_epi8(Format::<F>::LOW_MASK.cast_signed()));
        codes[p] = match Format::<F>::high(step, K, word) {
            High::None if Format::<F>::IN_CODEBOOK => _mm512_shuffle_epi8(codebook::<F>(), bits),
            High::None => bits,
            High::Bit(place, worth) => {
                let set =
                    _mm512_test_epi8_mask(load(&blocks[p].codes[place.group]), _mm512_set1_epi8(1 << place.shift));
                _mm512_mask_add_epi8(bits, set, bits, _mm512_set1_epi8(worth.cast_signed()))
            }
            High::Two(place) => {
                let high = load(&blocks[p].codes[place.group]);
                // To bits 4 and 5 of each byte.
                let high = if K < 2 {
                    if K == 0 { _mm512_slli_epi16::<4>(high) } else { _mm512_slli_epi16::<2>(high) }
                } else {
                    shifted_right(high, 2 * K - 4)
                };
                // bits | (high & mask)
                _mm512_ternarylogic_epi32::<0xF8>(bits, high, _mm512_set1_epi8(0x30))
            }
        };
    }
    codes
}

/// Words shifted; bits of a byte go to the next.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn shifted_right(words: __m512i, shift: usize) -> __m512i {
    match shift {
        0 => words,
        2 => _mm512_srli_epi16::<2>(words),
        4 => _mm512_srli_epi16::<4>(words),
        _ => _mm512_srli_epi16::<6>(words),
    }
}

/// The codebook in each quarter, as unsigned bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn codebook<const F: usize>() -> __m512i {
    // SAFETY: the array holds 16 bytes; the load needs no alignment.
    let signed = unsafe { _mm_loadu_si128(Format::<F>::CODEBOOK.as_ptr().cast()) };
    // Adds 128.
    _mm512_broadcast_i32x4(_mm_xor_si128(signed, _mm_set1_epi8(i8::MIN)))
}
