//! The searches for several groups at once, one group a lane of vectors. Each lane does the operations of the scalar
//! search in the same order, so it finds the same bits; what the scalar search skips, a lane computes and drops.
//!
//! ```text
//!             lane 0   lane 1   ...  lane L - 1
//!  vector 0  │ x[0] │ x[0] │       │ x[0] │         element 0 of each group
//!  vector 1  │ x[1] │ x[1] │       │ x[1] │
//! ```

mod affine;
mod codebook;
mod descent;
mod signed;

pub(crate) use affine::affine;
pub(crate) use codebook::codebook;
pub(crate) use descent::descent;
pub(crate) use signed::signed;

use super::affine::Tries;
use std::ops::{Add, Div, Mul, Sub};

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
    /// The first [`Lanes::LANES`] numbers; panics if there are fewer.
    fn load(numbers: &[f32]) -> Self;
    /// The lanes, followed by zeros.
    fn store(self) -> [f32; LANES_MAX];
    /// The lanes of both, alternating: first those of the lower halves, then those of the upper halves.
    fn zip(self, other: Self) -> (Self, Self);
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
    /// The lesser of both; any of them if one is NaN.
    fn min(self, other: Self) -> Self;
    /// The greater of both; any of them if one is NaN.
    fn max(self, other: Self) -> Self;
    /// The nearest integer as [`nearest`](super::nearest) finds it, limited to `low ..= high`.
    fn nearest(self, low: i32, high: i32) -> Self;
    /// Whether [`Lanes::nearest_in_table`] is faster than limiting the nearest integer.
    const HAS_TABLE: bool = false;
    /// The numbers of [`Lanes::nearest_in_table`] are greater than the first and less than the second.
    const TABLE_RANGE: (f32, f32) = (-8.5, 23.5);
    /// [`Lanes::nearest`] with limits 0 and `high`, which is at most 15, of a number in [`Lanes::TABLE_RANGE`].
    #[inline(always)]
    fn nearest_in_table(self, high: i32) -> Self {
        self.nearest(0, high)
    }
    /// `self < other`, false for NaN.
    fn is_below(self, other: Self) -> Self::Mask;
    fn is_equal(self, other: Self) -> Self::Mask;
    fn both(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    fn either(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    fn all(mask: Self::Mask) -> bool;
    fn any(mask: Self::Mask) -> bool;
    /// `self` where the condition holds, `other` elsewhere.
    fn or_else(self, mask: Self::Mask, other: Self) -> Self;

    /// `other` where the condition holds.
    #[inline(always)]
    fn replace(&mut self, mask: Self::Mask, other: Self) {
        *self = other.or_else(mask, *self);
    }
}

/// Where the magnitudes end that [`nearest_of_small`] takes.
const SMALL_END: f32 = 4_194_303.0;

/// The integer nearest to a number below [`SMALL_END`] in magnitude, halves to even. For others, any number.
#[inline(always)]
fn nearest_of_small<V: Lanes>(number: V) -> V {
    let shift = V::splat(12_582_912.0);
    number + shift - shift
}

/// How the nearest integer is limited, for [`code_of`].
///
/// These are constants instead of closures because every function between the entry of a variant and the vector
/// operations must be inlined.
mod limits {
    /// It is not, for small numbers.
    pub const NONE: u8 = 0;
    /// From below, for small numbers.
    pub const LOWER: u8 = 1;
    /// From above, for small numbers.
    pub const UPPER: u8 = 2;
    /// On both sides, for small numbers.
    pub const BOTH: u8 = 3;
    /// By [`Lanes::nearest_in_table`](super::Lanes::nearest_in_table).
    pub const TABLE: u8 = 4;
    /// On both sides, for any numbers.
    pub const ANY: u8 = 5;
}

/// The nearest integer, limited to `low ..= high`.
#[inline(always)]
fn code_of<V: Lanes, const LIMITS: u8>(number: V, low: i32, high: i32) -> V {
    match LIMITS {
        limits::NONE => nearest_of_small(number),
        limits::LOWER => nearest_of_small(number).max(V::splat(low as f32)),
        limits::UPPER => nearest_of_small(number).min(V::splat(high as f32)),
        limits::BOTH => nearest_of_small(number).max(V::splat(low as f32)).min(V::splat(high as f32)),
        limits::TABLE => number.nearest_in_table(high),
        _ => number.nearest(low, high),
    }
}

/// Element by element, that of each group.
pub(crate) type Columns<V, const LEN: usize> = [V; LEN];

/// The elements of at most `V::LANES` groups; missing ones are zero. `LEN` is a multiple of `V::LANES`.
#[inline(always)]
pub(crate) fn columns<V: Lanes, const LEN: usize>(groups: &[[f32; LEN]]) -> Columns<V, LEN> {
    let mut columns = [V::splat(0.0); LEN];
    for (number, square) in columns.chunks_exact_mut(V::LANES).enumerate() {
        for (row, group) in square.iter_mut().zip(groups) {
            *row = V::load(&group[number * V::LANES..]);
        }
        transpose(square);
    }
    columns
}

/// Exchanges rows and lanes of as many rows as there are lanes.
///
/// A row's number and the lane are the upper and the lower digits of an element's place. Each round rotates the binary
/// digits of all places by one.
#[inline(always)]
fn transpose<V: Lanes>(rows: &mut [V]) {
    let mut rotated = [V::splat(0.0); LANES_MAX];
    for _ in 0..V::LANES.ilog2() {
        let (upper, lower) = rows.split_at(V::LANES / 2);
        for ((upper, lower), pair) in upper.iter().zip(lower).zip(rotated.as_chunks_mut::<2>().0) {
            *pair = upper.zip(*lower).into();
        }
        rows.copy_from_slice(&rotated[..V::LANES]);
    }
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

/// A scale, a minimum and codes for each lane.
pub(crate) struct Found<V, const LEN: usize> {
    pub scale: V,
    /// The minimum with its sign turned; 0 for a search without minima.
    pub minimum: V,
    /// The codes as they are stored.
    pub codes: Columns<V, LEN>,
}

impl<V: Lanes, const LEN: usize> Found<V, LEN> {
    /// What [`affine`] finds.
    #[inline(always)]
    pub fn affine(tries: Tries, weights: &Columns<V, LEN>, counts: &Columns<V, LEN>) -> Found<V, LEN> {
        let [line] = affine(tries, [weights], [counts]);
        Found { scale: line.scale, minimum: line.minimum, codes: affine::codes(tries.top, &line, weights) }
    }

    /// What [`signed`] finds.
    #[inline(always)]
    pub fn signed(levels: i32, weights: &Columns<V, LEN>, counts: &Columns<V, LEN>) -> Found<V, LEN> {
        let scale = signed(levels, weights, counts);
        Found { scale: scale.scale, minimum: V::splat(0.0), codes: signed::codes(levels, &scale, weights) }
    }
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
