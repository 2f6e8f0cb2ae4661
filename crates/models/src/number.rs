//! The only changes of a number's type here, each with what it may lose.
#![allow(
    clippy::as_conversions,
    reason = "what no `From` does: each function says what becomes of numbers that do not fit"
)]

/// The nearest f32; infinite where the number is too large.
pub(crate) fn nearest_f32(number: f64) -> f32 {
    number as f32
}

/// What to expect instead of a number that is not positive and finite as f32. `None` if it is.
pub(crate) fn not_positive(number: f64) -> Option<&'static str> {
    let single = nearest_f32(number);
    match single.is_finite() && single > 0.0 {
        true => None,
        false if number.is_finite() && number > 0.0 => Some("a number within the range of f32"),
        false => Some("a positive number"),
    }
}

/// The same number, or the nearest f64 beyond 2^53.
pub(crate) fn real(count: usize) -> f64 {
    count as f64
}

/// The same number: no machine has more than 64 bits.
pub(crate) fn wide(count: usize) -> u64 {
    count as u64
}

/// The same number; 0, which no count may be, where it is no whole number from 1 to 2^32 - 1.
pub(crate) fn whole_u32(number: f64) -> u32 {
    if number.fract() == 0.0 && number > 0.0 && number <= f64::from(u32::MAX) { number as u32 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_count_is_zero() {
        assert_eq!([1.0, 4096.0, 4294967295.0].map(whole_u32), [1, 4096, u32::MAX]);
        assert_eq!([0.0, -5.0, 1.5, 4294967296.0, 1e30, f64::NAN, f64::INFINITY].map(whole_u32), [0; 7]);
    }
}
