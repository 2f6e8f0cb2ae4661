//! A scale for codes around zero, improved one code at a time: starting from the codes under `-levels / peak`, each
//! code is replaced by the best one for the scale that the others give, in at most five sweeps.

use super::signed::{code_of, sums};
use super::{TINY, nearest, peak, quotient};

pub(crate) const SWEEPS: usize = 5;

/// Writes `code + levels` of each weight and returns the scale, as [`signed::search`](super::signed::search).
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
    let inverse = -(levels as f32) / peak;
    let (mut product, mut square) = sums(levels, inverse, weights, counts);
    let mut found = weights.map(|weight| code_of(levels, inverse, weight));
    for _ in 0..SWEEPS {
        let mut has_changed = false;
        for ((&weight, &count), code) in weights.iter().zip(counts).zip(&mut found) {
            let old = *code as f32;
            let mut others_product = product - count * weight * old;
            if others_product <= 0.0 || others_product.is_nan() {
                continue;
            }
            let mut others_square = square - count * old * old;
            let new = nearest(weight * others_square / others_product).clamp(-levels, levels - 1);
            if new == *code {
                continue;
            }
            others_product += count * weight * new as f32;
            others_square += count * new as f32 * new as f32;
            let is_better = others_product * others_product * square > product * product * others_square;
            if others_square > 0.0 && is_better {
                (*code, product, square) = (new, others_product, others_square);
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    for (code, found) in codes.iter_mut().zip(found) {
        *code = (found + levels) as u8;
    }
    if square > 0.0 { quotient(product, square) } else { 0.0 }
}
