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

/// The largest magnitude, 0 or more.
#[inline(always)]
pub(crate) fn magnitude_max(weights: &[f32]) -> f32 {
    // The magnitude bits of finite numbers have the order of their magnitudes.
    f32::from_bits(weights.iter().fold(0, |largest: u32, weight| largest.max(weight.to_bits() & 0x7FFF_FFFF)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_smaller_magnitude_and_zero_has_no_sign() {
        assert_eq!(codes_of(1.0, &[-0.0, 0.5, -0.5, 5.0, -7.0, -100.0, 2.5]), [0, 0, 0, 4, 13, 15, 2]);
    }
}
