//! Four-bit floating-point numbers, E2M1: sign, two bits of exponent, one of fraction. Twice their values are integers.

/// Twice the value of each code. The halving is part of the scale.
pub(crate) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The code whose number times `scale` is nearest to each weight, the first of several.
#[inline(always)]
pub(crate) fn codes_of<const LEN: usize>(scale: f32, weights: &[f32; LEN]) -> [u8; LEN] {
    let numbers = DOUBLED.map(|number| f32::from(number) * scale);
    let (mut codes, mut distances) = ([0; LEN], [0.0; LEN]);
    for (distance, weight) in distances.iter_mut().zip(weights) {
        *distance = (numbers[0] - weight).abs();
    }
    for (code, number) in numbers.iter().enumerate().skip(1) {
        for ((nearest, least), weight) in codes.iter_mut().zip(&mut distances).zip(weights) {
            let distance = (number - weight).abs();
            if distance < *least {
                (*nearest, *least) = (code as u8, distance);
            }
        }
    }
    codes
}

/// Twice the magnitudes halfway between adjacent ones.
const HALVES: [f32; 7] = [0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0];

/// [`codes_of`] for weights up to `magnitude` and a scale with at most four significant bits.
///
/// The code is the number of halfway points below a weight's magnitude. This is the same code because the points are
/// exact, and so are the distances from a weight near a point to the numbers on both sides of it.
#[inline(always)]
pub(crate) fn codes_below<const LEN: usize>(scale: f32, magnitude: f32, weights: &[f32; LEN]) -> [u8; LEN] {
    if scale == 0.0 {
        return [0; LEN];
    }
    // Distances from much larger weights round to the same number. NaN and numbers that overflow use [`codes_of`].
    let is_near = magnitude <= 64.0 * scale && 64.0 * scale < f32::INFINITY;
    if !is_near {
        return codes_of(scale, weights);
    }
    let mut counts = [0u32; LEN];
    for half in HALVES {
        let limit = half * scale;
        for (count, weight) in counts.iter_mut().zip(weights) {
            *count += u32::from(weight.abs() > limit);
        }
    }
    let mut codes = [0; LEN];
    for ((code, count), weight) in codes.iter_mut().zip(counts).zip(weights) {
        let sign = weight.to_bits() >> 28 & 8;
        *code = if count == 0 { 0 } else { (count | sign) as u8 };
    }
    codes
}

/// The largest magnitude, 0 or more.
#[inline(always)]
pub(crate) fn magnitude_max(weights: &[f32]) -> f32 {
    // The magnitude bits of finite numbers have the order of their magnitudes.
    f32::from_bits(weights.iter().fold(0, |largest: u32, weight| largest.max(weight.to_bits() & 0x7FFF_FFFF)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::power_of_two;

    #[test]
    fn ties_go_to_the_smaller_magnitude_and_zero_has_no_sign() {
        assert_eq!(codes_of(1.0, &[-0.0, 0.5, -0.5, 5.0, -7.0, -100.0, 2.5]), [0, 0, 0, 4, 13, 15, 2]);
    }

    #[test]
    fn comparisons_with_halfway_points_find_the_nearest_number() {
        let fractions = [1.0, 1.125, 1.375, 1.875];
        let scales = (-130..=127).flat_map(|power| fractions.map(|fraction| fraction * power_of_two(power)));
        for scale in scales.chain([0.0, f32::NAN]) {
            for number in HALVES.into_iter().chain([0.0, 1.0, 12.0, 13.0, 63.0, 65.0, 1e6, 1e9]) {
                let point = number * scale;
                for magnitude in [point.next_down(), point, point.next_up()] {
                    let weights = [magnitude, -magnitude];
                    let found = codes_below(scale, magnitude_max(&weights), &weights);
                    assert_eq!(found, codes_of(scale, &weights), "{weights:?} under {scale:?}");
                }
            }
        }
    }
}
