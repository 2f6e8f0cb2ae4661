//! Activations in blocks of 32: a scale `d = max |x| / 127` in f32 and codes `round(x / d)`, halves to even.

use super::kernel;
#[cfg(feature = "samples")]
use super::samples::numbers;
#[cfg(feature = "samples")]
use crate::isa::Instructions;
use crate::panel_block::BLOCK_LEN;

/// 32 activations: `x[k]` is about `scale * codes[k]`.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct ActivationBlock {
    /// From -127 to 127.
    pub codes: [i8; BLOCK_LEN],
    /// What a code is multiplied by; not finite where an activation is not.
    pub scale: f32,
    /// Minus eight times the codes' sum: what codes of 4 bits that count from 0 have too much. Those of 8 bits have 16
    /// times that.
    pub bias: i32,
    /// The sum of the activations, about: `scale` times the sum of the codes, rounded.
    pub sum: f32,
    /// Minus four times the sum of the first 16 codes, and of the others.
    pub halves: [i32; 2],
}

impl ActivationBlock {
    /// A block of these codes, whose halves have these sums.
    #[inline(always)]
    pub fn new(codes: [i8; BLOCK_LEN], scale: f32, halves: [i32; 2]) -> ActivationBlock {
        let sum = halves[0] + halves[1];
        ActivationBlock { codes, scale, bias: -8 * sum, sum: scale * sum as f32, halves: halves.map(|half| -4 * half) }
    }

    /// A block of these codes.
    #[cfg(feature = "samples")]
    pub fn of_codes(codes: [i8; BLOCK_LEN], scale: f32) -> ActivationBlock {
        let sum = |half: &[i8]| half.iter().map(|code| i32::from(*code)).sum();
        ActivationBlock::new(codes, scale, [sum(&codes[..BLOCK_LEN / 2]), sum(&codes[BLOCK_LEN / 2..])])
    }

    /// The sum of one half's activations, about: `scale` times the sum of its codes, rounded.
    #[inline(always)]
    pub fn half_sum(&self, half: usize) -> f32 {
        self.scale * (self.halves[half] as f32 * -0.25)
    }

    /// What sums of products begin with where codes count from 0 and have `offset`, a multiple of eight, too much.
    #[inline(always)]
    pub fn start(&self, offset: i32) -> i32 {
        offset / 8 * self.bias
    }
}

kernel! {
    /// Quantizes activations, 32 for each block.
    fn quantize(xs: &[f32], blocks: &mut [ActivationBlock]) {
        avx512 => super::avx512::quantize::quantize,
        avx2 => recompiled,
        scalar => quantize_blocks,
    }
    quantize_samples on samples
}

#[inline(always)]
fn quantize_blocks(xs: &[f32], blocks: &mut [ActivationBlock]) {
    let (chunks, rest) = xs.as_chunks::<BLOCK_LEN>();
    assert!(rest.is_empty() && chunks.len() == blocks.len(), "32 activations for each block");
    for (x, block) in chunks.iter().zip(blocks) {
        *block = quantize_block(x);
    }
}

#[inline(always)]
fn quantize_block(x: &[f32; BLOCK_LEN]) -> ActivationBlock {
    let scale = magnitude_max(x) / 127.0;
    // Below 127 of the smallest numbers the scale is zero, and so are the codes.
    let divisor = if scale == 0.0 { f32::INFINITY } else { scale };
    let (mut codes, mut halves) = ([0; BLOCK_LEN], [0; 2]);
    for (place, (code, x)) in codes.iter_mut().zip(x).enumerate() {
        *code = round(x / divisor);
        halves[place / (BLOCK_LEN / 2)] += i32::from(*code);
    }
    ActivationBlock::new(codes, scale, halves)
}

/// The largest magnitude. Patterns of magnitudes are ordered as the magnitudes are, with NaN above infinity.
#[inline(always)]
fn magnitude_max(x: &[f32; BLOCK_LEN]) -> f32 {
    f32::from_bits(x.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7FFF_FFFF)))
}

/// The nearest integer from -127 to 127, halves to even; anything for NaN. The sum with 1.5 * 2^23 has units as its
/// last place.
#[inline(always)]
fn round(quotient: f32) -> i8 {
    const UNITS: f32 = 12582912.0;
    let low = if quotient > -127.0 { quotient } else { -127.0 };
    let limited = if low < 127.0 { low } else { 127.0 };
    (limited + UNITS).to_bits().wrapping_sub(UNITS.to_bits()) as i8
}

#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut xs = numbers(64 * BLOCK_LEN, 17);
    xs[..BLOCK_LEN].fill(0.0);
    xs[BLOCK_LEN..2 * BLOCK_LEN].copy_from_slice(&[1e-45; BLOCK_LEN]);
    xs[70] = 1e30;
    xs[100] = f32::INFINITY;
    for (k, x) in xs[128..160].iter_mut().enumerate() {
        *x = k as f32 - 15.5;
    }
    xs[128] = 127.0;
    let mut blocks = vec![ActivationBlock::default(); 64];
    quantize(instructions, &xs, &mut blocks);
    let numbers = |block: &ActivationBlock| {
        let ActivationBlock { codes, scale, bias, sum, halves } = *block;
        let sums = [scale, bias as f32, sum, halves[0] as f32, halves[1] as f32];
        codes.map(f32::from).into_iter().chain(sums)
    };
    blocks.iter().flat_map(numbers).collect()
}
