//! Products of a panel of sixteen quantized rows with quantized activations.
//!
//! A block's codes are multiplied and summed in integers, exactly; the result, which f32 holds exactly too, enters the row's f32 sum by one
//! fused multiply-add with `d of the row * d of the activations`, rounded to f32, block after block.

use super::kernel;
use super::quantize::ActivationBlock;
#[cfg(test)]
use crate::device::cpu::isa::Instructions;
use crate::device::cpu::panels::{BLOCK_LEN, PANEL_ROWS, PanelBlock};
use half::f16;

/// Most tokens that go through a panel at once.
pub const TILE: usize = 18;

kernel! {
    /// `sums[t + tokens * p][r] = row r of panel p . x_t` of q8_0, for panels of one length behind each other and up to [`TILE`] tokens, whose
    /// activations lie side by side: block `b` of token `t` is `xs[b * tokens + t]`.
    fn panel_product_q8_0(
        panels: &[PanelBlock<8>],
        xs: &[ActivationBlock],
        tokens: usize,
        sums: &mut [[f32; PANEL_ROWS]],
    ) {
        avx512 => super::avx512::panel_product::q8_0,
        avx_vnni => super::avx_vnni::panel_product::q8_0,
        avx2 => super::avx2::panel_product::q8_0,
        sse41 => super::sse41::panel_product::q8_0,
        neon => super::neon::panel_product::q8_0,
        scalar => q8_0,
    }
    q8_0_variants_agree on samples_q8_0
}

kernel! {
    /// As [`panel_product_q8_0`], of q4_0.
    fn panel_product_q4_0(
        panels: &[PanelBlock<4>],
        xs: &[ActivationBlock],
        tokens: usize,
        sums: &mut [[f32; PANEL_ROWS]],
    ) {
        avx512 => super::avx512::panel_product::q4_0,
        avx_vnni => super::avx_vnni::panel_product::q4_0,
        avx2 => super::avx2::panel_product::q4_0,
        sse41 => super::sse41::panel_product::q4_0,
        neon => super::neon::panel_product::q4_0,
        scalar => q4_0,
    }
    q4_0_variants_agree on samples_q4_0
}

fn q8_0(panels: &[PanelBlock<8>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    product(panels, xs, tokens, sums, |block, row| std::array::from_fn(|k| block.codes[k / 4][row][k % 4] as i8));
}

fn q4_0(panels: &[PanelBlock<4>], xs: &[ActivationBlock], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    product(panels, xs, tokens, sums, |block, row| {
        let byte = |j: usize| block.codes[j / 4][row][j % 4];
        std::array::from_fn(|k| (if k < 16 { byte(k) & 15 } else { byte(k - 16) >> 4 }) as i8 - 8)
    });
}

#[inline(always)]
fn product<const GROUPS: usize>(
    panels: &[PanelBlock<GROUPS>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
    codes: impl Fn(&PanelBlock<GROUPS>, usize) -> [i8; BLOCK_LEN],
) {
    for (panel, sums) in each_panel(panels, xs, tokens, sums) {
        sums.fill([0.0; PANEL_ROWS]);
        for (block, xs) in panel.iter().zip(xs.chunks_exact(tokens)) {
            for row in 0..PANEL_ROWS {
                let (codes, scale) = (codes(block, row), f16::from_bits(block.scales[row]).to_f32());
                for (x, sums) in xs.iter().zip(sums.iter_mut()) {
                    let dot: i32 = codes.iter().zip(x.codes).map(|(w, x)| i32::from(*w) * i32::from(x)).sum();
                    sums[row] = (dot as f32).mul_add(scale * x.scale, sums[row]);
                }
            }
        }
    }
}

/// The panels one by one, each with its tokens' sums. Panics where activations or sums are not as many as panels and tokens want.
pub(super) fn each_panel<'a, const GROUPS: usize>(
    panels: &'a [PanelBlock<GROUPS>],
    xs: &[ActivationBlock],
    tokens: usize,
    sums: &'a mut [[f32; PANEL_ROWS]],
) -> impl Iterator<Item = (&'a [PanelBlock<GROUPS>], &'a mut [[f32; PANEL_ROWS]])> {
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

/// The form of this file's kernels.
#[cfg(test)]
type PanelProduct<const GROUPS: usize> =
    fn(Instructions, &[PanelBlock<GROUPS>], &[ActivationBlock], usize, &mut [[f32; PANEL_ROWS]]);

/// One to three panels of 0 to 33 blocks of all codes with 1 to 18 tokens, the extreme codes among them.
#[cfg(test)]
fn samples<const GROUPS: usize>(instructions: Instructions, product: PanelProduct<GROUPS>) -> Vec<f32> {
    let mut results = Vec::new();
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
        let mut panels = vec![PanelBlock::<GROUPS>::ZERO; blocks * count];
        for (b, block) in panels.iter_mut().enumerate() {
            block.scales =
                std::array::from_fn(|row| f16::from_f32((row as f32 - 2.7) * 0.013 + b as f32 * 1e-3).to_bits());
            for (g, group) in block.codes.iter_mut().enumerate() {
                *group =
                    std::array::from_fn(|row| std::array::from_fn(|k| (b * 89 + g * 37 + row * 101 + k * 53) as u8));
            }
        }
        if let Some(block) = panels.first_mut() {
            block.codes = [[[0x80; 4]; PANEL_ROWS]; GROUPS];
        }
        let mut xs = vec![ActivationBlock::default(); blocks * tokens];
        for (place, x) in xs.iter_mut().enumerate() {
            x.codes = std::array::from_fn(|k| match place % 3 {
                0 => [127, -127][k / 3 % 2],
                _ => ((place * 41 + k * 29) % 255) as u8 as i8,
            });
            x.codes = x.codes.map(|code| code.max(-127));
            x.scale = 0.01 + place as f32 * 1e-3;
            x.bias = x.codes.iter().map(|code| -8 * i32::from(*code)).sum();
        }
        let mut sums = vec![[f32::NAN; PANEL_ROWS]; tokens * count];
        product(instructions, &panels, &xs, tokens, &mut sums);
        results.extend(sums.into_flattened());
    }
    results
}

#[cfg(test)]
fn samples_q8_0(instructions: Instructions) -> Vec<f32> {
    samples(instructions, panel_product_q8_0)
}

#[cfg(test)]
fn samples_q4_0(instructions: Instructions) -> Vec<f32> {
    samples(instructions, panel_product_q4_0)
}
