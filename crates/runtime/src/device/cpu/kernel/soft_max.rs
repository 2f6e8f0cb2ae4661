//! Softmax of one row.

use super::exponential::exponential;
use super::kernel;
use super::lanes::{LANES, sum};
#[cfg(test)]
use super::samples::numbers;
#[cfg(test)]
use crate::device::cpu::isa::Instructions;

kernel! {
    /// `y[j] = exp(s_j - max s) / sum_k exp(s_k - max s)` with `s_j = scale x[j] + mask[j]`; exactly 0 where the mask is -infinity,
    /// whatever the score there: what a masked position holds may be left over from other computations, NaN and infinities included.
    ///
    /// The rounding of `max s` is the same in all exponentials and leaves the quotient: each argument has one rounding of its own.
    /// Places behind the last unmasked one change no bit of the others.
    fn soft_max(x: &[f32], mask: &[f32], scale: f32, y: &mut [f32]) {
        avx512 => recompiled_wider,
        avx2 => recompiled,
        scalar => share,
    }
    soft_max_variants_agree on samples
}

#[inline(always)]
fn share(x: &[f32], mask: &[f32], scale: f32, y: &mut [f32]) {
    assert_eq!((x.len(), x.len()), (mask.len(), y.len()), "rows of one length");
    let seen = mask.len() - masked_last(mask);
    let (y, behind) = y.split_at_mut(seen);
    behind.fill(0.0);
    let (x, mask) = (&x[..seen], &mask[..seen]);
    for ((y, x), mask) in y.iter_mut().zip(x).zip(mask) {
        *y = if is_masked(*mask) { f32::NEG_INFINITY } else { x.mul_add(scale, *mask) };
    }
    let largest = maximum(y);
    // Of a row without anything to look at: all exponentials are 0 then, or NaN where an input is.
    let largest = if largest == f32::NEG_INFINITY { 0.0 } else { largest };
    for ((y, x), mask) in y.iter_mut().zip(x).zip(mask) {
        *y = if is_masked(*mask) { 0.0 } else { exponential(x.mul_add(scale, mask - largest)) };
    }
    let total = total(y);
    let divisor = if total == 0.0 { 1.0 } else { total };
    for (y, mask) in y.iter_mut().zip(mask) {
        // A sum that is NaN leaves masked places alone too.
        *y = if is_masked(*mask) { 0.0 } else { *y / divisor };
    }
}

/// Positions at the end of which nothing is to be seen, in whole chunks: these change no bit of what is in front of them.
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

/// The largest, NaN aside; -infinity of nothing.
#[inline(always)]
fn maximum(y: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = y.as_chunks::<LANES>();
    let mut largest = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (largest, y) in largest.iter_mut().zip(chunk) {
            *largest = larger(*largest, *y);
        }
    }
    largest.iter().chain(rest).fold(f32::NEG_INFINITY, |largest, y| larger(largest, *y))
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

#[cfg(test)]
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
                let mut y = vec![f32::NAN; len];
                soft_max(instructions, &x, &mask, 7.3, &mut y);
                results.extend(&y);
                let mut x = x.clone();
                x[0] = broken.unwrap_or(x[0]);
                soft_max(instructions, &x, &mask, 7.3, &mut y);
                results.extend(&y);
            }
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::isa::Isa;

    #[test]
    fn masked_places_are_zero_and_change_nothing() {
        let scalar = Instructions::of(Isa::Scalar).unwrap();
        let x = numbers(37, 5);
        let (mut alone, mut padded) = (vec![0.0; 21], vec![0.0; 37]);
        soft_max(scalar, &x[..21], &[0.0; 21], 2.0, &mut alone);
        let mut mask = [0.0; 37];
        mask[21..].fill(f32::NEG_INFINITY);
        soft_max(scalar, &x, &mask, 2.0, &mut padded);
        assert_eq!(padded[..21], alone);
        assert!(padded[21..].iter().all(|y| y.to_bits() == 0));
    }

    #[test]
    fn masked_places_are_zero_whatever_they_hold() {
        for isa in Isa::available() {
            let instructions = Instructions::of(isa).unwrap();
            for (len, seen) in [(37, 21), (64, 8), (9, 0), (33, 32)] {
                let mut mask = vec![0.0; len];
                mask[seen..].fill(f32::NEG_INFINITY);
                let (mut x, mut alone) = (numbers(len, 5), vec![1.0; seen]);
                soft_max(instructions, &x[..seen], &mask[..seen], 2.0, &mut alone);
                for stale in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
                    x[seen..].fill(stale);
                    let mut y = vec![1.0; len];
                    soft_max(instructions, &x, &mask, 2.0, &mut y);
                    assert_eq!(y[..seen], alone, "{isa}, {stale} behind {seen} of {len}");
                    assert!(y[seen..].iter().all(|y| y.to_bits() == 0), "{isa}, {stale} behind {seen} of {len}: {y:?}");
                }
                if seen > 0 {
                    x[0] = f32::NAN;
                    let mut y = vec![1.0; len];
                    soft_max(instructions, &x, &mask, 2.0, &mut y);
                    assert!(y[..seen].iter().all(|y| y.is_nan()), "a NaN that is seen stays");
                    assert!(y[seen..].iter().all(|y| y.to_bits() == 0), "{isa}: {y:?}");
                }
            }
        }
    }

    #[test]
    fn a_row_without_anything_is_zero_but_a_nan_stays() {
        let scalar = Instructions::of(Isa::Scalar).unwrap();
        let mut y = [1.0; 9];
        soft_max(scalar, &[2.0; 9], &[f32::NEG_INFINITY; 9], 1.0, &mut y);
        assert_eq!(y, [0.0; 9]);
        let mut x = [2.0; 9];
        x[4] = f32::NAN;
        soft_max(scalar, &x, &[0.0; 9], 1.0, &mut y);
        assert!(y.iter().all(|y| y.is_nan()));
    }
}
