//! What `tq1_0` and `tq2_0` share: 256 weights of -1, 0 and 1 times one scale, the largest magnitude.

use crate::decoder::K_LEN;
use crate::fp4::magnitude_max;
use crate::scale::{reciprocal, round};

/// The scale, and each weight's digit: 0, 1 or 2.
#[inline(always)]
pub(crate) fn digits_of(weights: &[f32; K_LEN]) -> (f32, [u8; K_LEN]) {
    let scale = magnitude_max(weights);
    let inverse = reciprocal(scale);
    (scale, weights.map(|weight| (round(weight * inverse) + 1) as u8))
}
