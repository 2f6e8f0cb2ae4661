//! [`codebook`](crate::search::codebook) in lanes.

use super::signed::{Best, peak};
use super::{Columns, Lanes};
use crate::search::TINY;
use crate::search::codebook::{HALVES, STEPS};

/// [`codebook::search`](crate::search::codebook::search) of each lane: the scales.
#[inline(always)]
pub(crate) fn codebook<V: Lanes, const LEN: usize>(weights: &Columns<V, LEN>, counts: &Columns<V, LEN>) -> V {
    let (zero, first) = (V::splat(0.0), f32::from(STEPS[0]));
    let peak = peak(weights);
    let inverse = V::splat(1.0) / (peak * V::splat(-1.0) / V::splat(first));
    let (product, square) = codebook_sums(inverse, weights, counts);
    let scale = (product / square).or_else(zero.is_below(square), zero);
    let mut best = Best { scale, best: scale * product };
    for step in -7..=7 {
        let inverse = V::splat(step as f32 + first) / peak;
        best.improve(codebook_sums(inverse, weights, counts));
    }
    zero.or_else(peak.abs().is_below(V::splat(TINY)), best.scale)
}

#[inline(always)]
fn codebook_sums<V: Lanes, const LEN: usize>(
    inverse: V,
    weights: &Columns<V, LEN>,
    counts: &Columns<V, LEN>,
) -> (V, V) {
    let (mut product, mut square) = (V::splat(0.0), V::splat(0.0));
    for (weight, count) in weights.iter().zip(counts) {
        let value = inverse * *weight;
        // From the top down, so that NaN stays on the last step.
        let mut step = V::splat(f32::from(STEPS[15]));
        for (half, lower) in HALVES.iter().zip(&STEPS).rev() {
            step.replace(value.is_below(V::splat(*half)), V::splat(f32::from(*lower)));
        }
        product = product + *count * step * *weight;
        square = square + *count * step * step;
    }
    (product, square)
}
