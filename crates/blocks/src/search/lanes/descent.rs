//! [`descent`](crate::search::descent) in lanes.

use super::signed::{Group, peak};
use super::{Columns, Lanes, limits};
use crate::search::TINY;

/// The result of a search of `N` vectors of groups.
pub(crate) struct Swept<V, const N: usize> {
    pub scales: [V; N],
    /// The number of codes that the last sweep changed in each lane. A lane with 0 has settled.
    pub changes: [V; N],
}

/// [`descent::search`](crate::search::descent::search) of each lane of `N` vectors of groups, with at most `sweeps`
/// sweeps over the codes. Further sweeps for other lanes do not change a settled lane.
///
/// Each step depends on the previous step of its vector. With several vectors, the processor overlaps their steps.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several arrays of N; the compiler keeps them in registers")]
pub(crate) fn descent<V: Lanes, const LEN: usize, const N: usize>(
    levels: i32,
    sweeps: usize,
    weights: [&Columns<V, LEN>; N],
    counts: [&Columns<V, LEN>; N],
) -> Swept<V, N> {
    let zero = V::splat(0.0);
    let mut changes = [zero; N];
    let (mut sums, mut codes, mut counted) = ([(zero, zero); N], [[zero; LEN]; N], [[zero; LEN]; N]);
    for n in 0..N {
        let inverse = V::splat(-(levels as f32)) / peak(weights[n]);
        for (counted, (count, weight)) in counted[n].iter_mut().zip(counts[n].iter().zip(weights[n])) {
            *counted = *count * *weight;
        }
        let group = Group { levels, weights: weights[n], counts: counts[n], counted: &counted[n] };
        [sums[n]] = group.sums::<{ limits::ANY }, 1>([inverse]);
        for (code, weight) in codes[n].iter_mut().zip(weights[n]) {
            *code = (inverse * *weight).nearest(-levels, levels - 1);
        }
    }
    for _ in 0..sweeps {
        changes = [zero; N];
        for element in 0..LEN {
            for n in 0..N {
                let values = (weights[n][element], counts[n][element], counted[n][element]);
                let (code, found, change) = better_code(levels, values, codes[n][element], sums[n]);
                codes[n][element] = code;
                sums[n] = found;
                changes[n] = changes[n] + change;
            }
        }
        let mut all = zero;
        for n in 0..N {
            all = all + changes[n];
        }
        if !V::any(zero.is_below(all)) {
            break;
        }
    }
    let mut scales = [zero; N];
    for n in 0..N {
        let is_zero = peak(weights[n]).abs().is_below(V::splat(TINY));
        let (product, square) = sums[n];
        scales[n] = zero.or_else(is_zero, (product / square).or_else(zero.is_below(square), zero));
    }
    Swept { scales, changes }
}

/// One step of a sweep. Returns the code of an element, the sums of products and of squares, and 1 in each lane whose
/// code was replaced by a better one.
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
    // If the code is unchanged, the new sums can still be rounded differently.
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
