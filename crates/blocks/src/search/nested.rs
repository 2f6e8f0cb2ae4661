//! A scale for the scales, or for the minima, of the groups of a block: positive numbers as codes `0 ..= top`, by the
//! least weighted square error, then improved one code at a time.

use super::{TINY, greatest, nearest};

pub(crate) const SWEEPS: usize = 5;

/// Writes the code of each number and returns the scale. `counts` says how much the error of each counts.
#[inline(always)]
pub(crate) fn search<const LEN: usize>(
    top: i32,
    numbers: &[f32; LEN],
    counts: &[f32; LEN],
    codes: &mut [u8; LEN],
) -> f32 {
    let greatest = greatest(numbers);
    if greatest < TINY {
        codes.fill(0);
        return 0.0;
    }
    let mut found = first_codes(top, greatest, numbers, counts);
    let (mut product, mut square) = (0.0, 0.0);
    for ((number, count), code) in numbers.iter().zip(counts).zip(found) {
        product += count * number * code as f32;
        square += count * code as f32 * code as f32;
    }
    for _ in 0..SWEEPS {
        let mut has_changed = false;
        for ((&number, &count), code) in numbers.iter().zip(counts).zip(&mut found) {
            let old = *code as f32;
            let mut others_product = product - count * number * old;
            let mut others_square = square - count * old * old;
            if !(others_product > 0.0 && others_square > 0.0) {
                continue;
            }
            let new = nearest(number * others_square / others_product).min(top);
            if new == *code {
                continue;
            }
            others_product += count * number * new as f32;
            others_square += count * new as f32 * new as f32;
            if others_product * others_product * square > product * product * others_square {
                (*code, product, square) = (new, others_product, others_square);
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    for (code, found) in codes.iter_mut().zip(found) {
        *code = found as u8;
    }
    if square > 0.0 { product / square } else { 0.0 }
}

/// The codes of the best of nine scales near `top / greatest`.
fn first_codes<const LEN: usize>(top: i32, greatest: f32, numbers: &[f32; LEN], counts: &[f32; LEN]) -> [i32; LEN] {
    let error = |inverse: f32, limit: i32| {
        let (scale, mut sum) = (1.0 / inverse, 0.0);
        for (number, count) in numbers.iter().zip(counts) {
            let distance = number - scale * nearest(inverse * number).min(limit) as f32;
            sum += count * distance * distance;
        }
        sum
    };
    let mut inverse = top as f32 / greatest;
    // Only the later tries limit their codes.
    let mut least = error(inverse, i32::MAX);
    for step in (-4..=4).filter(|step| *step != 0) {
        let tried = (0.1 * step as f32 + top as f32) / greatest;
        let sum = error(tried, top);
        if sum < least {
            (least, inverse) = (sum, tried);
        }
    }
    numbers.map(|number| nearest(inverse * number).min(top))
}
