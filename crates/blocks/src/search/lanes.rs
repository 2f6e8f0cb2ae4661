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
    /// The same for a number below [`NEAREST_END`] in magnitude. For others, any number.
    #[inline(always)]
    fn nearest_of_small(self, low: i32, high: i32) -> Self {
        self.nearest(low, high)
    }
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

/// Where the magnitudes end that [`Lanes::nearest_of_small`] takes.
const NEAREST_END: f32 = 4_194_303.0;

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

/// Whether all elements are finite.
#[inline(always)]
fn are_finite<V: Lanes, const LEN: usize>(columns: &Columns<V, LEN>) -> bool {
    let (zero, mut others) = (V::splat(0.0), V::splat(0.0));
    for column in columns {
        others = others + zero.or_else(column.abs().is_below(V::splat(f32::INFINITY)), V::splat(1.0));
    }
    !V::any(zero.is_below(others))
}

/// Code of a number. If `SMALL`, its magnitude is below [`NEAREST_END`].
#[inline(always)]
fn code_of<V: Lanes, const SMALL: bool>(number: V, low: i32, high: i32) -> V {
    if SMALL { number.nearest_of_small(low, high) } else { number.nearest(low, high) }
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
    let (is_flat, are_finite) = (highest.is_equal(lowest), are_finite(weights));
    for number in 0..=tries.last {
        inverse = V::splat(tries.first + tries.step * number as f32 + tries.top as f32) / (highest - low);
        // The numbers lie between those of the lowest and of the highest weight. Flat lanes are dropped.
        let is_small = |weight: V| (inverse * (weight - low)).abs().is_below(V::splat(NEAREST_END));
        let others = zero.or_else(V::both(is_small(lowest), is_small(highest)), V::splat(1.0));
        let is_small = are_finite && !V::any(zero.is_below(zero.or_else(is_flat, others)));
        let line = (inverse, low);
        let [codes_sum, squares_sum, products_sum] = match is_small {
            true => affine_sums::<V, LEN, true>(tries.top, line, weights, counts, &mut codes),
            false => affine_sums::<V, LEN, false>(tries.top, line, weights, counts, &mut codes),
        };
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
    scale.replace(is_flat, zero);
    low.replace(is_flat, lowest);
    best_inverse.replace(is_flat, zero);
    let codes = affine_codes(tries.top, best_inverse, best_low, weights);
    Found { scale, minimum: low * V::splat(-1.0), codes }
}

/// The codes of a try, and the sums of counts times codes, squared codes, and products of codes and weights.
#[inline(always)]
fn affine_sums<V: Lanes, const LEN: usize, const SMALL: bool>(
    top: i32,
    (inverse, low): (V, V),
    weights: &Columns<V, LEN>,
    counts: &Columns<V, LEN>,
    codes: &mut Columns<V, LEN>,
) -> [V; 3] {
    let zero = V::splat(0.0);
    let (mut codes_sum, mut squares_sum, mut products_sum) = (zero, zero, zero);
    for ((weight, count), slot) in weights.iter().zip(counts).zip(codes) {
        let code = code_of::<V, SMALL>(inverse * (*weight - low), 0, top);
        let counted = *count * code;
        *slot = code;
        codes_sum = codes_sum + counted;
        squares_sum = squares_sum + counted * code;
        products_sum = products_sum + counted * *weight;
    }
    [codes_sum, squares_sum, products_sum]
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
    // Lanes of zeros, in which numbers are no small ones, are dropped.
    match are_finite(weights) {
        true => signed_of::<V, LEN, true>(levels, weights, counts),
        false => signed_of::<V, LEN, false>(levels, weights, counts),
    }
}

#[inline(always)]
fn signed_of<V: Lanes, const LEN: usize, const SMALL: bool>(
    levels: i32,
    weights: &Columns<V, LEN>,
    counts: &Columns<V, LEN>,
) -> Found<V, LEN> {
    let (zero, top) = (V::splat(0.0), levels as f32);
    let peak = peak(weights);
    let mut counted = *counts;
    for (count, weight) in counted.iter_mut().zip(weights) {
        *count = *count * *weight;
    }
    let sums = |inverse| signed_sums::<V, LEN, SMALL>(levels, inverse, weights, (counts, &counted));
    let mut inverse = V::splat(-top) / peak;
    let (product, square) = sums(inverse);
    let scale = zero.or_else(square.is_equal(zero), product / square);
    let mut best = Best { scale, best: scale * product };
    for step in (-9..=9).filter(|step| *step != 0) {
        let tried = V::splat(-(top + 0.1 * step as f32)) / peak;
        let is_better = best.improve(sums(tried));
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

/// The sums of products of codes and weights, and of squared codes. `counted` are the counts times the weights.
#[inline(always)]
fn signed_sums<V: Lanes, const LEN: usize, const SMALL: bool>(
    levels: i32,
    inverse: V,
    weights: &Columns<V, LEN>,
    (counts, counted): (&Columns<V, LEN>, &Columns<V, LEN>),
) -> (V, V) {
    let (mut product, mut square) = (V::splat(0.0), V::splat(0.0));
    for ((weight, count), counted) in weights.iter().zip(counts).zip(counted) {
        let code = code_of::<V, SMALL>(inverse * *weight, -levels, levels - 1);
        product = product + *counted * code;
        square = square + *count * code * code;
    }
    (product, square)
}

/// [`descent::search`](super::descent::search) of each lane of `N` vectors of groups. A lane whose sweep changes
/// nothing stays as it is in the sweeps that other lanes still need.
///
/// Each step depends on the one before it in its vector. With two vectors, one is computed while the other waits.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several arrays of N; the compiler keeps them in registers")]
pub(crate) fn descent<V: Lanes, const LEN: usize, const N: usize>(
    levels: i32,
    weights: [&Columns<V, LEN>; N],
    counts: [&Columns<V, LEN>; N],
) -> [Found<V, LEN>; N] {
    let zero = V::splat(0.0);
    let (mut sums, mut codes, mut counted) = ([(zero, zero); N], [[zero; LEN]; N], [[zero; LEN]; N]);
    for n in 0..N {
        let inverse = V::splat(-(levels as f32)) / peak(weights[n]);
        for (counted, (count, weight)) in counted[n].iter_mut().zip(counts[n].iter().zip(weights[n])) {
            *counted = *count * *weight;
        }
        sums[n] = signed_sums::<V, LEN, false>(levels, inverse, weights[n], (counts[n], &counted[n]));
        codes[n] = signed_codes(levels, inverse, weights[n]);
    }
    for _ in 0..super::descent::SWEEPS {
        let mut changes = zero;
        for element in 0..LEN {
            for n in 0..N {
                let values = (weights[n][element], counts[n][element], counted[n][element]);
                let (code, found, change) = better_code(levels, values, codes[n][element], sums[n]);
                codes[n][element] = code;
                sums[n] = found;
                changes = changes + change;
            }
        }
        if !V::any(zero.is_below(changes)) {
            break;
        }
    }
    let mut found = [(); N].map(|()| Found { scale: zero, minimum: zero, codes: [zero; LEN] });
    for n in 0..N {
        let is_zero = peak(weights[n]).abs().is_below(V::splat(TINY));
        let (product, square) = sums[n];
        let scale = (product / square).or_else(zero.is_below(square), zero);
        found[n].scale = zero.or_else(is_zero, scale);
        for (stored, code) in found[n].codes.iter_mut().zip(&codes[n]) {
            *stored = zero.or_else(is_zero, *code + V::splat(levels as f32));
        }
    }
    found
}

/// A step of a descent: the code of an element, the sums of products and of squares, and 1 in the lanes whose code
/// became a better one.
#[inline(always)]
fn better_code<V: Lanes>(
    levels: i32,
    (weight, count, counted): (V, V, V),
    code: V,
    (product, square): (V, V),
) -> (V, (V, V), V) {
    let zero = V::splat(0.0);
    let others_product = product - counted * code;
    let others_square = square - count * code * code;
    let new = (weight * others_square / others_product).nearest(-levels, levels - 1);
    let new_product = others_product + counted * new;
    let new_square = others_square + count * new * new;
    // With the old code as the new one, the sums may be rounded differently.
    let is_new = (code - new).abs();
    let is_better = V::both(
        V::both(zero.is_below(others_product), zero.is_below(is_new)),
        V::both(
            zero.is_below(new_square),
            (product * product * new_square).is_below(new_product * new_product * square),
        ),
    );
    let sums = (new_product.or_else(is_better, product), new_square.or_else(is_better, square));
    (new.or_else(is_better, code), sums, V::splat(1.0).or_else(is_better, zero))
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
