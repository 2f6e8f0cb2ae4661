//! [`signed`](crate::search::signed) in lanes.

use super::{Columns, Lanes, are_finite, code_of, limits};
use crate::search::TINY;

/// Tries that are computed together: each weight is loaded once for them.
const TOGETHER: usize = 3;
/// The tries in their order. The first four rows need no lower limit.
const TRIES: [[i32; TOGETHER]; 6] = [[-9, -8, -7], [-6, -5, -4], [-3, -2, -1], [1, 2, 3], [4, 5, 6], [7, 8, 9]];

/// A scale for each lane.
pub(crate) struct Scale<V: Lanes> {
    pub scale: V,
    /// Inverse scale used for the codes: see [`codes`].
    inverse: V,
    is_zero: V::Mask,
}

/// The weight of largest magnitude, the first of several; +0.0 where all are zero.
#[inline(always)]
pub(crate) fn peak<V: Lanes, const LEN: usize>(weights: &Columns<V, LEN>) -> V {
    let (mut largest, mut peak) = (V::splat(0.0), V::splat(0.0));
    for weight in weights {
        let magnitude = weight.abs();
        let is_larger = largest.is_below(magnitude);
        largest.replace(is_larger, magnitude);
        peak.replace(is_larger, *weight);
    }
    peak
}

/// The best scale of the tries so far, and how good it is.
pub(super) struct Best<V> {
    pub scale: V,
    pub best: V,
}

impl<V: Lanes> Best<V> {
    /// Takes the scale of a try in each lane if its error is smaller there. Returns these lanes.
    #[inline(always)]
    pub fn improve(&mut self, (product, square): (V, V)) -> V::Mask {
        let is_better = V::both(V::splat(0.0).is_below(square), (self.best * square).is_below(product * product));
        let scale = product / square;
        self.scale.replace(is_better, scale);
        self.best.replace(is_better, scale * product);
        is_better
    }
}

/// [`signed::search`](crate::search::signed::search) of each lane.
#[inline(always)]
pub(crate) fn signed<V: Lanes, const LEN: usize>(
    levels: i32,
    weights: &Columns<V, LEN>,
    counts: &Columns<V, LEN>,
) -> Scale<V> {
    let (zero, top) = (V::splat(0.0), levels as f32);
    let peak = peak(weights);
    let is_zero = peak.abs().is_below(V::splat(TINY));
    let mut counted = [zero; LEN];
    for (counted, (count, weight)) in counted.iter_mut().zip(counts.iter().zip(weights)) {
        *counted = *count * *weight;
    }
    let group = Group { levels, weights, counts, counted: &counted };
    let (are_finite, farthest) = (are_finite(weights), farthest(weights, peak));
    let mut inverse = V::splat(-top) / peak;
    let [(product, square)] = group.sums::<{ limits::ANY }, 1>([inverse]);
    let scale = zero.or_else(square.is_equal(zero), product / square);
    let mut best = Best { scale, best: scale * product };
    for steps in TRIES {
        let mut tried = [zero; TOGETHER];
        for (tried, step) in tried.iter_mut().zip(steps) {
            *tried = V::splat(-(top + 0.1 * step as f32)) / peak;
        }
        // The number of the peak is the lowest one, and that of the farthest weight the highest one. Lanes of zeros
        // are dropped.
        let is_low = 0.1 * steps[TOGETHER - 1] as f32 > 0.45;
        let mut is_high = false;
        for tried in &tried {
            is_high |= !V::all(V::either(is_zero, (*tried * farthest).is_below(V::splat(top - 0.5))));
        }
        let sums = match (are_finite, is_low, is_high) {
            (true, false, false) => group.sums::<{ limits::NONE }, TOGETHER>(tried),
            (true, false, true) => group.sums::<{ limits::UPPER }, TOGETHER>(tried),
            (true, true, false) => group.sums::<{ limits::LOWER }, TOGETHER>(tried),
            (true, true, true) => group.sums::<{ limits::BOTH }, TOGETHER>(tried),
            (false, ..) => group.sums::<{ limits::ANY }, TOGETHER>(tried),
        };
        for n in 0..TOGETHER {
            let is_better = best.improve(sums[n]);
            inverse.replace(is_better, tried[n]);
        }
    }
    Scale { scale: zero.or_else(is_zero, best.scale), inverse, is_zero }
}

/// The codes as they are stored: with `levels` added, and 0 in lanes of zeros.
#[inline(always)]
pub(super) fn codes<V: Lanes, const LEN: usize>(
    levels: i32,
    scale: &Scale<V>,
    weights: &Columns<V, LEN>,
) -> Columns<V, LEN> {
    let mut codes = *weights;
    for code in &mut codes {
        let number = (scale.inverse * *code).nearest(-levels, levels - 1);
        *code = V::splat(0.0).or_else(scale.is_zero, number + V::splat(levels as f32));
    }
    codes
}

/// The weight farthest from zero on the other side of the peak; 0 if all are on its side.
#[inline(always)]
fn farthest<V: Lanes, const LEN: usize>(weights: &Columns<V, LEN>, peak: V) -> V {
    let (mut lowest, mut highest) = (V::splat(0.0), V::splat(0.0));
    for weight in weights {
        lowest = weight.min(lowest);
        highest = weight.max(highest);
    }
    highest.or_else(peak.is_below(V::splat(0.0)), lowest)
}

/// The weights of the groups of a vector. `counted` are the counts times the weights.
pub(super) struct Group<'a, V, const LEN: usize> {
    pub levels: i32,
    pub weights: &'a Columns<V, LEN>,
    pub counts: &'a Columns<V, LEN>,
    pub counted: &'a Columns<V, LEN>,
}

impl<V: Lanes, const LEN: usize> Group<'_, V, LEN> {
    /// For each of `N` inverse scales, the sums of products of codes and weights, and of squared codes.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "several arrays of N; the compiler keeps them in registers")]
    pub fn sums<const LIMITS: u8, const N: usize>(&self, inverses: [V; N]) -> [(V, V); N] {
        let mut sums = [(V::splat(0.0), V::splat(0.0)); N];
        for ((weight, count), counted) in self.weights.iter().zip(self.counts).zip(self.counted) {
            for n in 0..N {
                let code = code_of::<V, LIMITS>(inverses[n] * *weight, -self.levels, self.levels - 1);
                let (product, square) = sums[n];
                sums[n] = (product + *counted * code, square + *count * code * code);
            }
        }
        sums
    }
}
