//! Rounding of the number formats: unit roundoff, units in the last place, conversion.
//!
//! ```text
//!   v ──round──▶ v (1 + e)     |e| <= u = 2^-(mantissa bits + 1)     sd of e about sqrt(0.18) u
//! ```
//!
//! A rounding error is uniform in half a unit in the last place; with the mantissa's logarithm uniform too its variance
//! is `(1/3) (3/8) / ln 2 = 0.18` of `(u v)^2` (docs/numerics.md#rounding-of-one-value).

use trueup_blocks::DType;

/// Variance of one rounding error, in units of `(u v)^2`.
pub const ROUNDING_VARIANCE: f64 = 0.18;

/// How many standard deviations a right result may be away: the `lambda` of every gate.
pub const LAMBDA: f64 = 8.0;

/// What rounding to a floating-point format does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Precision {
    dtype: DType,
    /// Largest relative error of one rounding to nearest.
    pub unit: f64,
    /// Smallest normal number: below it errors are absolute, and devices may flush to zero.
    pub normal_min: f64,
    /// Largest finite number.
    pub max: f64,
}

/// The formats that results are kept in.
const PRECISIONS: [Precision; 5] = [
    Precision { dtype: DType::F64, unit: exp2(-53), normal_min: f64::MIN_POSITIVE, max: f64::MAX },
    Precision { dtype: DType::F32, unit: exp2(-24), normal_min: exp2(-126), max: f32::MAX as f64 },
    Precision { dtype: DType::F16, unit: exp2(-11), normal_min: exp2(-14), max: 65504.0 },
    Precision { dtype: DType::Bf16, unit: exp2(-8), normal_min: exp2(-126), max: 3.389_531_389_251_535_5e38 },
    // A number that is read from a block is an f32; the block is rounded as a whole, see `cached.rs`.
    Precision { dtype: DType::Q8_0, unit: exp2(-24), normal_min: exp2(-126), max: 127.0 * 65504.0 },
];

impl Precision {
    /// f64, the oracle's.
    pub const F64: Precision = PRECISIONS[0];
    /// f32, of most sums.
    pub const F32: Precision = PRECISIONS[1];
    /// f16.
    pub const F16: Precision = PRECISIONS[2];
    /// bf16.
    pub const BF16: Precision = PRECISIONS[3];

    /// The precision of a floating-point type; of anything else f32's, which is what such tensors are computed in.
    pub fn of(dtype: DType) -> Precision {
        PRECISIONS.into_iter().find(|precision| precision.dtype == dtype).unwrap_or(Precision::F32)
    }

    /// The number of this format next to `value`, halves to even, beyond the range infinite.
    pub fn round(&self, value: f64) -> f64 {
        if self.dtype == DType::F32 || self.dtype == DType::Q8_0 {
            f64::from(value as f32)
        } else if self.dtype == DType::F16 {
            half::f16::from_f32(to_f32_odd(value)).to_f64()
        } else if self.dtype == DType::Bf16 {
            half::bf16::from_f32(to_f32_odd(value)).to_f64()
        } else {
            value
        }
    }

    /// Distance of the numbers of this format around `value`.
    pub fn ulp(&self, value: f64) -> f64 {
        let magnitude = value.abs().max(self.normal_min);
        if magnitude.is_finite() { exp2(exponent(magnitude)) * 2.0 * self.unit } else { f64::INFINITY }
    }

    /// Variance of rounding `value` itself to this format: the error is uniform in a unit in its last place, `ulp^2 /
    /// 12`. Over values of all mantissas that is [`ROUNDING_VARIANCE`] on average.
    pub fn variance(&self, value: f64) -> f64 {
        self.ulp(value).powi(2) / 12.0
    }
}

/// f64 to f32 so that a second rounding, to a narrower type, gives what one rounding would have: cut toward zero, and
/// the last bit set where something was cut off ("round to odd", Boldo and Melquiond 2008).
fn to_f32_odd(value: f64) -> f32 {
    let near = value as f32;
    if !near.is_finite() || f64::from(near) == value {
        return near;
    }
    let cut = if f64::from(near).abs() > value.abs() { f32::from_bits(near.to_bits() - 1) } else { near };
    f32::from_bits(cut.to_bits() | 1)
}

/// `2^power` for powers of normal f64.
const fn exp2(power: i32) -> f64 {
    f64::from_bits(((power + 1023) as u64) << 52)
}

/// The power of two at or below a positive normal number.
fn exponent(value: f64) -> i32 {
    let bits = (value.to_bits() >> 52) & 0x7ff;
    bits as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_half_the_distance_to_the_number_behind_one() {
        assert_eq!(2.0 * Precision::F32.unit, f64::from(f32::EPSILON));
        assert_eq!(2.0 * Precision::F16.unit, half::f16::EPSILON.to_f64());
        assert_eq!(Precision::BF16.max, half::bf16::MAX.to_f64());
        assert_eq!(Precision::F16.max, half::f16::MAX.to_f64());
        assert_eq!(Precision::F32.normal_min, f64::from(f32::MIN_POSITIVE));
    }

    #[test]
    fn units_in_the_last_place_are_the_distance_of_neighbours() {
        for value in [1.0f32, 1.5, 2.0, 3.9, 1e-30, 7e20, -5.25] {
            let next = f32::from_bits(value.to_bits() + 1);
            let distance = f64::from((next - value).abs());
            assert_eq!(Precision::F32.ulp(f64::from(value)), distance, "at {value}");
        }
    }

    #[test]
    fn a_value_just_above_a_half_step_is_rounded_once() {
        // The middle between two numbers of the format goes to the even one; 2^-40 more, lost in f32, decides.
        let more = exp2(-40);
        for (precision, step) in [(Precision::F16, exp2(-10)), (Precision::BF16, exp2(-7))] {
            let middle = 1.0 + step / 2.0;
            assert_eq!(precision.round(middle), 1.0);
            assert_eq!(precision.round(middle + more), 1.0 + step);
            assert_eq!(precision.round(-middle - more), -1.0 - step);
            assert_eq!(precision.round(1.0 + step * 1.5 - more), 1.0 + step);
        }
    }

    #[test]
    fn the_variance_of_one_value_is_that_of_its_own_binade() {
        let average = (0..1000)
            .map(|i| 2f64.powf(f64::from(i) / 1000.0))
            .map(|value| Precision::F32.variance(value) / (Precision::F32.unit * value).powi(2));
        assert!((average.sum::<f64>() / 1000.0 - ROUNDING_VARIANCE).abs() < 0.002);
        assert_eq!(Precision::F16.variance(1.9), Precision::F16.variance(1.1));
    }

    #[test]
    fn the_variance_of_a_rounding_is_that_of_rounding_many_numbers() {
        // Logarithms of the mantissas are uniform, as the model says.
        let mut squares = 0.0;
        let count = 20_000;
        for i in 0..count {
            let value = 2f64.powf(f64::from(i) / f64::from(count) + 1e-9 * f64::from(i % 7));
            let error = (Precision::F32.round(value) - value) / (Precision::F32.unit * value);
            squares += error * error;
        }
        let variance = squares / f64::from(count);
        assert!((variance - ROUNDING_VARIANCE).abs() < 0.01, "{variance}");
    }
}
