//! The only lossy conversions between number types in this crate.
#![allow(
    clippy::as_conversions,
    reason = "conversions without `From`: each function documents the result for numbers out of range"
)]

/// The nearest f32; infinite if the number is too large.
pub(crate) fn nearest_f32(number: f64) -> f32 {
    number as f32
}

/// A description of the expected number, for a message; `None` if `number` is positive and finite as f32.
pub(crate) fn not_positive(number: f64) -> Option<&'static str> {
    let single = nearest_f32(number);
    match single.is_finite() && single > 0.0 {
        true => None,
        false if number.is_finite() && number > 0.0 => Some("a number within the range of f32"),
        false => Some("a positive number"),
    }
}

/// Converts to f64; rounds above 2^53.
pub(crate) fn real(count: usize) -> f64 {
    count as f64
}

/// Converts to u64 without loss: `usize` has at most 64 bits.
pub(crate) fn wide(count: usize) -> u64 {
    count as u64
}

/// Converts to u32; returns 0 unless `number` is an integer from 1 to 2^32 - 1.
pub(crate) fn whole_u32(number: f64) -> u32 {
    if number.fract() == 0.0 && number > 0.0 && number <= f64::from(u32::MAX) { number as u32 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_counts_become_zero() {
        assert_eq!([1.0, 4096.0, 4294967295.0].map(whole_u32), [1, 4096, u32::MAX]);
        assert_eq!([0.0, -5.0, 1.5, 4294967296.0, 1e30, f64::NAN, f64::INFINITY].map(whole_u32), [0; 7]);
    }
}
