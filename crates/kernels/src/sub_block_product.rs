//! Products of a packed tile of sixteen rows, of types whose blocks consist of sub-blocks, with quantized activations.
//!
//! The codes of a sub-block are multiplied and summed in integers, exactly, and f32 holds the result exactly. It enters
//! the row's f32 sum by one fused multiply-add. The other factor is `scale of the sub-block * scale of activations`,
//! rounded to f32. Sub-blocks follow one after the other. If they have minima, one more fused multiply-add adds the
//! minimum times the sum of the activations, which is rounded to f32.

use super::kernel;
use super::panel_block::{PANEL_ROWS, PanelBlock};
use super::quantize::ActivationBlock;
use super::sub_block::{Format, High, Scales, WORDS};
#[cfg(feature = "samples")]
use super::{Instructions, PackedFormat};
use half::f16;

kernel! {
    /// `sums[t + tokens * p][r] = row r of tile p . x_t`, for consecutive tiles of one length in format `F` and up to
    /// [`TILE`](super::TILE) tokens. Activations of tokens are side by side: block `b` of token `t` is
    /// `xs[b * tokens + t]`.
    fn sub_block_product [const F: usize, const S: usize, const G: usize] (
        panels: &[PanelBlock<S, G>],
        xs: &[ActivationBlock],
        tokens: usize,
        sums: &mut [[f32; PANEL_ROWS]],
    ) {
        avx512 => super::avx512::sub_block_product::product::<F, S, G>,
        avx_vnni => super::avx_vnni::sub_block_product::product::<F, S, G>,
        avx2 => super::avx2::sub_block_product::product::<F, S, G>,
        sse41 => super::sse41::sub_block_product::product::<F, S, G>,
        neon => super::neon::sub_block_product::product::<F, S, G>,
        scalar => product::<F, S, G>,
    }
    sub_block_product_samples on samples
}

fn product<const F: usize, const S: usize, const G: usize>(
    panels: &[PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let mut scales = Scales::ZERO;
    for (panel, sums) in each_panel::<F, S, G>(panels, xs, tokens, sums) {
        sums.fill([0.0; PANEL_ROWS]);
        for (block, xs) in panel.iter().zip(xs.chunks_exact(tokens * Format::<F>::BLOCKS)) {
            let [d, dmin] = [0, S - 1].map(|i| block.scales[i].map(|bits| f16::from_bits(bits).to_f32()));
            scales.read::<F, S, G>(block, &d, &dmin);
            for (b, xs) in xs.chunks_exact(tokens).enumerate() {
                for sub in 0..Format::<F>::SUBS {
                    let codes = codes::<F, S, G>(block, b, sub);
                    let (scales, minima) = (&scales.scales, &scales.minima);
                    let place = b * Format::<F>::SUBS + sub;
                    for (x, sums) in xs.iter().zip(sums.iter_mut()) {
                        add_sub_block::<F>(&codes, sub, x, &scales[place], &minima[place], sums);
                    }
                }
            }
        }
    }
}

/// Adds the products of sub-block `sub` of 32 weights of all rows to their sums.
#[inline(always)]
fn add_sub_block<const F: usize>(
    codes: &[[[i32; PANEL_ROWS]; 4]; WORDS],
    sub: usize,
    x: &ActivationBlock,
    scales: &[f32; PANEL_ROWS],
    minima: &[f32; PANEL_ROWS],
    sums: &mut [f32; PANEL_ROWS],
) {
    let mut dots = [0; PANEL_ROWS];
    let words = words_of::<F>(sub);
    for (codes, x) in codes[words.clone()].iter().zip(&x.codes.as_chunks::<4>().0[words]) {
        for (codes, x) in codes.iter().zip(x) {
            for row in 0..PANEL_ROWS {
                dots[row] += codes[row] * i32::from(*x);
            }
        }
    }
    let sum = Format::<F>::sum(x, sub);
    for row in 0..PANEL_ROWS {
        sums[row] = (dots[row] as f32).mul_add(scales[row] * x.scale, sums[row]);
        if Format::<F>::MINIMA {
            sums[row] = minima[row].mul_add(sum, sums[row]);
        }
    }
}

/// The words of sub-block `sub` of 32 weights.
#[inline(always)]
fn words_of<const F: usize>(sub: usize) -> std::ops::Range<usize> {
    let len = WORDS / Format::<F>::SUBS;
    sub * len..(sub + 1) * len
}

/// What the scales of sub-block `sub` of block `b` of 32 weights are multiplied by: word by word, byte by byte, of all
/// rows.
#[inline(always)]
fn codes<const F: usize, const S: usize, const G: usize>(
    block: &PanelBlock<S, G>,
    b: usize,
    sub: usize,
) -> [[[i32; PANEL_ROWS]; 4]; WORDS] {
    const BYTES: u32 = 0x0101_0101;
    let (step, k) = (b / Format::<F>::STEP, b % Format::<F>::STEP);
    let words = |group: usize| block.codes[group].map(u32::from_le_bytes);
    let mut codes = [[[0; PANEL_ROWS]; 4]; WORDS];
    for word in words_of::<F>(sub) {
        let low = Format::<F>::low(step, k, word);
        let mut bits = words(low.group).map(|bits| bits >> low.shift & (BYTES * u32::from(Format::<F>::LOW_MASK)));
        let (high, shift, mask, worth) = match Format::<F>::high(step, k, word) {
            High::None => ([0; PANEL_ROWS], 0, 0, 0),
            High::Bit(place, worth) => (words(place.group), place.shift, BYTES, u32::from(worth)),
            High::Two(place) => (words(place.group), place.shift, 3 * BYTES, 16),
        };
        for (bits, high) in bits.iter_mut().zip(high) {
            *bits |= (high >> shift & mask) * worth;
        }
        for (byte, codes) in codes[word].iter_mut().enumerate() {
            for (code, bits) in codes.iter_mut().zip(&bits) {
                let bits = bits >> (8 * byte) & 0xFF;
                *code = if Format::<F>::IN_CODEBOOK {
                    i32::from(Format::<F>::CODEBOOK[bits as usize & 15])
                } else {
                    bits as i32 - Format::<F>::OFFSET
                };
            }
        }
    }
    codes
}

/// Words whose sums of products with codes fit 16 bits if pairs of bytes are added there: each sum is at most 2 * 127
/// times the largest code.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "other instructions add in 32 bits"))]
pub(super) const fn words_in_16_bits<const F: usize>() -> usize {
    match Format::<F>::CODE_MAX {
        127 => 1,
        63 => 2,
        31 => 4,
        _ => WORDS / Format::<F>::SUBS,
    }
}

/// The tiles one by one, each with its tokens' sums. Panics if the numbers of activations and sums do not match the
/// numbers of tiles and tokens.
pub(super) fn each_panel<'a, const F: usize, const S: usize, const G: usize>(
    panels: &'a [PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &'a mut [[f32; PANEL_ROWS]],
) -> impl Iterator<Item = (&'a [PanelBlock<S, G>], &'a mut [[f32; PANEL_ROWS]])> {
    const { assert!(Format::<F>::fits(S, G), "tiles hold the format") };
    let tokens = tokens.max(1);
    let (blocks, count) = (xs.len() / tokens / Format::<F>::BLOCKS, sums.len() / tokens);
    let all = blocks * Format::<F>::BLOCKS * tokens;
    assert!(xs.len() == all && sums.len() == count * tokens, "activations and sums for each token");
    assert_eq!(panels.len(), blocks * count, "whole tiles, and sums for each");
    sums.chunks_mut(tokens).enumerate().map(move |(p, sums)| (&panels[p * blocks..][..blocks], sums))
}

/// All formats with sub-blocks.
#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    super::panel_product::samples_of(PackedFormat::OF_SUB_BLOCKS, instructions)
}
