//! [`nested`](crate::search::nested) in lanes.

use super::{Columns, LANES_MAX, Lanes};
use crate::search::TINY;
use crate::search::nested::SWEEPS;

/// The range of [`nearest`](crate::search::nearest): limits for codes that are otherwise unlimited.
const LOWEST: i32 = -4_194_304;
const HIGHEST: i32 = 4_194_303;

/// [`nested::search`](crate::search::nested::search) of each lane, of the first `LEN` elements: the scale, and the
/// codes as numbers. A lane whose sweep changes nothing stays as it is in the sweeps that other lanes still need.
#[inline(always)]
pub(crate) fn nested<V: Lanes, const LEN: usize>(
    top: i32,
    numbers: &Columns<V, LANES_MAX>,
    counts: &Columns<V, LANES_MAX>,
) -> (V, Columns<V, LEN>) {
    let numbers: &[V; LEN] = numbers.first_chunk().expect("at most as many groups as lanes");
    let counts: &[V; LEN] = counts.first_chunk().expect("at most as many groups as lanes");
    let zero = V::splat(0.0);
    let mut greatest = zero;
    for number in numbers {
        greatest.replace(greatest.is_below(*number), *number);
    }
    let is_zero = greatest.is_below(V::splat(TINY));
    let inverse = best_inverse(top, greatest, numbers, counts);
    let (mut codes, mut counted) = (*numbers, *numbers);
    let (mut product, mut square) = (zero, zero);
    for ((code, counted), count) in codes.iter_mut().zip(&mut counted).zip(counts) {
        *code = (inverse * *code).nearest(LOWEST, top);
        *counted = *count * *counted;
        product = product + *counted * *code;
        square = square + *count * *code * *code;
    }
    for _ in 0..SWEEPS {
        let mut changes = zero;
        for (((number, count), counted), code) in numbers.iter().zip(counts).zip(&counted).zip(&mut codes) {
            let others_product = product - *counted * *code;
            let others_square = square - *count * *code * *code;
            let new = (*number * others_square / others_product).nearest(LOWEST, top);
            let new_product = others_product + *counted * new;
            let new_square = others_square + *count * new * new;
            let is_new = V::both(zero.is_below(others_product), zero.is_below((*code - new).abs()));
            let is_less = (product * product * new_square).is_below(new_product * new_product * square);
            let is_better = V::both(V::both(zero.is_below(others_square), is_new), is_less);
            product.replace(is_better, new_product);
            square.replace(is_better, new_square);
            code.replace(is_better, new);
            changes.replace(is_better, V::splat(1.0));
        }
        if !V::any(zero.is_below(changes)) {
            break;
        }
    }
    let scale = (product / square).or_else(zero.is_below(square), zero);
    for code in &mut codes {
        code.replace(is_zero, zero);
    }
    (zero.or_else(is_zero, scale), codes)
}

/// The inverse of the best of nine scales.
#[inline(always)]
fn best_inverse<V: Lanes, const LEN: usize>(
    top: i32,
    greatest: V,
    numbers: &Columns<V, LEN>,
    counts: &Columns<V, LEN>,
) -> V {
    let mut inverse = V::splat(top as f32) / greatest;
    let mut least = error(inverse, HIGHEST, numbers, counts);
    for step in [-4, -3, -2, -1, 1, 2, 3, 4] {
        let tried = V::splat(0.1 * step as f32 + top as f32) / greatest;
        let sum = error(tried, top, numbers, counts);
        let is_less = sum.is_below(least);
        least.replace(is_less, sum);
        inverse.replace(is_less, tried);
    }
    inverse
}

/// The weighted square error under a scale, given as its inverse.
#[inline(always)]
fn error<V: Lanes, const LEN: usize>(inverse: V, limit: i32, numbers: &Columns<V, LEN>, counts: &Columns<V, LEN>) -> V {
    let (scale, mut sum) = (V::splat(1.0) / inverse, V::splat(0.0));
    for (number, count) in numbers.iter().zip(counts) {
        let distance = *number - scale * (inverse * *number).nearest(LOWEST, limit);
        sum = sum + *count * distance * distance;
    }
    sum
}
