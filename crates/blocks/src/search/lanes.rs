//! The searches for several groups at once, one group per lane. Each lane does the operations of the scalar
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
mod nested;
mod signed;

pub(crate) use affine::affine;
pub(crate) use codebook::codebook;
pub(crate) use descent::{Swept, descent};
pub(crate) use nested::nested;
pub(crate) use signed::{peak, signed};

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

/// Exclusive limit of magnitudes for [`nearest_of_small`].
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
    /// No limit; small numbers only.
    pub const NONE: u8 = 0;
    /// A lower limit; small numbers only.
    pub const LOWER: u8 = 1;
    /// An upper limit; small numbers only.
    pub const UPPER: u8 = 2;
    /// Both limits; small numbers only.
    pub const BOTH: u8 = 3;
    /// Both limits, by [`Lanes::nearest_in_table`](super::Lanes::nearest_in_table); numbers in its range only.
    pub const TABLE: u8 = 4;
    /// Both limits; any numbers.
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

/// Vector i holds element i of each group.
pub(crate) type Columns<V, const LEN: usize> = [V; LEN];

/// The elements of at most `V::LANES` groups; missing ones are zero.
#[inline(always)]
pub(crate) fn columns<V: Lanes, const LEN: usize>(groups: &[[f32; LEN]]) -> Columns<V, LEN> {
    let mut columns = [V::splat(0.0); LEN];
    read_columns(groups, &mut columns);
    columns
}

/// Like [`columns`], but writes to `columns`, which must be all zeros. This avoids a copy of a large returned array.
#[inline(always)]
pub(crate) fn read_columns<V: Lanes, const LEN: usize>(groups: &[[f32; LEN]], columns: &mut Columns<V, LEN>) {
    const { assert!(LEN.is_multiple_of(V::LANES)) };
    for (number, square) in columns.chunks_exact_mut(V::LANES).enumerate() {
        for (row, group) in square.iter_mut().zip(groups) {
            *row = V::load(&group[number * V::LANES..]);
        }
        transpose(square);
    }
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

/// The elements, converted to u8.
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
    let mut squares = [V::splat(0.0); LEN];
    write_squares(columns, &mut squares);
    squares
}

/// [`squares`], written to `squares`.
#[inline(always)]
pub(crate) fn write_squares<V: Lanes, const LEN: usize>(columns: &Columns<V, LEN>, squares: &mut Columns<V, LEN>) {
    for (square, element) in squares.iter_mut().zip(columns) {
        *square = *element * *element;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{nearest, nested as scalar};

    const SAMPLES: [f32; 12] =
        [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-40, -1e-40, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY];

    /// Tests that run a check on each type of vectors that the processor has.
    macro_rules! each_type {
        ($($test:ident = $check:ident;)+) => {
            $(
                #[test]
                fn $test() {
                    #[cfg(target_arch = "x86_64")]
                    {
                        use std::arch::is_x86_feature_detected as has;
                        if has!("avx2") {
                            $check::<crate::avx2::lanes::Avx2>();
                        }
                        if has!("avx512f") && has!("avx512dq") && has!("avx512bw") && has!("avx512vl") {
                            $check::<crate::avx512::lanes::Avx512>();
                        }
                    }
                    #[cfg(target_arch = "aarch64")]
                    $check::<crate::neon::lanes::Neon>();
                }
            )+
        };
    }

    each_type! {
        columns_hold_an_element_of_each_group = check_columns;
        zip_alternates_the_lanes_of_both = check_zip;
        operations_equal_those_of_numbers = check_operations;
        conditions_select_lanes = check_conditions;
        integers_are_nearest_and_limited = check_nearest;
        limits_of_small_numbers_change_no_code = check_limits;
        integers_from_a_table_are_nearest_and_limited = check_table;
        nested_searches_equal_those_of_numbers = check_nested;
    }

    /// The numbers of a vector. What is stored after them must be zero.
    fn numbers<V: Lanes>(vector: V) -> Vec<f32> {
        let mut numbers = vector.store().to_vec();
        assert!(numbers.split_off(V::LANES).iter().all(|number| number.to_bits() == 0));
        numbers
    }

    fn bits(numbers: &[f32]) -> Vec<u32> {
        numbers.iter().map(|number| number.to_bits()).collect()
    }

    /// `each` of two vectors of numbers gives `expected` in each lane, for samples in every place.
    fn check_each<V: Lanes>(name: &str, each: impl Fn(V, V) -> V, expected: impl Fn(f32, f32) -> f32) {
        for shift in 0..SAMPLES.len() {
            for first in 0..SAMPLES.len() {
                let a: Vec<f32> = (0..V::LANES).map(|lane| SAMPLES[(first + lane) % SAMPLES.len()]).collect();
                let b: Vec<f32> = (0..V::LANES).map(|lane| SAMPLES[(first + lane + shift) % SAMPLES.len()]).collect();
                let found = numbers(each(V::load(&a), V::load(&b)));
                for (lane, found) in found.iter().enumerate() {
                    let expected = expected(a[lane], b[lane]);
                    let is_same = *found == expected || found.is_nan() && expected.is_nan();
                    assert!(is_same, "{name} of {} and {}: {found} is not {expected}", a[lane], b[lane]);
                }
            }
        }
    }

    fn check_operations<V: Lanes>() {
        check_each::<V>("sum", |a, b| a + b, |a, b| a + b);
        check_each::<V>("difference", |a, b| a - b, |a, b| a - b);
        check_each::<V>("product", |a, b| a * b, |a, b| a * b);
        check_each::<V>("quotient", |a, b| a / b, |a, b| a / b);
        check_each::<V>("root", |a, _| a.sqrt(), |a, _| a.sqrt());
        check_each::<V>("magnitude", |a, _| a.abs(), |a, _| a.abs());
        check_each::<V>("lesser", |a, b| a.min(b), |a, b| if a < b { a } else { b });
        check_each::<V>("greater", |a, b| a.max(b), |a, b| if a > b { a } else { b });
        check_each::<V>("constant", |_, _| V::splat(-3.5), |_, _| -3.5);
    }

    fn check_conditions<V: Lanes>() {
        let zero = V::splat(0.0);
        check_each::<V>("below", |a, b| a.or_else(a.is_below(b), b), |a, b| if a < b { a } else { b });
        check_each::<V>("equal", |a, b| zero.or_else(a.is_equal(b), a), |a, b| if a == b { 0.0 } else { a });
        let is_one = |a: f32, b: f32| f32::from(u8::from(a < b && a < 0.0));
        let one = V::splat(1.0);
        check_each::<V>("both", |a, b| one.or_else(V::both(a.is_below(b), a.is_below(zero)), zero), is_one);
        let is_one = |a: f32, b: f32| f32::from(u8::from(a < b || a < 0.0));
        check_each::<V>("either", |a, b| one.or_else(V::either(a.is_below(b), a.is_below(zero)), zero), is_one);
        let nan = V::splat(f32::NAN);
        assert!(!V::any(nan.is_below(one)) && !V::any(one.is_below(nan)) && !V::any(nan.is_equal(nan)));
        for lane in 0..V::LANES {
            let mut numbers = [0.0; LANES_MAX];
            numbers[lane] = 1.0;
            let vector = V::load(&numbers);
            assert!(V::any(vector.is_equal(one)) && !V::all(vector.is_equal(zero)), "lane {lane}");
        }
        assert!(!V::any(zero.is_equal(one)) && V::all(zero.is_equal(zero)));
    }

    fn check_zip<V: Lanes>() {
        let numbered: [f32; 2 * LANES_MAX] = std::array::from_fn(|place| place as f32);
        let (lower, upper) = V::load(&numbered).zip(V::load(&numbered[V::LANES..]));
        let expected: Vec<f32> =
            (0..V::LANES).flat_map(|place| [numbered[place], numbered[V::LANES + place]]).collect();
        assert_eq!([numbers(lower), numbers(upper)].concat(), expected);
    }

    fn check_columns<V: Lanes>() {
        for count in 0..=V::LANES {
            let group = |lane: usize| std::array::from_fn::<f32, 32, _>(|i| (100 * lane + i + 1) as f32);
            let groups: Vec<[f32; 32]> = (0..count).map(group).collect();
            for (i, column) in columns::<V, 32>(&groups).into_iter().enumerate() {
                let mut expected = vec![0.0; V::LANES];
                for (expected, group) in expected.iter_mut().zip(&groups) {
                    *expected = group[i];
                }
                assert_eq!(bits(&numbers(column)), bits(&expected), "element {i} of {count} groups");
            }
        }
    }

    /// Numbers near the halves of integers from `first` to `last`, in lanes of vectors.
    fn near_halves<V: Lanes>(first: f32, last: f32) -> Vec<Vec<f32>> {
        let halves = (0..).map(|step| first + 0.5 * step as f32).take_while(|half| *half <= last);
        let near: Vec<f32> = halves.flat_map(|half| [half.next_down(), half, half.next_up()]).collect();
        // The first and the last number are outside.
        let mut inside = near[2..near.len() - 2].to_vec();
        inside.resize(inside.len().next_multiple_of(V::LANES), 0.0);
        inside.chunks(V::LANES).map(<[f32]>::to_vec).collect()
    }

    fn check_nearest<V: Lanes>() {
        let far = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 4_194_303.0, -4_194_303.0, 5e6, -5e6, 1e30, -1e30];
        let far = far.iter().map(|number| vec![*number; V::LANES]);
        for vector in near_halves::<V>(-100.0, 100.0).into_iter().chain(far) {
            for (low, high) in [(0, 0), (0, 3), (0, 15), (0, 63), (-4, 3), (-32, 31)] {
                let expected: Vec<f32> = vector.iter().map(|number| nearest(*number).clamp(low, high) as f32).collect();
                let found = numbers(V::load(&vector).nearest(low, high));
                assert_eq!(found, expected, "{vector:?} in {low} ..= {high}");
            }
        }
    }

    fn check_table<V: Lanes>() {
        let (first, last) = V::TABLE_RANGE;
        for vector in near_halves::<V>(first, last) {
            for high in 0..=15 {
                let expected: Vec<f32> = vector.iter().map(|number| nearest(*number).clamp(0, high) as f32).collect();
                let found = numbers(V::load(&vector).nearest_in_table(high));
                assert_eq!(found, expected, "{vector:?} up to {high}");
            }
        }
    }

    /// `nested` finds what the scalar search finds in each lane.
    fn check_nested_of_length<V: Lanes, const LEN: usize>(top: i32, groups: &[[f32; LANES_MAX]]) {
        let counts_of = |lane: usize| std::array::from_fn(|i| ((i * 5 + lane * 3) % 7) as f32);
        let counts: Vec<[f32; LANES_MAX]> = (0..groups.len()).map(counts_of).collect();
        let (scales, codes) = nested::<V, LEN>(top, &columns(groups), &columns(&counts));
        for (lane, (group, counts)) in groups.iter().zip(&counts).enumerate() {
            let mut expected = [0; LEN];
            let scale = scalar::search(
                top,
                group.first_chunk::<LEN>().expect("a group"),
                counts.first_chunk::<LEN>().expect("counts"),
                &mut expected,
            );
            let found = numbers(scales)[lane];
            let is_same = found.to_bits() == scale.to_bits() || found.is_nan() && scale.is_nan();
            assert!(is_same, "{group:?} up to {top}: scale {found} is not {scale}");
            assert_eq!(bytes(&codes).map(|codes| codes[lane]), expected, "{group:?} up to {top}");
        }
    }

    fn check_nested<V: Lanes>() {
        let usual = |seed: usize| move |i: usize| ((i * 37 + seed * 11) % 29) as f32 * 0.03;
        let special = [0.0, -0.0, -0.4, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, f32::MAX];
        let mut groups = vec![[0.0; LANES_MAX], [-1.0; LANES_MAX]];
        groups.extend((0..30).map(|seed| std::array::from_fn(usual(seed))));
        for (seed, number) in special.iter().enumerate() {
            for place in [0, 3, 7, 12] {
                let mut group = std::array::from_fn(usual(seed));
                group[place] = *number;
                groups.push(group);
            }
        }
        for groups in groups.chunks(V::LANES) {
            for top in [15, 31, 63] {
                check_nested_of_length::<V, 8>(top, groups);
                check_nested_of_length::<V, 16>(top, groups);
            }
        }
    }

    fn check_limits<V: Lanes>() {
        for vector in near_halves::<V>(-8.0, 8.0) {
            let vector = V::load(&vector);
            let expected = numbers(vector.nearest(-4, 3));
            assert_eq!(numbers(code_of::<V, { limits::BOTH }>(vector, -4, 3)), expected);
            let upper = code_of::<V, { limits::UPPER }>(vector.max(V::splat(-4.0)), -4, 3);
            assert_eq!(numbers(upper), expected);
            let lower = code_of::<V, { limits::LOWER }>(vector.min(V::splat(3.0)), -4, 3);
            assert_eq!(numbers(lower), expected);
            let none = code_of::<V, { limits::NONE }>(vector.max(V::splat(-4.0)).min(V::splat(3.0)), -4, 3);
            assert_eq!(numbers(none), expected);
        }
    }
}
