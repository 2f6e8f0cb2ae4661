//! Products of a panel of sixteen quantized rows with quantized activations.
//!
//! A block's codes are multiplied and summed in integers, exactly; the result, which f32 holds exactly too, enters the
//! row's f32 sum by one fused multiply-add with `d of the row * d of the activations`, rounded to f32, block after
//! block. Where a block has a minimum, one more adds it times the sum of the block's activations, rounded to f32.

use super::kernel;
#[cfg(feature = "samples")]
use super::pack_panel::mark_zeros;
#[cfg(feature = "samples")]
use super::panel_block::blocks_of_mut;
use super::panel_block::{BLOCK_LEN, PANEL_ROWS, PanelBlock};
use super::quantize::ActivationBlock;
#[cfg(feature = "samples")]
use super::{Instructions, PackedFormat, PackedUnit};
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
    panel_product_samples on samples
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

/// All formats without sub-blocks.
#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    samples_of(PackedFormat::OF_BLOCKS, instructions)
}

/// Products of one to three tiles of 0 to 33 blocks of all codes with 1 to 18 tokens, the extreme codes among them.
#[cfg(feature = "samples")]
pub(super) fn samples_of(formats: &[PackedFormat], instructions: Instructions) -> Vec<f32> {
    let blocks = [1, 5, 3, 4, 33, 3, 4, 2, 1, 2, 3, 8, 2, 1, 1, 3, 1, 2];
    let sizes = (1..=TILE).map(|tokens| (blocks[tokens - 1], tokens)).chain([(0, 1), (5, 1)]);
    let cases = sizes.flat_map(|size| [1, 2, 3].map(|tiles| (size, tiles)));
    let cases = cases.flat_map(|case| formats.iter().map(move |format| (*format, case)));
    let mut results = Vec::new();
    for (format, ((blocks, tokens), tiles)) in cases {
        let units = sample_tiles(format, blocks * tiles);
        let xs = sample_activations(format, blocks * tokens);
        let mut sums = vec![[f32::NAN; PANEL_ROWS]; tokens * tiles];
        format.product(instructions, &units, &xs, tokens, &mut sums);
        results.extend(sums.into_flattened());
    }
    results
}

/// Blocks of sixteen rows of all codes with scales of both signs; the codes of the first ones are the extreme ones.
#[cfg(feature = "samples")]
fn sample_tiles(format: PackedFormat, blocks: usize) -> Vec<PackedUnit> {
    let (scales, _) = format.scales_and_groups();
    let mut units = vec![PackedUnit::default(); blocks * format.units()];
    for (b, block) in units.chunks_exact_mut(format.units()).enumerate() {
        let (of_scales, codes) = block.split_at_mut(scales);
        for (i, unit) in of_scales.iter_mut().enumerate() {
            for (row, scale) in unit.0.as_chunks_mut().0.iter_mut().enumerate() {
                let number = (row as f32 - 2.7) * (0.013 - 0.021 * i as f32) + b as f32 * 1e-3;
                // The smallest exponents, whose scales are subnormal, the largest ones, and NaN.
                let exponents = [0, 1, 2, 100, 127, 128, 160, 240, 254, 255];
                let exponent = exponents[if row == 15 { 9 } else { (b + row) % 9 }];
                let is_exponent = format == PackedFormat::Mxfp4;
                *scale = if is_exponent { exponent } else { f16::from_f32(number).to_bits() }.to_ne_bytes();
            }
        }
        let bytes = codes.iter_mut().flat_map(|unit| &mut unit.0).enumerate();
        bytes.for_each(|(place, byte)| {
            let (g, row, k) = (place / (4 * PANEL_ROWS), place / 4 % PANEL_ROWS, place % 4);
            *byte = match b {
                0..3 => [0x00, 0xFF, 0x80][b],
                _ => (b * 89 + g * 37 + row * 101 + k * 53 + g * g * row) as u8,
            };
        });
    }
    if format == PackedFormat::Mxfp4 {
        // Some rows of the first block have the exponent 254, and all of its codes are 0.
        mark_zeros::<1, 4>(blocks_of_mut(&mut units));
    }
    units
}

/// Activations for so many blocks of weights: of the largest magnitudes, and others.
#[cfg(feature = "samples")]
fn sample_activations(format: PackedFormat, blocks: usize) -> Vec<ActivationBlock> {
    let block = |place: usize| {
        let codes: [i8; BLOCK_LEN] = std::array::from_fn(|k| match place % 4 {
            0 => [127, -127][k / 3 % 2],
            1 => 127,
            _ => ((place * 41 + k * 29) % 255) as u8 as i8,
        });
        // The largest scales of mxfp4 times these are infinite.
        let scale = if format == PackedFormat::Mxfp4 && place.is_multiple_of(3) { 8.0 } else { 0.01 };
        ActivationBlock::of_codes(codes.map(|code| code.max(-127)), scale + place as f32 * 1e-3)
    };
    (0..blocks * format.dtype().block_len() / BLOCK_LEN).map(block).collect()
}
