//! The check before encoding: a block format has no place for NaN and infinities.

use multiversion::multiversion;

/// The place of the first NaN or infinity; `None` when all weights are finite.
///
/// ```
/// assert_eq!(trueup_blocks::first_not_finite(&[1.0, f32::NAN, f32::INFINITY]), Some(1));
/// assert_eq!(trueup_blocks::first_not_finite(&[0.0, f32::MAX]), None);
/// ```
pub fn first_not_finite(weights: &[f32]) -> Option<usize> {
    if all_finite(weights) {
        return None;
    }
    weights.iter().position(|weight| !weight.is_finite())
}

/// Whether all weights are finite: without branches, which compiles to vector code.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512vl", "x86_64+avx2"))]
pub(crate) fn all_finite(weights: &[f32]) -> bool {
    // The largest magnitude is that of the largest bits; those of infinity and NaN are larger than any number's.
    let largest = weights.iter().fold(0, |largest: u32, weight| largest.max(weight.to_bits() & 0x7FFF_FFFF));
    f32::from_bits(largest).is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_and_kind_is_found() {
        for length in [0usize, 1, 63, 64, 65, 200] {
            assert_eq!(first_not_finite(&vec![f32::MIN; length]), None);
            for place in 0..length {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut weights = vec![f32::MAX; length];
                    weights[place..].fill(bad);
                    assert_eq!(first_not_finite(&weights), Some(place), "{bad} in {length}");
                }
            }
        }
    }
}
