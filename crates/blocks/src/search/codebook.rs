//! Finds a scale for codes that are indices into a table of 16 steps: tries 15 scales around the one that maps the
//! weight with the largest magnitude to the first step.

use super::{TINY, peak};

/// The steps, denser around zero.
pub(crate) const STEPS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The midpoints between adjacent steps.
pub(crate) const HALVES: [f32; 15] = {
    let mut halves = [0.0; 15];
    let mut place = 0;
    while place < halves.len() {
        halves[place] = (STEPS[place] as f32 + STEPS[place + 1] as f32) / 2.0;
        place += 1;
    }
    halves
};

/// The index of the nearest step, or of the upper one if two are equally near; 15 for NaN.
#[inline(always)]
pub(crate) fn place_of(value: f32) -> u8 {
    HALVES.iter().map(|half| u8::from(!matches!(value.partial_cmp(half), Some(std::cmp::Ordering::Less)))).sum()
}

/// [`place_of`] of each value, in loops that the compiler vectorizes.
#[inline(always)]
pub(crate) fn places_of<const LEN: usize>(values: &[f32; LEN]) -> [u8; LEN] {
    let mut places = [0u32; LEN];
    for half in HALVES {
        for (place, value) in places.iter_mut().zip(values) {
            *place += u32::from(!matches!(value.partial_cmp(&half), Some(std::cmp::Ordering::Less)));
        }
    }
    let mut bytes = [0; LEN];
    for (byte, place) in bytes.iter_mut().zip(places) {
        *byte = place as u8;
    }
    bytes
}

/// The scale: a weight is about `scale * STEPS[place_of(weight / scale)]`. 0 if all weights are zero.
#[inline(always)]
pub(crate) fn search<const LEN: usize>(weights: &[f32; LEN], counts: &[f32; LEN]) -> f32 {
    let peak = peak(weights);
    if peak.abs() < TINY {
        return 0.0;
    }
    let first = f32::from(STEPS[0]);
    let (product, square) = sums(1.0 / (-peak / first), weights, counts);
    let mut scale = if square > 0.0 { product / square } else { 0.0 };
    let mut best = scale * product;
    for step in -7..=7 {
        let (product, square) = sums((step as f32 + first) / peak, weights, counts);
        if square > 0.0 && product * product > best * square {
            scale = product / square;
            best = scale * product;
        }
    }
    scale
}

/// `sum w step x` and `sum w step^2` of the steps that a scale gives.
#[inline(always)]
fn sums<const LEN: usize>(inverse: f32, weights: &[f32; LEN], counts: &[f32; LEN]) -> (f32, f32) {
    let (mut product, mut square) = (0.0, 0.0);
    for (weight, count) in weights.iter().zip(counts) {
        let step = f32::from(STEPS[usize::from(place_of(inverse * weight))]);
        product += count * step * weight;
        square += count * step * step;
    }
    (product, square)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published rule: between two steps, the lower one only if it is strictly nearer.
    fn published(value: f32) -> u8 {
        let step = |place: usize| f32::from(STEPS[place]);
        if value <= step(0) {
            return 0;
        }
        let Some(upper) = (1..16).find(|place| value < step(*place)) else { return 15 };
        if value - step(upper - 1) < step(upper) - value { upper as u8 - 1 } else { upper as u8 }
    }

    #[test]
    fn the_nearest_step_is_found() {
        for half in HALVES {
            for value in [half.next_down(), half, half.next_up()] {
                assert_eq!(place_of(value), published(value), "of {value}");
                assert_eq!(places_of(&[value; 2]), [published(value); 2], "of {value}");
            }
        }
        for value in (-13_000..13_000).map(|hundredths| hundredths as f32 / 100.0) {
            assert_eq!(place_of(value), published(value), "of {value}");
        }
        for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0, 1e-40, -1e-40] {
            assert_eq!(place_of(value), published(value), "of {value}");
        }
    }
}
