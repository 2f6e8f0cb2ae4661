//! Finds a scale and a minimum for codes `0 ..= top`: tries scales near `top / (highest - lowest)`, and fits a weighted
//! least-squares line to the weights at their codes for each.

use super::nearest;

/// Parameters of the search, which differ between formats.
#[derive(Clone, Copy)]
pub(crate) struct Tries {
    /// The largest code.
    pub top: i32,
    /// Value added to `top` in the first try.
    pub first: f32,
    /// Increment of this value for each further try.
    pub step: f32,
    /// The number of the last try, counted from 0.
    pub last: i32,
    /// Whether the sum of absolute errors is minimized, instead of the sum of squared errors.
    pub is_absolute: bool,
}

/// A scale and the negated minimum, which is 0 or more.
#[derive(Clone, Copy, Default)]
pub(crate) struct Affine {
    pub scale: f32,
    pub minimum: f32,
}

/// Writes the code of each weight and returns the scale and the minimum: a weight is about
/// `scale * code - minimum`. `counts` are the error weights.
#[inline(always)]
pub(crate) fn search<const LEN: usize>(
    tries: Tries,
    weights: &[f32; LEN],
    counts: &[f32; LEN],
    codes: &mut [u8; LEN],
) -> Affine {
    let (lowest, highest) = extremes(weights);
    if highest == lowest {
        codes.fill(0);
        return Affine { scale: 0.0, minimum: -lowest };
    }
    let top = tries.top as f32;
    // The sums that do not depend on the codes.
    let (mut count_sum, mut weight_sum) = (counts[0], counts[0] * weights[0]);
    for (count, weight) in counts.iter().zip(weights).skip(1) {
        count_sum += count;
        weight_sum += count * weight;
    }
    let (mut inverse, mut low) = (top / (highest - lowest), lowest);
    // The inverse scale and the minimum that give the codes of the best try.
    let mut best = (inverse, low);
    let mut scale = 1.0 / inverse;
    let mut least = error(tries, best, (scale, low), weights, counts);
    for number in 0..=tries.last {
        inverse = (tries.first + tries.step * number as f32 + top) / (highest - low);
        let (mut codes_sum, mut squares_sum, mut products_sum) = (0.0, 0.0, 0.0);
        for (weight, count) in weights.iter().zip(counts) {
            let code = code_of(tries.top, inverse, low, *weight) as f32;
            codes_sum += count * code;
            squares_sum += count * code * code;
            products_sum += count * code * weight;
        }
        let determinant = count_sum * squares_sum - codes_sum * codes_sum;
        if determinant > 0.0 {
            let mut tried_scale = (count_sum * products_sum - weight_sum * codes_sum) / determinant;
            let mut tried_low = (squares_sum * weight_sum - codes_sum * products_sum) / determinant;
            if tried_low > 0.0 {
                (tried_low, tried_scale) = (0.0, products_sum / squares_sum);
            }
            let found = error(tries, (inverse, low), (tried_scale, tried_low), weights, counts);
            if found < least {
                (least, best) = (found, (inverse, low));
                (scale, low) = (tried_scale, tried_low);
            }
        }
    }
    for (code, weight) in codes.iter_mut().zip(weights) {
        *code = code_of(tries.top, best.0, best.1, *weight) as u8;
    }
    Affine { scale, minimum: -low }
}

/// The lowest weight (at most 0) and the highest weight.
#[inline(always)]
fn extremes<const LEN: usize>(weights: &[f32; LEN]) -> (f32, f32) {
    let (mut lowest, mut highest) = (weights[0], weights[0]);
    for &weight in weights {
        if weight < lowest {
            lowest = weight;
        }
        if weight > highest {
            highest = weight;
        }
    }
    (if lowest > 0.0 { 0.0 } else { lowest }, highest)
}

#[inline(always)]
fn code_of(top: i32, inverse: f32, low: f32, weight: f32) -> i32 {
    nearest(inverse * (weight - low)).clamp(0, top)
}

/// The weighted error of a scale and a minimum, with the codes of another inverse scale and minimum.
#[inline(always)]
fn error<const LEN: usize>(
    tries: Tries,
    (inverse, code_low): (f32, f32),
    (scale, low): (f32, f32),
    weights: &[f32; LEN],
    counts: &[f32; LEN],
) -> f32 {
    let mut sum = 0.0;
    for (weight, count) in weights.iter().zip(counts) {
        let distance = scale * code_of(tries.top, inverse, code_low, *weight) as f32 + low - weight;
        sum += count * if tries.is_absolute { distance.abs() } else { distance * distance };
    }
    sum
}
