//! The check before encoding: a block format has no place for NaN and infinities.

/// The place of the first NaN or infinity; `None` when all weights are finite.
///
/// ```
/// assert_eq!(trueup_blocks::first_not_finite(&[1.0, f32::NAN, f32::INFINITY]), Some(1));
/// assert_eq!(trueup_blocks::first_not_finite(&[0.0, f32::MAX]), None);
/// ```
pub fn first_not_finite(weights: &[f32]) -> Option<usize> {
    const CHUNK: usize = 64;
    // A whole chunk is judged without branches, which compiles to vector code.
    let all_finite = |chunk: &[f32]| chunk.iter().fold(true, |all, weight| all & weight.is_finite());
    let chunk = weights.chunks(CHUNK).position(|chunk| !all_finite(chunk))?;
    let start = chunk * CHUNK;
    weights[start..].iter().position(|weight| !weight.is_finite()).map(|place| start + place)
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
