//! Numbers in messages, rounded to a few significant digits.

/// Smallest and largest exponents of ten that are written without an exponent.
const PLAIN: std::ops::RangeInclusive<i32> = -3..=5;

/// A number for people, rounded to `digits` significant digits: `42`, `0.0625`, `3.45e-4`, `NaN`, `infinity`.
///
/// Trailing zeros are omitted. All digits before the decimal point are kept. Data for programs, such as JSON reports,
/// contains the unrounded number instead.
///
/// ```
/// use trueup_formats::significant;
///
/// let shown = [0.0, 42.0, 0.0625, 3.4531e-4, 1.001_07e37, 12345.6].map(|value| significant(value, 3));
/// assert_eq!(shown, ["0", "42", "0.0625", "3.45e-4", "1e37", "12346"]);
/// ```
pub fn significant(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "infinity" } else { "-infinity" }.to_owned();
    }
    let decimals = digits.clamp(1, 17).saturating_sub(1);
    let scientific = format!("{value:.decimals$e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if PLAIN.contains(&exponent) {
        let shift = usize::try_from(exponent.unsigned_abs()).unwrap_or_default();
        let decimals = if exponent < 0 { decimals.saturating_add(shift) } else { decimals.saturating_sub(shift) };
        return without_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    format!("{}e{exponent}", without_zeros(mantissa))
}

/// A decimal number without trailing zeros after its point.
fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::significant;

    #[test]
    fn digits_are_rounded_and_exponents_are_used_for_the_very_small_and_large() {
        let cases = [
            (2.116345, 7, "2.116345"),
            (-42.0, 7, "-42"),
            (1e-9, 6, "1e-9"),
            (0.001, 3, "0.001"),
            (0.000_999_96, 3, "0.001"),
            (0.000_5, 3, "5e-4"),
            (999_999.6, 3, "1e6"),
            (9.9999e6, 3, "1e7"),
            (1.5, 1, "2"),
            (f64::NAN, 3, "NaN"),
            (f64::NEG_INFINITY, 3, "-infinity"),
        ];
        for (value, digits, expected) in cases {
            assert_eq!(significant(value, digits), expected, "{value} to {digits} digits");
        }
    }
}
