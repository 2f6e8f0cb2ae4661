//! Searches for the scale and the codes of a group of weights: the common parts. Each search is one file.
//!
//! | file | search | used by |
//! |---|---|---|
//! | `signed.rs` | a scale for codes around zero | q3_k with importance, q6_k, q4_0 and q5_0 with importance |
//! | `descent.rs` | the same, then one code at a time | q3_k |
//! | `affine.rs` | a scale and a minimum | q2_k, q4_k, q5_k; q4_1 and q5_1 with importance |
//! | `nested.rs` | a scale for the scales or minima of the groups of a block | q2_k, q4_k, q5_k with importance |
//! | `codebook.rs` | a scale for codes that are places in a table | iq4_nl, iq4_xs |
//!
//! All arithmetic is IEEE binary32. Each operation is rounded separately, products associate to the left, and sums
//! start at element 0. Another order or a fused multiply-add changes bytes. Published rule: `ggml-quants.c` of ggml.

pub(crate) mod affine;
pub(crate) mod codebook;
pub(crate) mod descent;
pub(crate) mod lanes;
pub(crate) mod nested;
pub(crate) mod signed;

/// Magnitudes below this count as zero.
pub(crate) const TINY: f32 = 1e-15;

/// The nearest integer, halves to even, for magnitudes up to 4194303. The result for larger values comes from the same
/// bits of the sum: it is defined, but is not the nearest integer. NaN gives 0, infinities give -4194304.
#[inline(always)]
pub(crate) fn nearest(value: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0; // 1.5 * 2^23: the unit of the sum is 1
    ((value + SHIFT).to_bits() & 0x7F_FFFF) as i32 - 0x40_0000
}

/// [`nearest`] of the quotient of each dividend and a divisor.
///
/// Products with the reciprocal are used if rounding cannot make another integer the nearest one. A product and the
/// rounded quotient differ by at most 3 * 2^-24 of the quotient: below 256, by less than 1e-4.
#[inline(always)]
pub(crate) fn nearest_quotients<const LEN: usize>(dividends: &[f32; LEN], divisor: f32) -> [i32; LEN] {
    let inverse = 1.0 / divisor;
    let (mut integers, mut others) = ([0; LEN], u32::from(!inverse.is_normal()));
    for (integer, dividend) in integers.iter_mut().zip(dividends) {
        let product = dividend * inverse;
        *integer = nearest(product);
        let is_clear = product.abs() < 256.0 && (product - *integer as f32).abs() < 0.4999;
        others |= u32::from(!is_clear);
    }
    if others != 0 {
        for (integer, dividend) in integers.iter_mut().zip(dividends) {
            *integer = nearest(dividend / divisor);
        }
    }
    integers
}

/// The weight of largest magnitude with its sign; the first one of several, +0.0 when all are zero.
#[inline(always)]
pub(crate) fn peak(weights: &[f32]) -> f32 {
    let (mut largest, mut peak) = (0.0f32, 0.0f32);
    for &weight in weights {
        if largest < weight.abs() {
            (largest, peak) = (weight.abs(), weight);
        }
    }
    peak
}

/// The greatest value, 0 or more.
#[inline(always)]
pub(crate) fn greatest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |greatest, &value| if value > greatest { value } else { greatest })
}

/// `numerator / denominator`, and 0 if the denominator is 0.
#[inline(always)]
pub(crate) fn quotient(numerator: f32, denominator: f32) -> f32 {
    if denominator != 0.0 { numerator / denominator } else { 0.0 }
}

/// The sum of the squares.
#[inline(always)]
pub(crate) fn sum_of_squares(weights: &[f32]) -> f32 {
    weights.iter().fold(0.0, |sum, weight| sum + weight * weight)
}

/// The magnitude of each weight above the root of the mean square: how much an error counts in some formats when no
/// importance is given.
#[inline(always)]
pub(crate) fn magnitudes_above_mean<const LEN: usize>(weights: &[f32; LEN]) -> [f32; LEN] {
    let root = (sum_of_squares(weights) / LEN as f32).sqrt();
    weights.map(|weight| root + weight.abs())
}

/// The square of each weight: how much an error counts when no importance is given.
#[inline(always)]
pub(crate) fn squares<const LEN: usize>(weights: &[f32; LEN]) -> [f32; LEN] {
    weights.map(|weight| weight * weight)
}

/// How much an error of each weight counts: `importance * sqrt(mean_square + weight^2)`.
#[inline(always)]
pub(crate) fn importance_of<const LEN: usize>(
    weights: &[f32; LEN],
    importance: &[f32; LEN],
    mean_square: f32,
) -> [f32; LEN] {
    std::array::from_fn(|i| importance[i] * (mean_square + weights[i] * weights[i]).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_to_even() {
        let cases = [
            (0.5, 0),
            (1.5, 2),
            (2.5, 2),
            (-0.5, 0),
            (-1.5, -2),
            (0.50000006, 1),
            (4194303.0, 4194303),
            (-4194303.0, -4194303),
            (f32::INFINITY, -4194304),
            (f32::NEG_INFINITY, -4194304),
            (f32::NAN, 0),
        ];
        for (value, expected) in cases {
            assert_eq!(nearest(value), expected, "of {value}");
        }
    }

    #[test]
    fn quotients_near_halves_are_rounded_as_divisions() {
        for divisor in [0.1, -0.3, 1.0, 3.0, 7e-5, 1e-39, 3e38, f32::MIN_POSITIVE, f32::INFINITY, f32::NAN, 0.0] {
            for half in (-600..600).map(|half| half as f32 * 0.5) {
                for quotient in [half, half * (1.0 - 1e-6), half * (1.0 + 1e-6), half * 1e6] {
                    let center = quotient * divisor;
                    let dividends = [center.next_down(), center, center.next_up()];
                    let expected = dividends.map(|dividend| nearest(dividend / divisor));
                    assert_eq!(nearest_quotients(&dividends, divisor), expected, "{dividends:?} by {divisor}");
                }
            }
        }
    }

    #[test]
    fn the_first_of_equal_magnitudes_is_the_peak() {
        assert_eq!(peak(&[0.0, -2.0, 2.0]), -2.0);
        assert_eq!(peak(&[1.0, 2.0, -2.0]), 2.0);
        assert_eq!(peak(&[-0.0; 3]).to_bits(), 0);
        assert_eq!((greatest(&[-1.0, -2.0]), greatest(&[1.0, 3.0, 2.0])), (0.0, 3.0));
    }
}
