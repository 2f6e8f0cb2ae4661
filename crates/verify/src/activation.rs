//! Activations as a device declares to use them: quantized or rounded exactly so, with the set of ties that may go
//! either way.
//!
//! ```text
//!   x  ──d = max |x| / 127 over 32──▶  q = round(x / d)  ──▶  q d     as declared (R1)
//!                                      |frac(x / d) - 1/2| tiny: a tie, q may be the next code too
//! ```

use crate::precision::Precision;
use trueup_runtime::profile::{Activations, Rounding};

/// Elements that share a scale.
pub const BLOCK_LEN: usize = 32;

/// Elements that share a scale in a block of q8_K.
const LONG_BLOCK_LEN: usize = 256;

/// Largest code.
const CODE_MAX: f32 = 127.0;

/// One row of activations as the device declares to use it.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The values that enter products.
    pub values: Vec<f64>,
    /// For quantized ones, the distance of neighbouring codes in each block of [`BLOCK_LEN`]; else empty.
    pub steps: Vec<f64>,
    /// Elements whose code may be the neighbouring one, with how much that changes the value.
    pub ties: Vec<(usize, f64)>,
    /// For q8_1, the sum of each block of [`BLOCK_LEN`] in f16; else empty.
    pub sums: Vec<f64>,
}

impl Row {
    /// The row `x` under the declaration.
    pub fn declared(x: &[f64], activations: Activations) -> Row {
        match activations {
            Activations::Unchanged => Row { values: x.to_vec(), ..Row::default() },
            Activations::F16 => Row::rounded(x, Precision::F16),
            Activations::Bf16 => Row::rounded(x, Precision::BF16),
            Activations::Q8 { rounding, scale_f16 } => {
                let mut row = Row::default();
                for block in x.chunks(BLOCK_LEN) {
                    row.quantize(block, rounding, scale_f16);
                }
                row
            }
            Activations::Q8_1 { rounding } => {
                let mut row = Row::default();
                for block in x.chunks(BLOCK_LEN) {
                    let (scale, codes) = row.quantize(block, rounding, true);
                    row.sums.push(Precision::F16.round(f64::from(scale as f32 * codes as f32)));
                }
                row
            }
            Activations::Q8K => {
                let mut row = Row::default();
                x.chunks(LONG_BLOCK_LEN).for_each(|block| row.quantize_long(block));
                row
            }
        }
    }

    fn rounded(x: &[f64], precision: Precision) -> Row {
        Row { values: x.iter().map(|x| precision.round(*x)).collect(), ..Row::default() }
    }

    /// Adds a block, and returns its scale before it is rounded to f16 and the sum of its codes.
    fn quantize(&mut self, block: &[f64], rounding: Rounding, scale_f16: bool) -> (f64, f64) {
        let largest = block.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
        let scale = f64::from(largest as f32 / CODE_MAX);
        let used = if scale_f16 { Precision::F16.round(scale) } else { scale };
        self.steps.push(scale);
        let mut codes = 0.0;
        for x in block {
            codes += self.add(if scale > 0.0 { x / scale } else { x * 0.0 }, rounding, used);
        }
        (scale, codes)
    }

    /// Adds a block of q8_K, whose codes follow from `127 / max |x|` in f32 and whose scale is the reciprocal of that.
    fn quantize_long(&mut self, block: &[f64]) {
        let largest = block.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
        let used = if largest > 0.0 { f64::from(1.0 / (CODE_MAX / largest as f32)) } else { 0.0 };
        self.steps.extend(block.chunks(BLOCK_LEN).map(|_| used));
        for x in block {
            let quotient = if largest > 0.0 { x * (f64::from(CODE_MAX) / largest) } else { x * 0.0 };
            self.add(quotient, Rounding::HalfEven, used);
        }
    }

    /// Adds an element that lies at `quotient` steps of `used`, and returns its code.
    fn add(&mut self, quotient: f64, rounding: Rounding, used: f64) -> f64 {
        if is_tie(quotient, rounding) {
            self.ties.push((self.values.len(), used));
        }
        let code = code(quotient, rounding);
        self.values.push(code * used);
        code
    }
}

fn code(quotient: f64, rounding: Rounding) -> f64 {
    let code = match rounding {
        Rounding::HalfEven => quotient.round_ties_even(),
        Rounding::HalfAway => quotient.round(),
        Rounding::Truncate => quotient.trunc(),
    };
    // A denormal scale is rounded so far down that the largest quotient lies beyond the codes.
    code.clamp(-f64::from(CODE_MAX), f64::from(CODE_MAX))
}

/// Whether an error of the f32 quotient, made by dividing or by multiplying with a rounded reciprocal, may change the
/// code.
fn is_tie(quotient: f64, rounding: Rounding) -> bool {
    let border = match rounding {
        Rounding::HalfEven | Rounding::HalfAway => 0.5,
        Rounding::Truncate => 0.0,
    };
    let distance = (quotient.abs() - border).rem_euclid(1.0);
    let distance = distance.min(1.0 - distance);
    quotient != 0.0 && distance < 4.0 * f64::from(f32::EPSILON) * quotient.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const Q8: Activations = Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false };

    #[test]
    fn a_block_becomes_codes_times_its_scale() {
        let mut x = vec![0.0; 33];
        (x[0], x[1], x[2], x[32]) = (-254.0, 2.9, 3.1, 1.0);
        let row = Row::declared(&x, Q8);
        assert_eq!(row.steps, [2.0, f64::from(1.0f32 / 127.0)]);
        assert_eq!(row.values[..4], [-254.0, 2.0, 4.0, 0.0]);
        assert!(row.ties.is_empty(), "{:?}", row.ties);
    }

    #[test]
    fn halves_are_ties_and_rounded_as_declared() {
        let mut x = vec![0.0; 32];
        (x[0], x[1], x[2]) = (127.0, 2.5, -3.5);
        let even = Row::declared(&x, Q8);
        assert_eq!(even.values[1..3], [2.0, -4.0]);
        assert_eq!(even.ties, [(1, 1.0), (2, 1.0)]);
        let away = Row::declared(&x, Activations::Q8 { rounding: Rounding::HalfAway, scale_f16: false });
        assert_eq!(away.values[1..3], [3.0, -4.0]);
    }

    #[test]
    fn codes_follow_from_the_scale_that_is_not_rounded() {
        let x: Vec<f64> = (0..32).map(|i| f64::from(i as f32 * 0.317)).collect();
        let scale = f64::from((31.0f32 * 0.317) / 127.0);
        let row = Row::declared(&x, Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: true });
        let rounded = half::f16::from_f64(scale).to_f64();
        assert_ne!(scale, rounded);
        for (value, x) in row.values.iter().zip(&x) {
            assert_eq!(*value, (x / scale).round_ties_even() * rounded);
        }
    }

    #[test]
    fn sums_of_q8_1_are_those_of_the_codes_by_the_scale_that_is_not_rounded() {
        let x: Vec<f64> = (0..64).map(|i| f64::from((i * 37 % 64) as f32 * 0.317 - 4.0)).collect();
        let row = Row::declared(&x, Activations::Q8_1 { rounding: Rounding::HalfEven });
        let as_q8_0 = Row::declared(&x, Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: true });
        assert_eq!((row.values, row.steps.as_slice()), (as_q8_0.values, as_q8_0.steps.as_slice()));
        assert_eq!(row.sums.len(), 2);
        for ((block, sum), scale) in x.chunks(32).zip(&row.sums).zip(&row.steps) {
            let codes: f64 = block.iter().map(|x| (x / scale).round_ties_even()).sum();
            assert_eq!(*sum, half::f16::from_f32(*scale as f32 * codes as f32).to_f64());
        }
    }

    #[test]
    fn blocks_of_q8_k_have_256_elements_and_a_reciprocal_scale() {
        let mut x = vec![0.0; 512];
        (x[0], x[200], x[300]) = (0.7, -0.9, 2.5);
        let row = Row::declared(&x, Activations::Q8K);
        assert_eq!((row.steps.len(), row.sums.len()), (16, 0));
        let scale = f64::from(1.0 / (127.0f32 / 0.9));
        assert_eq!((row.steps[0], row.steps[7]), (scale, scale));
        assert_eq!(row.values[200], -127.0 * scale);
        assert_eq!(row.values[0], (0.7f64 / 0.9 * 127.0).round() * scale);
        assert_eq!(row.values[300], 127.0 * f64::from(1.0 / (127.0f32 / 2.5)));
        assert_eq!(Row::declared(&[0.0; 256], Activations::Q8K).values, [0.0; 256]);
    }

    #[test]
    fn a_block_of_zeros_stays_zero() {
        assert_eq!(Row::declared(&[0.0; 32], Q8).values, [0.0; 32]);
    }

    #[test]
    fn codes_end_at_127_where_a_denormal_scale_is_too_small() {
        // 2^-149 is the smallest step of f32: 180 of them by 127 is one, and the quotient is 180.
        let step = f64::from(f32::from_bits(1));
        let mut x = vec![0.0; 32];
        (x[0], x[1]) = (180.0 * step, -180.0 * step);
        let row = Row::declared(&x, Q8);
        assert_eq!(row.steps, [step]);
        assert_eq!(row.values[..2], [127.0 * step, -127.0 * step]);
    }

    #[test]
    fn f16_and_bf16_are_rounded_to_even() {
        let x = [1.0 + 2f64.powi(-11), 1.0 + 2f64.powi(-8) + 2f64.powi(-20)];
        assert_eq!(Row::declared(&x, Activations::F16).values[0], 1.0);
        assert_eq!(Row::declared(&x, Activations::Bf16).values[1], 1.0 + 2f64.powi(-7));
    }
}
