//! Softmax of one row.

use super::exponential::exponential;
use super::kernel;
use super::lanes::{LANES, sum};
#[cfg(feature = "samples")]
use super::samples::numbers;
#[cfg(feature = "samples")]
use crate::isa::Instructions;

kernel! {
    /// Scores `x` become shares `exp(s_j - max s) / sum_k exp(s_k - max s)` with `s_j = scale x[j] + mask[j]`, in their
    /// place; exactly 0 where the mask is -infinity, whatever the score there: what a masked position holds may be left
    /// over from other computations, NaN and infinities included.
    ///
    /// The rounding of `max s` is the same in all exponentials and leaves the quotient: each argument has one rounding
    /// of its own. Places behind the last unmasked one change no bit of the others.
    fn soft_max(x: &mut [f32], mask: &[f32], scale: f32) {
        avx512 => super::avx512::soft_max::soft_max,
        avx2 => recompiled,
        scalar => share,
    }
    soft_max_samples on samples
}

#[inline(always)]
fn share(x: &mut [f32], mask: &[f32], scale: f32) {
    let (x, mask) = without_hidden_end(x, mask);
    let subtracted = subtracted(maximum(x, mask, scale));
    for (x, mask) in x.iter_mut().zip(mask) {
        *x = if is_masked(*mask) { 0.0 } else { exponential(x.mul_add(scale, mask - subtracted)) };
    }
    let divisor = divisor(total(x));
    for (x, mask) in x.iter_mut().zip(mask) {
        // A sum that is NaN leaves masked places alone too.
        *x = if is_masked(*mask) { 0.0 } else { *x / divisor };
    }
}

/// Both without the chunks at their end of which nothing is to be seen, whose shares are 0. Panics where they differ in
/// length.
#[inline(always)]
pub(super) fn without_hidden_end<'a, 'b>(x: &'a mut [f32], mask: &'b [f32]) -> (&'a mut [f32], &'b [f32]) {
    assert_eq!(x.len(), mask.len(), "rows of one length");
    let seen = mask.len() - masked_last(mask);
    let (x, behind) = x.split_at_mut(seen);
    behind.fill(0.0);
    (x, &mask[..seen])
}

/// What is subtracted for this largest score. Of a row without anything to look at all exponentials are 0 then, or NaN
/// where an input is.
#[inline(always)]
pub(super) fn subtracted(largest: f32) -> f32 {
    if largest == f32::NEG_INFINITY { 0.0 } else { largest }
}

/// What exponentials with this sum are divided by.
#[inline(always)]
pub(super) fn divisor(total: f32) -> f32 {
    if total == 0.0 { 1.0 } else { total }
}

/// Positions at the end of which nothing is to be seen, in whole chunks: these change no bit of what is in front of
/// them.
#[inline(always)]
fn masked_last(mask: &[f32]) -> usize {
    const CHUNK: usize = 4 * LANES;
    let chunks = mask.as_rchunks::<CHUNK>().1.iter().rev();
    let seen = |chunk: &[f32; CHUNK]| chunk.iter().fold(false, |seen, mask| seen | !is_masked(*mask));
    CHUNK * chunks.take_while(|chunk| !seen(chunk)).count()
}

/// Whether nothing of a position is to be seen.
#[inline(always)]
fn is_masked(mask: f32) -> bool {
    mask == f32::NEG_INFINITY
}

/// The larger of two; the first beside a NaN.
#[inline(always)]
pub(super) fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// The largest argument, NaN aside; -infinity of nothing.
#[inline(always)]
fn maximum(x: &[f32], mask: &[f32], scale: f32) -> f32 {
    let argument = |x: f32, mask: f32| if is_masked(mask) { mask } else { x.mul_add(scale, mask) };
    let ((chunks, rest), (masks, masks_rest)) = (x.as_chunks::<LANES>(), mask.as_chunks::<LANES>());
    let mut largest = [f32::NEG_INFINITY; LANES];
    for (x, mask) in chunks.iter().zip(masks) {
        for (largest, (x, mask)) in largest.iter_mut().zip(x.iter().zip(mask)) {
            *largest = larger(*largest, argument(*x, *mask));
        }
    }
    let largest = largest.into_iter().fold(f32::NEG_INFINITY, larger);
    rest.iter().zip(masks_rest).fold(largest, |largest, (x, mask)| larger(largest, argument(*x, *mask)))
}

/// The sum in eight lanes.
#[inline(always)]
fn total(y: &[f32]) -> f32 {
    let (chunks, rest) = y.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for (lane, y) in lanes.iter_mut().zip(chunk) {
            *lane += y;
        }
    }
    for (lane, y) in lanes.iter_mut().zip(rest) {
        *lane += y;
    }
    sum(lanes)
}

#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut results = Vec::new();
    for len in [1, 7, 8, 31, 33, 64, 257] {
        for masked in [0, len / 2, len] {
            let mut mask = vec![0.0; len];
            mask[len - masked..].fill(f32::NEG_INFINITY);
            let mut x = numbers(len, 9);
            for broken in [None, Some(f32::NAN), Some(f32::INFINITY), Some(f32::NEG_INFINITY)] {
                // Behind the mask, and once before it.
                x[len - masked..].fill(broken.unwrap_or(1.0));
                let mut y = x.clone();
                soft_max(instructions, &mut y, &mask, 7.3);
                results.extend(y);
                let mut y = x.clone();
                y[0] = broken.unwrap_or(y[0]);
                soft_max(instructions, &mut y, &mask, 7.3);
                results.extend(y);
                // Masks that are numbers, some hidden in between, and exponentials that are denormal.
                let mut mask = mask.clone();
                mask.iter_mut().step_by(3).for_each(|mask| *mask -= 4.0);
                mask.iter_mut().step_by(7).for_each(|mask| *mask = f32::NEG_INFINITY);
                let mut y = x.clone();
                y.iter_mut().step_by(5).for_each(|y| *y -= 25.0);
                soft_max(instructions, &mut y, &mask, 3.9);
                results.extend(y);
            }
        }
    }
    results
}
