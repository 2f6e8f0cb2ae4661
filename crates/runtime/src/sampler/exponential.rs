//! `exp` by plain arithmetic, so that every machine samples the same token: a system's own differs in the last bits.

/// ln 2 in two parts; the first has few bits, so its product with a small integer is exact.
const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Terms of the series; the last is below 2^-53 for arguments up to ln 2 / 2.
const TERMS: u32 = 14;

/// `e^x` for `x <= 0`, within a few units in the last place; 0 where the result would be subnormal.
pub(super) fn exp(x: f64) -> f64 {
    debug_assert!(x <= 0.0);
    let power = (x * std::f64::consts::LOG2_E).round();
    if power < -1022.0 {
        return 0.0;
    }
    let rest = (x - power * LN2_HIGH) - power * LN2_LOW;
    let series = (1..TERMS).rev().fold(1.0, |sum, term| 1.0 + sum * rest / f64::from(term));
    series * f64::from_bits(((power as i64 + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn it_is_the_exponential() {
        let worst = (0..200_000).map(|i| -f64::from(i) * 0.0035).map(|x| (exp(x) / x.exp() - 1.0).abs());
        let worst = worst.fold(0.0, f64::max);
        assert!(worst < 4.0 * f64::EPSILON, "{worst:e}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1e9), 0.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
    }
}
