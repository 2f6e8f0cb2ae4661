//! The searches for several groups at once, one group a lane of vectors. Each lane does the operations of the scalar
//! search in the same order, so it finds the same bits; what the scalar search skips, a lane computes and drops.
//!
//! ```text
//!             lane 0   lane 1   ...  lane L - 1
//!  vector 0  │ x[0] │ x[0] │       │ x[0] │         element 0 of each group
//!  vector 1  │ x[1] │ x[1] │       │ x[1] │
//! ```

use std::ops::{Add, Div, Mul, Sub};

use super::TINY;
use super::affine::Tries;
use super::codebook::{HALVES, STEPS};

/// Lanes of the widest vector.
pub(crate) const LANES_MAX: usize = 16;

/// A vector of f32. Each operation is that of the scalar rule in each lane, rounded once.
pub(crate) trait Lanes:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// Lanes of the vector.
    const LANES: usize;
    /// A condition in each lane.
    type Mask: Copy;

    fn splat(number: f32) -> Self;
    /// The first [`Lanes::LANES`] numbers.
    fn load(numbers: &[f32; LANES_MAX]) -> Self;
    /// The lanes, followed by zeros.
    fn store(self) -> [f32; LANES_MAX];
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
    /// The nearest integer as [`nearest`](super::nearest) finds it, limited to `low ..= high`.
    fn nearest(self, low: i32, high: i32) -> Self;
    /// `self < other`, false for NaN.
    fn is_below(self, other: Self) -> Self::Mask;
    fn is_equal(self, other: Self) -> Self::Mask;
    fn both(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    fn any(mask: Self::Mask) -> bool;
    /// `self` where the condition holds, `other` elsewhere.
    fn or_else(self, mask: Self::Mask, other: Self) -> Self;

    /// `other` where the condition holds.
    #[inline(always)]
    fn replace(&mut self, mask: Self::Mask, other: Self) {
        *self = other.or_else(mask, *self);
    }
}

/// Element by element, that of each group.
pub(crate) type Columns<V, const LEN: usize> = [V; LEN];

/// The elements of at most `V::LANES` groups; missing ones are zero.
#[inline(always)]
pub(crate) fn columns<V: Lanes, const LEN: usize>(groups: &[[f32; LEN]]) -> Columns<V, LEN> {
    let mut columns = [[0.0; LANES_MAX]; LEN];
    for (lane, group) in groups.iter().enumerate().take(V::LANES) {
        for (column, element) in columns.iter_mut().zip(group) {
            column[lane] = *element;
        }
    }
    let mut vectors = [V::splat(0.0); LEN];
    for (vector, column) in vectors.iter_mut().zip(&columns) {
        *vector = V::load(column);
    }
    vectors
}

/// The elements as bytes, which hold them.
#[inline(always)]
pub(crate) fn bytes<V: Lanes, const LEN: usize>(columns: &Columns<V, LEN>) -> [[u8; LANES_MAX]; LEN] {
    let mut bytes = [[0; LANES_MAX]; LEN];
    for (bytes, column) in bytes.iter_mut().zip(columns) {
        for (byte, number) in bytes.iter_mut().zip(column.store()) {
            *byte = number as i32 as u8;
        }
    }
    bytes
}

/// The square of each element.
#[inline(always)]
pub(crate) fn squares<V: Lanes, const LEN: usize>(columns: &Columns<V, LEN>) -> Columns<V, LEN> {
    let mut squares = *columns;
    for square in &mut squares {
        *square = *square * *square;
    }
    squares
}

/// [`magnitudes_above_mean`](super::magnitudes_above_mean) of each lane.
#[inline(always)]
pub(crate) fn magnitudes_above_mean<V: Lanes, const LEN: usize>(weights: &Columns<V, LEN>) -> Columns<V, LEN> {
    let (root, mut counts) = ((sum(&squares(weights)) / V::splat(LEN as f32)).sqrt(), *weights);
    for count in &mut counts {
        *count = root + count.abs();
    }
    counts
}

/// [`importance_of`](super::importance_of) of each lane.
#[inline(always)]
pub(crate) fn importance_of<V: Lanes, const LEN: usize>(
    weights: &Columns<V, LEN>,
    importance: &Columns<V, LEN>,
    mean_square: V,
) -> Columns<V, LEN> {
    let mut counts = *importance;
    for (count, weight) in counts.iter_mut().zip(weights) {
        *count = *count * (mean_square + *weight * *weight).sqrt();
    }
    counts
}

/// The sum over the elements.
#[inline(always)]
pub(crate) fn sum<V: Lanes, const LEN: usize>(columns: &Columns<V, LEN>) -> V {
    let mut sum = V::splat(0.0);
    for column in columns {
        sum = sum + *column;
    }
    sum
}

/// What a search found for each lane.
pub(crate) struct Found<V, const LEN: usize> {
    pub scale: V,
    /// The minimum with its sign turned; 0 for a search without minima.
    pub minimum: V,
    /// The codes as they are stored.
    pub codes: Columns<V, LEN>,
}

/// [`affine::search`](super::affine::search) of each lane.
#[inline(always)]
pub(crate) fn affine<V: Lanes, const LEN: usize>(
    tries: Tries,
    weights: &Columns<V, LEN>,
    counts: &Columns<V, LEN>,
) -> Found<V, LEN> {
    let (zero, top) = (V::splat(0.0), V::splat(tries.top as f32));
    let (lowest, highest) = extremes(weights);
    let (mut count_sum, mut weight_sum) = (counts[0], counts[0] * weights[0]);
    for (weight, count) in weights.iter().zip(counts).skip(1) {
        count_sum = count_sum + *count;
        weight_sum = weight_sum + *count * *weight;
    }
    let (mut inverse, mut low) = (top / (highest - lowest), lowest);
    let (mut best_inverse, mut best_low) = (inverse, low);
    let mut scale = V::splat(1.0) / inverse;
    let mut codes = affine_codes(tries.top, inverse, low, weights);
    let mut least = error(tries, &codes, (scale, low), weights, counts);
    for number in 0..=tries.last {
        inverse = V::splat(tries.first + tries.step * number as f32 + tries.top as f32) / (highest - low);
        let (mut codes_sum, mut squares_sum, mut products_sum) = (zero, zero, zero);
        for ((weight, count), slot) in weights.iter().zip(counts).zip(&mut codes) {
            let code = (inverse * (*weight - low)).nearest(0, tries.top);
            let counted = *count * code;
            *slot = code;
            codes_sum = codes_sum + counted;
            squares_sum = squares_sum + counted * code;
            products_sum = products_sum + counted * *weight;
        }
        let determinant = count_sum * squares_sum - codes_sum * codes_sum;
        let line_low = (squares_sum * weight_sum - codes_sum * products_sum) / determinant;
        let line_scale = (count_sum * products_sum - weight_sum * codes_sum) / determinant;
        let is_above = zero.is_below(line_low);
        let tried_scale = (products_sum / squares_sum).or_else(is_above, line_scale);
        let tried_low = zero.or_else(is_above, line_low);
        let found = error(tries, &codes, (tried_scale, tried_low), weights, counts);
        let is_better = V::both(zero.is_below(determinant), found.is_below(least));
        least.replace(is_better, found);
        best_inverse.replace(is_better, inverse);
        best_low.replace(is_better, low);
        scale.replace(is_better, tried_scale);
        low.replace(is_better, tried_low);
    }
    let is_flat = highest.is_equal(lowest);
    scale.replace(is_flat, zero);
    low.replace(is_flat, lowest);
    best_inverse.replace(is_flat, zero);
    let codes = affine_codes(tries.top, best_inverse, best_low, weights);
    Found { scale, minimum: low * V::splat(-1.0), codes }
}

#[inline(always)]
fn affine_codes<V: Lanes, const LEN: usize>(
    top: i32,
    inverse: V,
    low: V,
    weights: &Columns<V, LEN>,
) -> Columns<V, LEN> {
    let mut codes = *weights;
    for code in &mut codes {
        *code = (inverse * (*code - low)).nearest(0, top);
    }
    codes
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

/// The weighted error.
#[inline(always)]
fn error<V: Lanes, const LEN: usize>(
    tries: Tries,
    codes: &Columns<V, LEN>,
    (scale, low): (V, V),
    weights: &Columns<V, LEN>,
    counts: &Columns<V, LEN>,
) -> V {
    let mut sum = V::splat(0.0);
    for ((weight, count), code) in weights.iter().zip(counts).zip(codes) {
        let distance = scale * *code + low - *weight;
        sum = sum + *count * if tries.is_absolute { distance.abs() } else { distance * distance };
    }
    sum
}

/// The weight of largest magnitude, the first of several; +0.0 where all are zero.
#[inline(always)]
fn peak<V: Lanes, const LEN: usize>(weights: &Columns<V, LEN>) -> V {
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
struct Best<V> {
    scale: V,
    best: V,
}

impl<V: Lanes> Best<V> {
    /// Takes the scale of a try where its error is smaller. Returns these lanes.
    #[inline(always)]
    fn improve(&mut self, (product, square): (V, V)) -> V::Mask {
        let is_better = V::both(V::splat(0.0).is_below(square), (self.best * square).is_below(product * product));
        let scale = product / square;
        self.scale.replace(is_better, scale);
        self.best.replace(is_better, scale * product);
        is_better
    }
}

/// [`signed::search`](super::signed::search) of each lane.
#[inline(always)]
pub(crate) fn signed<V: Lanes, const LEN: usize>(
    levels: i32,
    weights: &Columns<V, LEN>,
    counts: &Columns<V, LEN>,
) -> Found<V, LEN> {
    let (zero, top) = (V::splat(0.0), levels as f32);
    let peak = peak(weights);
    let mut inverse = V::splat(-top) / peak;
    let (product, square) = signed_sums(levels, inverse, weights, counts);
    let scale = zero.or_else(square.is_equal(zero), product / square);
    let mut best = Best { scale, best: scale * product };
    for step in (-9..=9).filter(|step| *step != 0) {
        let tried = V::splat(-(top + 0.1 * step as f32)) / peak;
        let is_better = best.improve(signed_sums(levels, tried, weights, counts));
        inverse.replace(is_better, tried);
    }
    let is_zero = peak.abs().is_below(V::splat(TINY));
    let mut codes = signed_codes(levels, inverse, weights);
    for code in &mut codes {
        *code = zero.or_else(is_zero, *code + V::splat(top));
    }
    Found { scale: zero.or_else(is_zero, best.scale), minimum: zero, codes }
}

#[inline(always)]
fn signed_codes<V: Lanes, const LEN: usize>(levels: i32, inverse: V, weights: &Columns<V, LEN>) -> Columns<V, LEN> {
    let mut codes = *weights;
    for code in &mut codes {
        *code = (inverse * *code).nearest(-levels, levels - 1);
    }
    codes
}

#[inline(always)]
fn signed_sums<V: Lanes, const LEN: usize>(
    levels: i32,
    inverse: V,
    weights: &Columns<V, LEN>,
    counts: &Columns<V, LEN>,
) -> (V, V) {
    let (mut product, mut square) = (V::splat(0.0), V::splat(0.0));
    for (weight, count) in weights.iter().zip(counts) {
        let code = (inverse * *weight).nearest(-levels, levels - 1);
        product = product + *count * *weight * code;
        square = square + *count * code * code;
    }
    (product, square)
}

/// [`descent::search`](super::descent::search) of each lane. A lane whose sweep changes nothing stays as it is in the
/// sweeps that other lanes still need.
#[inline(always)]
pub(crate) fn descent<V: Lanes, const LEN: usize>(
    levels: i32,
    weights: &Columns<V, LEN>,
    counts: &Columns<V, LEN>,
) -> Found<V, LEN> {
    let zero = V::splat(0.0);
    let peak = peak(weights);
    let inverse = V::splat(-(levels as f32)) / peak;
    let (mut product, mut square) = signed_sums(levels, inverse, weights, counts);
    let mut codes = signed_codes(levels, inverse, weights);
    for _ in 0..super::descent::SWEEPS {
        let mut has_changed = false;
        for ((weight, count), code) in weights.iter().zip(counts).zip(&mut codes) {
            let others_product = product - *count * *weight * *code;
            let others_square = square - *count * *code * *code;
            let new = (*weight * others_square / others_product).nearest(-levels, levels - 1);
            let new_product = others_product + *count * *weight * new;
            let new_square = others_square + *count * new * new;
            // With the old code as the new one, the sums may be rounded differently.
            let is_new = (*code - new).abs();
            let is_better = V::both(
                V::both(zero.is_below(others_product), zero.is_below(is_new)),
                V::both(
                    zero.is_below(new_square),
                    (product * product * new_square).is_below(new_product * new_product * square),
                ),
            );
            code.replace(is_better, new);
            product.replace(is_better, new_product);
            square.replace(is_better, new_square);
            has_changed |= V::any(is_better);
        }
        if !has_changed {
            break;
        }
    }
    let is_zero = peak.abs().is_below(V::splat(TINY));
    let scale = (product / square).or_else(zero.is_below(square), zero);
    for code in &mut codes {
        *code = zero.or_else(is_zero, *code + V::splat(levels as f32));
    }
    Found { scale: zero.or_else(is_zero, scale), minimum: zero, codes }
}

/// [`codebook::search`](super::codebook::search) of each lane: the scales.
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
