//! Softmax of one row: three ways over it, sixteen positions at a time.

use super::super::exponential::{ARGUMENT_MAX, ARGUMENT_MIN, LN_2, LOG2_E, Q, UNITS};
use super::super::lanes::sum;
use super::super::soft_max::{divisor, larger, subtracted, without_hidden_end};
use super::{LANES, store};
use std::arch::x86_64::*;

/// In the place of the scores.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn soft_max(x: &mut [f32], mask: &[f32], scale: f32) {
    let (x, mask) = without_hidden_end(x, mask);
    let scales = _mm512_set1_ps(scale);
    let mut largest = _mm512_set1_ps(f32::NEG_INFINITY);
    for (x, mask) in x.chunks(LANES).zip(mask.chunks(LANES)) {
        let (_, x, mask, seen) = loaded(x, mask);
        // Of a NaN and a number the second operand.
        largest = _mm512_mask_max_ps(largest, seen, _mm512_fmadd_ps(x, scales, mask), largest);
    }
    let largest = store(largest).into_iter().fold(f32::NEG_INFINITY, larger);
    let subtracted = _mm512_set1_ps(subtracted(largest));
    // Eight lanes, as the rule has them: of each sixteen the first eight and then the last.
    let mut lanes = _mm256_setzero_ps();
    for (x, mask) in x.chunks_mut(LANES).zip(mask.chunks(LANES)) {
        let (inside, scores, mask, seen) = loaded(x, mask);
        let argument = _mm512_fmadd_ps(scores, scales, _mm512_sub_ps(mask, subtracted));
        let y = _mm512_maskz_mov_ps(seen, exponential(argument));
        // SAFETY: `inside` are the places that the chunk has.
        unsafe { _mm512_mask_storeu_ps(x.as_mut_ptr(), inside, y) };
        let halves = _mm512_castps_pd(y);
        lanes = _mm256_add_ps(lanes, _mm512_castps512_ps256(y));
        lanes = _mm256_add_ps(lanes, _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(halves)));
    }
    let mut totals = [0.0; LANES / 2];
    // SAFETY: the array holds 32 bytes; the store needs no alignment.
    unsafe { _mm256_storeu_ps(totals.as_mut_ptr(), lanes) };
    let divisor = _mm512_set1_ps(divisor(sum(totals)));
    for (x, mask) in x.chunks_mut(LANES).zip(mask.chunks(LANES)) {
        let (inside, y, _, seen) = loaded(x, mask);
        // SAFETY: `inside` are the places that the chunk has.
        unsafe { _mm512_mask_storeu_ps(x.as_mut_ptr(), inside, _mm512_maskz_div_ps(seen, y, divisor)) };
    }
}

/// Up to sixteen scores and masks: the places that there are, both with zeros behind them, and the places of which
/// something is to be seen.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn loaded(x: &[f32], mask: &[f32]) -> (__mmask16, __m512, __m512, __mmask16) {
    let inside = ((1u32 << x.len()) - 1) as __mmask16;
    debug_assert!(x.len() <= LANES && x.len() == mask.len());
    // SAFETY: both have the places of `inside`; the others are not touched.
    let (x, mask) =
        unsafe { (_mm512_maskz_loadu_ps(inside, x.as_ptr()), _mm512_maskz_loadu_ps(inside, mask.as_ptr())) };
    let seen = _mm512_mask_cmp_ps_mask::<_CMP_NEQ_UQ>(inside, mask, _mm512_set1_ps(f32::NEG_INFINITY));
    (inside, x, mask, seen)
}

/// The rule of `exponential.rs`; the power of two is multiplied at once, rounded once as there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn exponential(x: __m512) -> __m512 {
    // A NaN is the second operand and stays.
    let x = _mm512_min_ps(_mm512_set1_ps(ARGUMENT_MAX), x);
    let x = _mm512_max_ps(_mm512_set1_ps(ARGUMENT_MIN), x);
    let units = _mm512_set1_ps(UNITS);
    let n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(LOG2_E), units), units);
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN_2.1), _mm512_fnmadd_ps(n, _mm512_set1_ps(LN_2.0), x));
    let mut q = _mm512_set1_ps(Q[4]);
    for factor in [Q[3], Q[2], Q[1], Q[0]] {
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(factor));
    }
    let value = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r), _mm512_set1_ps(1.0));
    _mm512_scalef_ps(value, n)
}
