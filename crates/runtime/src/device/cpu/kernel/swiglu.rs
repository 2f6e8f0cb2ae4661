//! The gated activation of the feed-forward.

use super::exponential::{ARGUMENT_MIN, exponential_parts};
use super::kernel;
#[cfg(test)]
use super::samples::numbers;
#[cfg(test)]
use crate::device::cpu::isa::Instructions;

kernel! {
    /// `y[i] = gate[i] / (1 + exp(-gate[i])) * up[i]`.
    fn swiglu(gate: &[f32], up: &[f32], y: &mut [f32]) {
        avx2 => recompiled,
        scalar => gated,
    }
    swiglu_variants_agree on samples
}

#[inline(always)]
fn gated(gate: &[f32], up: &[f32], y: &mut [f32]) {
    assert_eq!((gate.len(), gate.len()), (up.len(), y.len()), "rows of one length");
    for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
        *y = silu(*gate) * up;
    }
}

/// `x / (1 + exp(-x))`. For negative `x` the fraction is extended by `exp x`, so that nothing overflows, and scaled down last, so that small
/// results keep their digits.
#[inline(always)]
fn silu(x: f32) -> f32 {
    let (value, scale) = exponential_parts(-x.abs());
    let denominator = 1.0 + value * scale;
    let limited = if ARGUMENT_MIN > x { ARGUMENT_MIN } else { x };
    let (numerator, scale) = if x < 0.0 { (limited * value, scale) } else { (x, 1.0) };
    numerator / denominator * scale
}

#[cfg(test)]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut gate = numbers(997, 21);
    gate[..8].copy_from_slice(&[-0.0, 1e-40, -90.0, 90.0, -101.0, -1e30, 1e30, f32::NAN]);
    let mut y = vec![f32::NAN; gate.len()];
    swiglu(instructions, &gate, &numbers(997, 22), &mut y);
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four units of rounding and, among the smallest numbers, one last place.
    #[test]
    fn silu_is_the_formula() {
        for x in (-2200..2200).map(|i| i as f32 * 0.05 + 0.0123) {
            let exact = f64::from(x) / (1.0 + (-f64::from(x)).exp());
            let error = (f64::from(silu(x)) - exact).abs();
            assert!(error <= 4.0 * exact.abs() * 2f64.powi(-24) + 2f64.powi(-149), "{x}: {} for {exact}", silu(x));
        }
        assert_eq!(silu(-1e30), 0.0);
        assert_eq!(silu(1e30), 1e30);
    }
}
