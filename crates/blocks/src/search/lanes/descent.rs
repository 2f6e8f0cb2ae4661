//! [`descent`](crate::search::descent) in lanes.

use super::signed::peak;
use super::{Columns, LANE_NUMBERS, Lanes, write_squares};
use crate::search::TINY;
use crate::search::descent::SWEEPS;

/// The groups of a vector between two sweeps.
#[derive(Clone, Copy)]
pub(crate) struct Descent<V: Lanes, const LEN: usize> {
    pub codes: Columns<V, LEN>,
    /// The sums of products of codes and weights, and of squared codes.
    pub sums: (V, V),
    /// Where the last sweep changed a code: these groups need another sweep.
    pub has_changed: V::Mask,
}

impl<V: Lanes, const LEN: usize> Descent<V, LEN> {
    #[inline(always)]
    fn nothing() -> Descent<V, LEN> {
        let zero = V::splat(0.0);
        Descent { codes: [zero; LEN], sums: (zero, zero), has_changed: zero.is_below(zero) }
    }

    /// The codes under `-levels / peak`, before the first sweep.
    #[inline(always)]
    fn start(levels: i32, peak: V, weights: &Columns<V, LEN>, counts: &Columns<V, LEN>) -> Descent<V, LEN> {
        let inverse = V::splat(-(levels as f32)) / peak;
        let mut group = Descent::nothing();
        let (mut product, mut square) = group.sums;
        for (code, (weight, count)) in group.codes.iter_mut().zip(weights.iter().zip(counts)) {
            *code = (inverse * *weight).nearest(-levels, levels - 1);
            product = product + *count * *weight * *code;
            square = square + *count * *code * *code;
        }
        group.sums = (product, square);
        group
    }

    /// The scale that fits the codes best.
    #[inline(always)]
    pub fn scale(&self) -> V {
        let (zero, (product, square)) = (V::splat(0.0), self.sums);
        (product / square).or_else(zero.is_below(square), zero)
    }
}

/// The first sweep of [`descent::search`](crate::search::descent::search) over the groups of `N` vectors. Groups of
/// zeros get the scale 0.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several arrays of N")]
pub(crate) fn descent<V: Lanes, const LEN: usize, const N: usize>(
    levels: i32,
    weights: [&Columns<V, LEN>; N],
    counts: [&Columns<V, LEN>; N],
) -> [Descent<V, LEN>; N] {
    let zero = V::splat(0.0);
    let (mut peaks, mut groups) = ([zero; N], [Descent::nothing(); N]);
    for n in 0..N {
        peaks[n] = peak(weights[n]);
        groups[n] = Descent::start(levels, peaks[n], weights[n], counts[n]);
    }
    sweep(levels, weights, counts, &mut groups);
    for (group, peak) in groups.iter_mut().zip(peaks) {
        let is_zero = peak.abs().is_below(V::splat(TINY));
        group.has_changed = V::only_first(group.has_changed, is_zero);
        group.sums.1.replace(is_zero, zero);
    }
    groups
}

/// Replaces each code by the best one for the scale that the others give.
///
/// Each step depends on the one before it in its vector. With several vectors, one is computed while the others wait.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several arrays of N; the compiler keeps them in registers")]
fn sweep<V: Lanes, const LEN: usize, const N: usize>(
    levels: i32,
    weights: [&Columns<V, LEN>; N],
    counts: [&Columns<V, LEN>; N],
    groups: &mut [Descent<V, LEN>; N],
) {
    let zero = V::splat(0.0);
    let (mut sums, mut has_changed) = ([(zero, zero); N], [zero.is_below(zero); N]);
    for n in 0..N {
        sums[n] = groups[n].sums;
    }
    for element in 0..LEN {
        for n in 0..N {
            let (weight, count) = (weights[n][element], counts[n][element]);
            let code = groups[n].codes[element];
            let (code, found, is_better) = better_code(levels, (weight, count), code, sums[n]);
            groups[n].codes[element] = code;
            sums[n] = found;
            has_changed[n] = V::either(has_changed[n], is_better);
        }
    }
    for n in 0..N {
        (groups[n].sums, groups[n].has_changed) = (sums[n], has_changed[n]);
    }
}

/// A step of a sweep: the code of an element, the sums of products and of squares, and where the code became a better
/// one.
#[inline(always)]
fn better_code<V: Lanes>(
    levels: i32,
    (weight, count): (V, V),
    code: V,
    (product, square): (V, V),
) -> (V, (V, V), V::Mask) {
    let zero = V::splat(0.0);
    let counted = count * weight;
    let others_product = product - counted * code;
    let others_square = square - count * code * code;
    let new = (weight * others_square / others_product).nearest(-levels, levels - 1);
    let new_product = others_product + counted * new;
    let new_square = others_square + count * new * new;
    let has_scale = V::both(zero.is_below(others_product), zero.is_below(new_square));
    let is_less_wrong = (product * product * new_square).is_below(new_product * new_product * square);
    // With the old code as the new one, the sums may be rounded differently.
    let is_better = V::only_first(V::both(has_scale, is_less_wrong), code.is_equal(new));
    let sums = (new_product.or_else(is_better, product), new_square.or_else(is_better, square));
    (new.or_else(is_better, code), sums, is_better)
}

/// The groups that need more sweeps, packed together: groups that have converged occupy no lanes. Row i holds element i
/// of each group.
///
/// ```text
///          group 3   group 4   group 11   ...
///  row 0  │ x[0]    │ x[0]    │ x[0]    │         codes: the same layout
///  row 1  │ x[1]    │ x[1]    │ x[1]    │
/// ```
pub(crate) struct Unsettled<const LEN: usize, const ROOM: usize> {
    /// Rows of weights, rows of codes, then [`PRODUCTS`], [`SQUARES`] and [`NUMBERS`]. Empty until a group is added.
    rows: Vec<[f32; ROOM]>,
    count: usize,
}

/// Rows after the weights and the codes: the sums of products and of squares, and the numbers of the groups.
const PRODUCTS: usize = 0;
const SQUARES: usize = 1;
const NUMBERS: usize = 2;

impl<const LEN: usize, const ROOM: usize> Unsettled<LEN, ROOM> {
    pub fn new() -> Unsettled<LEN, ROOM> {
        Unsettled { rows: Vec::new(), count: 0 }
    }

    #[cold]
    fn allocate(&mut self) {
        self.rows.resize(2 * LEN + NUMBERS + 1, [0.0; ROOM]);
    }

    /// Adds those of the first `filled` groups of a vector that the last sweep changed. `numbers` holds the number of
    /// each group.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "rows of weights and rows of codes")]
    pub fn add<V: Lanes>(&mut self, filled: usize, numbers: V, weights: &Columns<V, LEN>, group: &Descent<V, LEN>) {
        let is_filled = V::load(&LANE_NUMBERS).is_below(V::splat(filled as f32));
        let (order, count) = V::order(V::both(group.has_changed, is_filled));
        let place = self.count;
        if count == 0 {
            return;
        }
        if self.rows.is_empty() {
            self.allocate();
        }
        for i in 0..LEN {
            weights[i].packed(order).write(&mut self.rows[i][place..]);
            group.codes[i].packed(order).write(&mut self.rows[LEN + i][place..]);
        }
        group.sums.0.packed(order).write(&mut self.rows[2 * LEN + PRODUCTS][place..]);
        group.sums.1.packed(order).write(&mut self.rows[2 * LEN + SQUARES][place..]);
        numbers.packed(order).write(&mut self.rows[2 * LEN + NUMBERS][place..]);
        self.count += count;
    }

    /// Runs the remaining sweeps until each group has converged or reached the limit. The error of each weight is
    /// weighted by its square. Calls `found` with the number and the scale of each group after each of its sweeps. `N`
    /// vectors are swept at once.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "rows of weights and rows of codes")]
    pub fn settle<V: Lanes, const N: usize>(&mut self, levels: i32, mut found: impl FnMut(usize, f32)) {
        const { assert!(ROOM.is_multiple_of(V::LANES * N)) };
        let zero = V::splat(0.0);
        for _ in 1..SWEEPS {
            // The groups that remain are written to places that were read before.
            let groups = std::mem::take(&mut self.count);
            for first in (0..groups).step_by(V::LANES * N) {
                let (mut weights, mut counts) = ([[zero; LEN]; N], [[zero; LEN]; N]);
                let (mut swept, mut numbers) = ([Descent::nothing(); N], [zero; N]);
                for n in 0..N {
                    let place = first + n * V::LANES;
                    for i in 0..LEN {
                        weights[n][i] = V::load(&self.rows[i][place..]);
                        swept[n].codes[i] = V::load(&self.rows[LEN + i][place..]);
                    }
                    write_squares(&weights[n], &mut counts[n]);
                    let [products, squares, of_groups] =
                        [PRODUCTS, SQUARES, NUMBERS].map(|row| &self.rows[2 * LEN + row][place..]);
                    swept[n].sums = (V::load(products), V::load(squares));
                    numbers[n] = V::load(of_groups);
                }
                sweep(levels, weights.each_ref(), counts.each_ref(), &mut swept);
                for n in 0..N {
                    let filled = groups.saturating_sub(first + n * V::LANES).min(V::LANES);
                    let (scales, of_groups) = (swept[n].scale().store(), numbers[n].store());
                    for (number, scale) in of_groups.iter().zip(scales).take(filled) {
                        found(*number as usize, scale);
                    }
                    self.add(filled, numbers[n], &weights[n], &swept[n]);
                }
            }
        }
        // The last sweep may have changed codes too.
        self.count = 0;
    }
}
