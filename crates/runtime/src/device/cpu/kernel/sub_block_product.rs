//! Products of a packed tile of sixteen rows, of types whose blocks consist of sub-blocks, with quantized activations.
//!
//! The codes of a sub-block are multiplied and summed in integers, exactly, and f32 holds the result exactly. It enters
//! the row's f32 sum by one fused multiply-add. The other factor is `scale of the sub-block * scale of activations`,
//! rounded to f32. Sub-blocks follow one after the other. If they have minima, one more fused multiply-add adds the
//! minimum times the sum of the activations, which is rounded to f32.

use super::kernel;
#[cfg(test)]
use super::pack_panel::mark_zeros;
use super::quantize::ActivationBlock;
use super::sub_block::{Format, High, Scales, WORDS};
#[cfg(test)]
use super::sub_block::{IQ4_NL, IQ4_XS, MXFP4, NVFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, TQ2_0};
#[cfg(test)]
use crate::device::cpu::isa::Instructions;
use crate::device::cpu::panels::{PANEL_ROWS, PanelBlock};
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
    sub_block_product_variants_agree on samples
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

/// One to three tiles of 0 to 3 blocks of all codes with 1 to 18 tokens, the extreme codes among them.
#[cfg(test)]
fn samples_of<const F: usize, const S: usize, const G: usize>(instructions: Instructions, results: &mut Vec<f32>) {
    let mut sizes = vec![(0, 1), (1, 1), (2, 2), (3, 3), (2, 4), (1, 5), (2, 6), (1, 7), (1, 8), (2, 13), (3, 18)];
    sizes.extend([(5, 1), (1, 9), (2, 10), (1, 11), (1, 12)]);
    for ((blocks, tokens), count) in sizes.into_iter().flat_map(|size| [1, 2, 3].map(|count| (size, count))) {
        let mut panels = vec![PanelBlock::<S, G>::ZERO; blocks * count];
        for (b, block) in panels.iter_mut().enumerate() {
            let scale = |i: usize, row: usize| (row as f32 - 2.7) * (0.013 - 0.021 * i as f32) + b as f32 * 1e-3;
            block.scales = std::array::from_fn(|i| std::array::from_fn(|row| f16::from_f32(scale(i, row)).to_bits()));
            for (g, group) in block.codes.iter_mut().enumerate() {
                *group = std::array::from_fn(|row| {
                    std::array::from_fn(|k| (b * 89 + g * 37 + row * 101 + k * 53 + g * g * row) as u8)
                });
            }
        }
        if F == MXFP4 {
            // The smallest exponents, whose scales are subnormal, the largest ones, and NaN.
            let exponents = [0, 1, 2, 100, 127, 128, 160, 240, 254, 255];
            let exponent = |b: usize, row: usize| exponents[if row == 15 { 9 } else { (b + row) % 9 }];
            let blocks = panels.iter_mut().enumerate();
            blocks.for_each(|(b, block)| block.scales[0] = std::array::from_fn(|row| exponent(b, row)));
        }
        for (block, code) in panels.iter_mut().zip([0x00, 0xFF]) {
            block.codes = [[[code; 4]; PANEL_ROWS]; G];
        }
        if F == MXFP4 {
            // Some rows of the first block have the exponent 254, and all of its codes are 0.
            mark_zeros(&mut panels);
        }
        let mut xs = vec![ActivationBlock::default(); blocks * Format::<F>::BLOCKS * tokens];
        for (place, x) in xs.iter_mut().enumerate() {
            let codes: [i8; 32] = std::array::from_fn(|k| match place % 4 {
                0 => [127, -127][k / 3 % 2],
                1 => 127,
                _ => ((place * 41 + k * 29) % 255) as u8 as i8,
            });
            // The largest scales of mxfp4 times these are infinite.
            let scale = if F == MXFP4 && place % 3 == 0 { 8.0 } else { 0.01 };
            *x = ActivationBlock::of_codes(codes.map(|code| code.max(-127)), scale + place as f32 * 1e-3);
        }
        let mut sums = vec![[f32::NAN; PANEL_ROWS]; tokens * count];
        sub_block_product::<F, S, G>(instructions, &panels, &xs, tokens, &mut sums);
        results.extend(sums.into_flattened());
    }
}

/// All formats.
#[cfg(test)]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut results = Vec::new();
    samples_of::<Q2_K, 2, 20>(instructions, &mut results);
    samples_of::<Q3_K, 1, 27>(instructions, &mut results);
    samples_of::<Q4_K, 2, 35>(instructions, &mut results);
    samples_of::<Q5_K, 2, 43>(instructions, &mut results);
    samples_of::<Q6_K, 1, 52>(instructions, &mut results);
    samples_of::<IQ4_NL, 1, 4>(instructions, &mut results);
    samples_of::<IQ4_XS, 2, 33>(instructions, &mut results);
    samples_of::<MXFP4, 1, 4>(instructions, &mut results);
    samples_of::<NVFP4, 2, 8>(instructions, &mut results);
    samples_of::<TQ2_0, 1, 16>(instructions, &mut results);
    results
}
