//! A scale for codes around zero, `-levels .. levels`: 19 scales near `-levels / peak` are tried, and the one that
//! leaves the least weighted square error wins.
//!
//! For given codes the best scale is `P / Q` with `P = sum w x code` and `Q = sum w code^2`, and the error falls with
//! `P^2 / Q`.

use super::{TINY, nearest, peak, quotient};

/// Writes `code + levels` of each weight and returns the scale. It may be negative: the weight of largest magnitude
/// lands on `-levels`. If all weights are zero, all written codes and the scale are 0.
#[inline(always)]
pub(crate) fn search<const LEN: usize>(
    levels: i32,
    weights: &[f32; LEN],
    counts: &[f32; LEN],
    codes: &mut [u8; LEN],
) -> f32 {
    let peak = peak(weights);
    if peak.abs() < TINY {
        codes.fill(0);
        return 0.0;
    }
    let top = levels as f32;
    let mut inverse = -top / peak;
    let (product, square) = sums(levels, inverse, weights, counts);
    let mut scale = quotient(product, square);
    let mut best = scale * product;
    for step in (-9..=9).filter(|step| *step != 0) {
        let tried = -(top + 0.1 * step as f32) / peak;
        let (product, square) = sums(levels, tried, weights, counts);
        if square > 0.0 && product * product > best * square {
            scale = product / square;
            best = scale * product;
            inverse = tried;
        }
    }
    for (code, weight) in codes.iter_mut().zip(weights) {
        *code = (code_of(levels, inverse, *weight) + levels) as u8;
    }
    scale
}

/// The code of a weight under a scale, given as its inverse.
#[inline(always)]
pub(super) fn code_of(levels: i32, inverse: f32, weight: f32) -> i32 {
    nearest(inverse * weight).clamp(-levels, levels - 1)
}

/// `P` and `Q` of the codes that a scale gives.
#[inline(always)]
pub(super) fn sums<const LEN: usize>(
    levels: i32,
    inverse: f32,
    weights: &[f32; LEN],
    counts: &[f32; LEN],
) -> (f32, f32) {
    let (mut product, mut square) = (0.0, 0.0);
    for (weight, count) in weights.iter().zip(counts) {
        let code = code_of(levels, inverse, *weight) as f32;
        product += count * weight * code;
        square += count * code * code;
    }
    (product, square)
}
