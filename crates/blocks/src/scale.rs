//! The scale of a block: the weight that determines it, its reciprocal, and the conversion of scaled weights to codes.
//!
//! ```text
//!  weights ──extreme──▶ scale d ──narrow──▶ f16 in the block
//!                          └─reciprocal──▶ 1/d, unrounded ──▶ code = truncate(w * (1/d) + offset)
//! ```
//!
//! All arithmetic is IEEE binary32 in the order of the elements, each operation rounded separately: a fused
//! multiply-add would change bytes. Published rule: `quantize_row_*_ref` in ggml's `ggml-quants.c`.

/// Weights that share a scale in the formats of this crate.
pub(crate) const LEN: usize = 32;

/// The weight with the largest magnitude, with its sign; the first of several, or +0.0 if all weights are zero.
#[inline(always)]
pub(crate) fn signed_extreme(weights: &[f32; LEN]) -> f32 {
    let (mut largest, mut extreme) = (0.0f32, 0.0f32);
    for &weight in weights {
        if largest < weight.abs() {
            (largest, extreme) = (weight.abs(), weight);
        }
    }
    extreme
}

/// The largest magnitude, 0 or more.
#[inline(always)]
pub(crate) fn magnitude_max(weights: &[f32; LEN]) -> f32 {
    weights.iter().fold(0.0, |largest: f32, weight| if largest < weight.abs() { weight.abs() } else { largest })
}

/// The smallest and the largest weight. Among zeros of both signs, the first is returned.
#[inline(always)]
pub(crate) fn extremes(weights: &[f32; LEN]) -> (f32, f32) {
    weights.iter().fold((f32::MAX, -f32::MAX), |(low, high), &weight| {
        (if weight < low { weight } else { low }, if weight > high { weight } else { high })
    })
}

/// `1 / scale`, or 0 if the scale is 0. A scale below 2^-128 has an infinite reciprocal.
#[inline(always)]
pub(crate) fn reciprocal(scale: f32) -> f32 {
    if scale != 0.0 { 1.0 / scale } else { 0.0 }
}

/// The low byte of `value`, truncated toward zero. Values outside the i32 range give 0: the conversion is undefined in
/// C, and compilers for x86 produce 0. Such values occur only if the scale is zero in f16, and then every code decodes
/// to zero.
#[inline(always)]
pub(crate) fn truncate(value: f32) -> i8 {
    const LIMIT: f32 = 2147483648.0;
    if value.abs() < LIMIT { value as i32 as i8 } else { 0 }
}

/// The low byte of `value`, rounded to the nearest integer, halves away from zero. Values outside the i32 range give 0,
/// as in [`truncate`].
#[inline(always)]
pub(crate) fn round(value: f32) -> i8 {
    truncate(value.round())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_magnitudes_gives_the_sign() {
        let mut weights = [0.0; LEN];
        (weights[3], weights[9]) = (-2.0, 2.0);
        assert_eq!(signed_extreme(&weights), -2.0);
        (weights[3], weights[9]) = (2.0, -2.0);
        assert_eq!(signed_extreme(&weights), 2.0);
        assert_eq!(signed_extreme(&[-0.0; LEN]).to_bits(), 0, "a negative zero is no extreme");
    }

    #[test]
    fn zeros_of_both_signs_keep_the_first() {
        let mut weights = [0.0; LEN];
        weights[5] = -0.0;
        assert_eq!(extremes(&weights).0.to_bits(), 0);
        weights[0] = -0.0;
        assert_eq!(extremes(&weights).0.to_bits(), (-0.0f32).to_bits());
    }

    #[test]
    fn codes_round_halves_away_and_cut_toward_zero() {
        let cases = [
            (0.5, 1, 0),
            (-0.5, -1, 0),
            (2.5, 3, 2),
            (-2.5, -3, -2),
            (0.49999997, 0, 0),
            (126.99999, 127, 126),
            (2147483520.0, -128, -128),
            (2147483648.0, 0, 0),
            (-2147483648.0, 0, 0),
            (f32::INFINITY, 0, 0),
            (f32::NEG_INFINITY, 0, 0),
            (f32::NAN, 0, 0),
        ];
        for (value, rounded, truncated) in cases {
            assert_eq!((round(value), truncate(value)), (rounded, truncated), "of {value}");
        }
    }
}
