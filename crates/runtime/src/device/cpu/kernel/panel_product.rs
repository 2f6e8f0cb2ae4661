//! Products of a panel of sixteen quantized rows with quantized activations.
//!
//! A block's codes are multiplied and summed in integers, exactly; the result, which f32 holds exactly too, enters the
//! row's f32 sum by one fused multiply-add with `d of the row * d of the activations`, rounded to f32, block after
//! block. Where a block has a minimum, one more adds it times the sum of the block's activations, rounded to f32.

use super::kernel;
use super::quantize::ActivationBlock;
#[cfg(test)]
use crate::device::cpu::isa::Instructions;
use crate::device::cpu::panels::{BLOCK_LEN, PANEL_ROWS, PanelBlock};
use half::f16;

/// Most tokens that go through a panel at once.
pub const TILE: usize = 18;

kernel! {
    /// `sums[t + tokens * p][r] = row r of panel p . x_t`, for panels of one length behind each other and up to
    /// [`TILE`] tokens, whose activations lie side by side: block `b` of token `t` is `xs[b * tokens + t]`.
    fn panel_product [const S: usize, const G: usize] (
        panels: &[PanelBlock<S, G>],
        xs: &[ActivationBlock],
        tokens: usize,
        sums: &mut [[f32; PANEL_ROWS]],
    ) {
        avx512 => super::avx512::panel_product::product,
        avx_vnni => super::avx_vnni::panel_product::product,
        avx2 => super::avx2::panel_product::product,
        sse41 => super::sse41::panel_product::product,
        neon => super::neon::panel_product::product,
        scalar => product,
    }
    panel_product_variants_agree on samples
}

fn product<const S: usize, const G: usize>(
    panels: &[PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    for (panel, sums) in each_panel(panels, xs, tokens, sums) {
        sums.fill([0.0; PANEL_ROWS]);
        for (block, xs) in panel.iter().zip(xs.chunks_exact(tokens)) {
            for row in 0..PANEL_ROWS {
                let codes = codes(block, row);
                let [scale, minimum] = [0, S - 1].map(|i| f16::from_bits(block.scales[i][row]).to_f32());
                for (x, sums) in xs.iter().zip(sums.iter_mut()) {
                    let dot: i32 = codes.iter().zip(x.codes).map(|(w, x)| w * i32::from(x)).sum();
                    sums[row] = (dot as f32).mul_add(scale * x.scale, sums[row]);
                    if PanelBlock::<S, G>::MINIMA {
                        sums[row] = minimum.mul_add(x.sum, sums[row]);
                    }
                }
            }
        }
    }
}

/// What the scales of a row's block are multiplied by.
fn codes<const S: usize, const G: usize>(block: &PanelBlock<S, G>, row: usize) -> [i32; BLOCK_LEN] {
    std::array::from_fn(|k| {
        let byte = block.group(k / 4)[row][k % 4];
        if PanelBlock::<S, G>::BYTES {
            return i32::from(byte as i8);
        }
        let nibble = if k < 16 { byte & 15 } else { byte >> 4 };
        let fifth = if PanelBlock::<S, G>::FIFTH_BITS { block.codes[0][row][k / 8] >> (k % 8) & 1 } else { 0 };
        i32::from(nibble | fifth << 4) - PanelBlock::<S, G>::OFFSET
    })
}

/// The panels one by one, each with its tokens' sums. Panics where activations or sums are not as many as panels and
/// tokens want.
pub(super) fn each_panel<'a, const S: usize, const G: usize>(
    panels: &'a [PanelBlock<S, G>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &'a mut [[f32; PANEL_ROWS]],
) -> impl Iterator<Item = (&'a [PanelBlock<S, G>], &'a mut [[f32; PANEL_ROWS]])> {
    let tokens = tokens.max(1);
    let (blocks, count) = (xs.len() / tokens, sums.len() / tokens);
    assert!(xs.len() == blocks * tokens && sums.len() == count * tokens, "activations and sums for each token");
    assert_eq!(panels.len(), blocks * count, "whole panels, and sums for each");
    sums.chunks_mut(tokens).enumerate().map(move |(p, sums)| (&panels[p * blocks..][..blocks], sums))
}

/// Activations of tokens from `first` on, of all that lie side by side.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'x> {
    /// Those of all tokens, block after block.
    pub xs: &'x [ActivationBlock],
    /// How many tokens there are.
    pub tokens: usize,
    /// The first token that is wanted.
    pub first: usize,
}

impl<'x> Tokens<'x> {
    /// Those of one block and `T` tokens.
    #[inline(always)]
    pub fn of_block<const T: usize>(self, block: usize) -> &'x [ActivationBlock; T] {
        let xs = self.xs[block * self.tokens + self.first..].first_chunk();
        xs.expect("each block has the activations of all tokens")
    }
}

/// One to three panels of 0 to 33 blocks of all codes with 1 to 18 tokens, the extreme codes among them.
#[cfg(test)]
fn samples_of<const S: usize, const G: usize>(instructions: Instructions, results: &mut Vec<f32>) {
    let sizes = [
        (0, 1),
        (1, 1),
        (2, 3),
        (3, 4),
        (33, 5),
        (8, 12),
        (3, 6),
        (4, 7),
        (2, 8),
        (1, 9),
        (2, 10),
        (3, 11),
        (5, 2),
        (2, 13),
        (3, 16),
        (2, 18),
    ];
    for ((blocks, tokens), count) in sizes.into_iter().flat_map(|size| [1, 2, 3].map(|count| (size, count))) {
        let mut panels = vec![PanelBlock::<S, G>::ZERO; blocks * count];
        for (b, block) in panels.iter_mut().enumerate() {
            let scale = |i: usize, row: usize| (row as f32 - 2.7) * (0.013 - 0.021 * i as f32) + b as f32 * 1e-3;
            block.scales = std::array::from_fn(|i| std::array::from_fn(|row| f16::from_f32(scale(i, row)).to_bits()));
            for (g, group) in block.codes.iter_mut().enumerate() {
                *group =
                    std::array::from_fn(|row| std::array::from_fn(|k| (b * 89 + g * 37 + row * 101 + k * 53) as u8));
            }
        }
        for (block, code) in panels.iter_mut().zip([0x80, 0xFF]) {
            block.codes = [[[code; 4]; PANEL_ROWS]; G];
        }
        let mut xs = vec![ActivationBlock::default(); blocks * tokens];
        for (place, x) in xs.iter_mut().enumerate() {
            x.codes = std::array::from_fn(|k| match place % 4 {
                0 => [127, -127][k / 3 % 2],
                1 => 127,
                _ => ((place * 41 + k * 29) % 255) as u8 as i8,
            });
            *x = ActivationBlock::of_codes(x.codes.map(|code| code.max(-127)), 0.01 + place as f32 * 1e-3);
        }
        let mut sums = vec![[f32::NAN; PANEL_ROWS]; tokens * count];
        panel_product(instructions, &panels, &xs, tokens, &mut sums);
        results.extend(sums.into_flattened());
    }
}

/// All formats.
#[cfg(test)]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut results = Vec::new();
    samples_of::<1, 4>(instructions, &mut results);
    samples_of::<2, 4>(instructions, &mut results);
    samples_of::<1, 5>(instructions, &mut results);
    samples_of::<2, 5>(instructions, &mut results);
    samples_of::<1, 8>(instructions, &mut results);
    samples_of::<2, 8>(instructions, &mut results);
    results
}
