//! [`affine`](crate::search::affine) in lanes.

use super::{Columns, Lanes, SMALL_END, are_finite, code_of, limits};
use crate::search::affine::Tries;

/// A scale and a minimum for each lane.
#[derive(Clone, Copy)]
pub(crate) struct Line<V> {
    pub scale: V,
    /// The minimum with its sign turned.
    pub minimum: V,
    /// Inverse scale used for the codes: see [`codes`].
    inverse: V,
    code_low: V,
}

/// [`affine::search`](crate::search::affine::search) of each lane of `N` vectors of groups.
///
/// Each try depends on the one before it in its vector. With two vectors, one is computed while the other waits.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several arrays of N; the compiler keeps them in registers")]
pub(crate) fn affine<V: Lanes, const LEN: usize, const N: usize>(
    tries: Tries,
    weights: [&Columns<V, LEN>; N],
    counts: [&Columns<V, LEN>; N],
) -> [Line<V>; N] {
    let zero = V::splat(0.0);
    let mut groups = [Group::new(weights[0], counts[0]); N];
    let mut codes = [[zero; LEN]; N];
    let mut best = [Try { scale: zero, low: zero, inverse: zero, code_low: zero, determinant: zero }; N];
    for n in 0..N {
        if n > 0 {
            groups[n] = Group::new(weights[n], counts[n]);
        }
        best[n] = Try::first(tries.top, &groups[n]);
        for (code, weight) in codes[n].iter_mut().zip(weights[n]) {
            *code = (best[n].inverse * (*weight - best[n].code_low)).nearest(0, tries.top);
        }
    }
    let mut least = errors(tries, &codes, &best, &groups);
    for number in 0..=tries.last {
        let top = V::splat(tries.first + tries.step * number as f32 + tries.top as f32);
        let mut found = best;
        for n in 0..N {
            let inverse = top / (groups[n].highest - best[n].low);
            found[n] = groups[n].attempt(tries.top, (inverse, best[n].low), &mut codes[n]);
        }
        let found_errors = errors(tries, &codes, &found, &groups);
        for n in 0..N {
            let is_less = found_errors[n].is_below(least[n]);
            let is_better = V::both(V::splat(0.0).is_below(found[n].determinant), is_less);
            least[n].replace(is_better, found_errors[n]);
            best[n].replace(is_better, &found[n]);
        }
    }
    let mut lines = [Line { scale: zero, minimum: zero, inverse: zero, code_low: zero }; N];
    for n in 0..N {
        lines[n] = groups[n].line(&best[n]);
    }
    lines
}

/// The codes of a line, as numbers.
#[inline(always)]
pub(super) fn codes<V: Lanes, const LEN: usize>(
    top: i32,
    line: &Line<V>,
    weights: &Columns<V, LEN>,
) -> Columns<V, LEN> {
    let mut codes = *weights;
    for code in &mut codes {
        *code = (line.inverse * (*code - line.code_low)).nearest(0, top);
    }
    codes
}

/// The weights of the groups of a vector, and the sums that no code changes.
#[derive(Clone, Copy)]
struct Group<'a, V, const LEN: usize> {
    weights: &'a Columns<V, LEN>,
    counts: &'a Columns<V, LEN>,
    lowest: V,
    highest: V,
    count_sum: V,
    weight_sum: V,
    are_finite: bool,
}

/// A scale and a lowest number, and what gives their codes.
#[derive(Clone, Copy)]
struct Try<V> {
    scale: V,
    low: V,
    inverse: V,
    code_low: V,
    determinant: V,
}

impl<V: Lanes> Try<V> {
    /// From the lowest to the highest weight.
    #[inline(always)]
    fn first<const LEN: usize>(top: i32, group: &Group<V, LEN>) -> Try<V> {
        let (inverse, low) = (V::splat(top as f32) / (group.highest - group.lowest), group.lowest);
        Try { scale: V::splat(1.0) / inverse, low, inverse, code_low: low, determinant: V::splat(0.0) }
    }

    #[inline(always)]
    fn replace(&mut self, mask: V::Mask, other: &Try<V>) {
        self.scale.replace(mask, other.scale);
        self.low.replace(mask, other.low);
        self.inverse.replace(mask, other.inverse);
        self.code_low.replace(mask, other.code_low);
    }
}

impl<'a, V: Lanes, const LEN: usize> Group<'a, V, LEN> {
    #[inline(always)]
    fn new(weights: &'a Columns<V, LEN>, counts: &'a Columns<V, LEN>) -> Group<'a, V, LEN> {
        let (lowest, highest) = extremes(weights);
        let (mut count_sum, mut weight_sum) = (counts[0], counts[0] * weights[0]);
        for (weight, count) in weights.iter().zip(counts).skip(1) {
            count_sum = count_sum + *count;
            weight_sum = weight_sum + *count * *weight;
        }
        Group { weights, counts, lowest, highest, count_sum, weight_sum, are_finite: are_finite(weights) }
    }

    /// The line of least squares for the codes of a line, which are written to `codes`.
    #[inline(always)]
    fn attempt(&self, top: i32, (inverse, code_low): (V, V), codes: &mut Columns<V, LEN>) -> Try<V> {
        let line = (inverse, code_low);
        let [codes_sum, squares_sum, products_sum] =
            if V::HAS_TABLE && top <= 15 && self.are_between(line, V::TABLE_RANGE) {
                self.sums::<{ limits::TABLE }>(top, line, codes)
            } else if self.are_between(line, (-0.5, top as f32 + 0.5)) {
                self.sums::<{ limits::NONE }>(top, line, codes)
            } else if self.are_between(line, (-SMALL_END, SMALL_END)) {
                self.sums::<{ limits::BOTH }>(top, line, codes)
            } else {
                self.sums::<{ limits::ANY }>(top, line, codes)
            };
        let (zero, count_sum, weight_sum) = (V::splat(0.0), self.count_sum, self.weight_sum);
        let determinant = count_sum * squares_sum - codes_sum * codes_sum;
        let mut low = (squares_sum * weight_sum - codes_sum * products_sum) / determinant;
        let mut scale = (count_sum * products_sum - weight_sum * codes_sum) / determinant;
        let is_above = zero.is_below(low);
        if V::any(is_above) {
            scale.replace(is_above, products_sum / squares_sum);
            low.replace(is_above, zero);
        }
        Try { scale, low, inverse, code_low, determinant }
    }

    /// Whether all numbers of a line are greater than the first of the limits and less than the second. They lie
    /// between those of the lowest and of the highest weight. Groups of equal weights are dropped,
    /// so their numbers do not matter.
    #[inline(always)]
    fn are_between(&self, (inverse, code_low): (V, V), limits: (f32, f32)) -> bool {
        let (first, last) = (inverse * (self.lowest - code_low), inverse * (self.highest - code_low));
        let (low, high) = (V::splat(limits.0), V::splat(limits.1));
        let is_first = V::both(low.is_below(first), first.is_below(high));
        let is_last = V::both(low.is_below(last), last.is_below(high));
        self.are_finite && V::all(V::either(self.highest.is_equal(self.lowest), V::both(is_first, is_last)))
    }

    /// The codes of a line, and the sums of counts times codes, squared codes, and products of codes and weights.
    #[inline(always)]
    fn sums<const LIMITS: u8>(&self, top: i32, (inverse, low): (V, V), codes: &mut Columns<V, LEN>) -> [V; 3] {
        let zero = V::splat(0.0);
        let (mut codes_sum, mut squares_sum, mut products_sum) = (zero, zero, zero);
        for ((weight, count), slot) in self.weights.iter().zip(self.counts).zip(codes) {
            let code = code_of::<V, LIMITS>(inverse * (*weight - low), 0, top);
            let counted = *count * code;
            *slot = code;
            codes_sum = codes_sum + counted;
            squares_sum = squares_sum + counted * code;
            products_sum = products_sum + counted * *weight;
        }
        [codes_sum, squares_sum, products_sum]
    }

    /// The result of a search whose best try is `best`.
    #[inline(always)]
    fn line(&self, best: &Try<V>) -> Line<V> {
        let (zero, is_flat) = (V::splat(0.0), self.highest.is_equal(self.lowest));
        Line {
            scale: zero.or_else(is_flat, best.scale),
            minimum: self.lowest.or_else(is_flat, best.low) * V::splat(-1.0),
            inverse: zero.or_else(is_flat, best.inverse),
            code_low: best.code_low,
        }
    }
}

/// The lowest weight, 0 at most, and the highest.
#[inline(always)]
fn extremes<V: Lanes, const LEN: usize>(weights: &Columns<V, LEN>) -> (V, V) {
    let (mut lowest, mut highest) = (weights[0], weights[0]);
    for weight in weights {
        lowest.replace(weight.is_below(lowest), *weight);
        highest.replace(highest.is_below(*weight), *weight);
    }
    let zero = V::splat(0.0);
    lowest.replace(zero.is_below(lowest), zero);
    (lowest, highest)
}

/// The weighted errors of tries with these codes.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several arrays of N; the compiler keeps them in registers")]
fn errors<V: Lanes, const LEN: usize, const N: usize>(
    tries: Tries,
    codes: &[Columns<V, LEN>; N],
    found: &[Try<V>; N],
    groups: &[Group<V, LEN>; N],
) -> [V; N] {
    let mut sums = [V::splat(0.0); N];
    for element in 0..LEN {
        for n in 0..N {
            let (weight, count) = (groups[n].weights[element], groups[n].counts[element]);
            let distance = found[n].scale * codes[n][element] + found[n].low - weight;
            sums[n] = sums[n] + count * if tries.is_absolute { distance.abs() } else { distance * distance };
        }
    }
    sums
}
