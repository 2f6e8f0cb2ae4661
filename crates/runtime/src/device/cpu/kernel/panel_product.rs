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
pub const TILE: usize = 12;

kernel! {
    /// `sums[t][r] = panel row r . x_t` of q8_0, for up to [`TILE`] tokens whose activations lie side by side: block `b` of token `t` is
    /// `xs[b * tokens + t]`.
    fn panel_product_q8_0(panel: &[PanelBlock<8>], xs: &[ActivationBlock], sums: &mut [[f32; PANEL_ROWS]]) {
        avx512 => super::avx512::panel_product::q8_0,
        avx2 => super::avx2::panel_product::q8_0,
        sse41 => super::sse41::panel_product::q8_0,
        neon => super::neon::panel_product::q8_0,
        scalar => q8_0,
    }
    q8_0_variants_agree on samples_q8_0
}

kernel! {
    /// As [`panel_product_q8_0`], of q4_0.
    fn panel_product_q4_0(panel: &[PanelBlock<4>], xs: &[ActivationBlock], sums: &mut [[f32; PANEL_ROWS]]) {
        avx512 => super::avx512::panel_product::q4_0,
        avx2 => super::avx2::panel_product::q4_0,
        sse41 => super::sse41::panel_product::q4_0,
        neon => super::neon::panel_product::q4_0,
        scalar => q4_0,
    }
    q4_0_variants_agree on samples_q4_0
}

fn q8_0(panel: &[PanelBlock<8>], xs: &[ActivationBlock], sums: &mut [[f32; PANEL_ROWS]]) {
    product(panel, xs, sums, |block, row| std::array::from_fn(|k| block.codes[k / 4][row][k % 4] as i8));
}

fn q4_0(panel: &[PanelBlock<4>], xs: &[ActivationBlock], sums: &mut [[f32; PANEL_ROWS]]) {
    product(panel, xs, sums, |block, row| {
        let byte = |j: usize| block.codes[j / 4][row][j % 4];
        std::array::from_fn(|k| (if k < 16 { byte(k) & 15 } else { byte(k - 16) >> 4 }) as i8 - 8)
    });
}

#[inline(always)]
fn product<const GROUPS: usize>(
    panel: &[PanelBlock<GROUPS>],
    xs: &[ActivationBlock],
    sums: &mut [[f32; PANEL_ROWS]],
    codes: impl Fn(&PanelBlock<GROUPS>, usize) -> [i8; BLOCK_LEN],
) {
    assert_eq!(xs.len(), sums.len() * panel.len(), "activations for each token and block");
    let tokens = sums.len();
    sums.fill([0.0; PANEL_ROWS]);
    for (b, block) in panel.iter().enumerate() {
        for row in 0..PANEL_ROWS {
            let (codes, scale) = (codes(block, row), f16::from_bits(block.scales[row]).to_f32());
            for (t, sums) in sums.iter_mut().enumerate() {
                let x = &xs[b * tokens + t];
                let dot: i32 = codes.iter().zip(x.codes).map(|(w, x)| i32::from(*w) * i32::from(x)).sum();
                sums[row] = (dot as f32).mul_add(scale * x.scale, sums[row]);
            }
        }
    }
}

/// The form of this file's kernels.
#[cfg(test)]
type PanelProduct<const GROUPS: usize> =
    fn(Instructions, &[PanelBlock<GROUPS>], &[ActivationBlock], &mut [[f32; PANEL_ROWS]]);

/// Panels of 0 to 33 blocks of all codes with 1 to 12 tokens, the extreme codes among them.
#[cfg(test)]
fn samples<const GROUPS: usize>(instructions: Instructions, product: PanelProduct<GROUPS>) -> Vec<f32> {
    let mut results = Vec::new();
    for (blocks, tokens) in
        [(0, 1), (1, 1), (2, 3), (3, 4), (33, 5), (8, 12), (3, 6), (4, 7), (2, 8), (1, 9), (2, 10), (3, 11)]
    {
        let mut panel = vec![PanelBlock::<GROUPS>::ZERO; blocks];
        for (b, block) in panel.iter_mut().enumerate() {
            block.scales =
                std::array::from_fn(|row| f16::from_f32((row as f32 - 2.7) * 0.013 + b as f32 * 1e-3).to_bits());
            for (g, group) in block.codes.iter_mut().enumerate() {
                *group =
                    std::array::from_fn(|row| std::array::from_fn(|k| (b * 89 + g * 37 + row * 101 + k * 53) as u8));
            }
        }
        if let Some(block) = panel.first_mut() {
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
            x.sum = x.codes.iter().map(|code| i32::from(*code)).sum();
        }
        let mut sums = vec![[f32::NAN; PANEL_ROWS]; tokens];
        product(instructions, &panel, &xs, &mut sums);
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
