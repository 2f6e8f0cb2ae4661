//! Functions of each element. Those that models activate with are made of the exponential function without branches;
//! the others are computed in f64 and rounded once.

use super::exponential::{ARGUMENT_MIN, exponential, exponential_parts};
use super::kernel;
#[cfg(feature = "samples")]
use super::samples::numbers;
#[cfg(feature = "samples")]
use crate::isa::Instructions;
use trueup_graph::op::Unary;

kernel! {
    /// `y[i] = f(x[i])`.
    fn unary(op: Unary, x: &[f32], y: &mut [f32]) {
        avx512 => recompiled_wider,
        avx2 => recompiled,
        scalar => mapped,
    }
    unary_samples on samples
}

#[inline(always)]
fn mapped(op: Unary, x: &[f32], y: &mut [f32]) {
    match op {
        Unary::Sqr => map(x, y, |x| x * x),
        Unary::Sqrt => map(x, y, f32::sqrt),
        Unary::Exp => map(x, y, exponential),
        Unary::Log => map_f64(x, y, f64::ln),
        Unary::Sin => map_f64(x, y, f64::sin),
        Unary::Cos => map_f64(x, y, f64::cos),
        Unary::Neg => map(x, y, |x| -x),
        Unary::Abs => map(x, y, f32::abs),
        Unary::Step => map(x, y, |x| f32::from(x > 0.0)),
        Unary::Relu => map(x, y, relu),
        Unary::Silu => map(x, y, silu),
        Unary::Gelu => map(x, y, gelu),
        Unary::GeluErf => map_f64(x, y, gelu_erf),
        Unary::GeluQuick => map(x, y, gelu_quick),
        Unary::Sigmoid => map(x, y, sigmoid),
        Unary::Tanh => map_f64(x, y, f64::tanh),
        Unary::Hardsigmoid => map(x, y, |x| (x + 3.0).clamp(0.0, 6.0) / 6.0),
        Unary::Hardswish => map(x, y, |x| x * ((x + 3.0).clamp(0.0, 6.0) / 6.0)),
        Unary::Softplus => map_f64(x, y, |x| x.clamp(0.0, f64::INFINITY) + (-x.abs()).exp().ln_1p()),
        Unary::Scale { factor, bias } => map(x, y, |x| factor * x + bias),
        Unary::Clamp { min, max } => map(x, y, |x| x.clamp(min, max)),
        Unary::PowScalar { exponent } => map_f64(x, y, |x| x.powf(exponent.into())),
        Unary::LeakyRelu { slope } => map(x, y, |x| if x > 0.0 { x } else { slope * x }),
        Unary::Elu { alpha } => map_f64(x, y, |x| if x > 0.0 { x } else { f64::from(alpha) * x.exp_m1() }),
    }
}

#[inline(always)]
fn map(x: &[f32], y: &mut [f32], function: impl Fn(f32) -> f32) {
    assert_eq!(x.len(), y.len(), "rows of one length");
    for (y, x) in y.iter_mut().zip(x) {
        *y = function(*x);
    }
}

#[inline(always)]
fn map_f64(x: &[f32], y: &mut [f32], function: impl Fn(f64) -> f64) {
    map(x, y, |x| function(f64::from(x)) as f32);
}

/// `max(x, 0)`; NaN stays.
#[inline(always)]
pub fn relu(x: f32) -> f32 {
    x.clamp(0.0, f32::INFINITY)
}

/// `x / (1 + exp(-x))`. For negative `x` the fraction is extended by `exp x`, so that nothing overflows, and scaled
/// down last, so that small results keep their digits.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    let (value, scale) = exponential_parts(-x.abs());
    let denominator = 1.0 + value * scale;
    let limited = if ARGUMENT_MIN > x { ARGUMENT_MIN } else { x };
    let (numerator, scale) = if x < 0.0 { (limited * value, scale) } else { (x, 1.0) };
    numerator / denominator * scale
}

/// `1 / (1 + exp(-x))`, extended by `exp x` for negative `x`.
#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    let (value, scale) = exponential_parts(-x.abs());
    let denominator = 1.0 + value * scale;
    let (numerator, scale) = if x < 0.0 { (value, scale) } else { (1.0, 1.0) };
    numerator / denominator * scale
}

/// `x (1 + tanh u) / 2 = x / (1 + exp(-2 u))` with `2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3)`.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    x * sigmoid(x * (x * x).mul_add(0.071_354_814, 1.595_769))
}

/// `x / (1 + exp(-1.702 x))`.
#[inline(always)]
pub fn gelu_quick(x: f32) -> f32 {
    x * sigmoid(1.702 * x)
}

/// `x (1 + erf(x / sqrt 2)) / 2 = x erfc(-x / sqrt 2) / 2`, which keeps its digits far below zero.
#[inline(always)]
pub fn gelu_erf(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// Every function, on numbers of all magnitudes and at the ends.
#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut x = numbers(997, 23);
    x[..10].copy_from_slice(&[
        -0.0,
        1e-40,
        -90.0,
        90.0,
        -101.0,
        -1e30,
        1e30,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ]);
    let with_parameters = [
        Unary::Scale { factor: 1.3, bias: 0.7 },
        Unary::Clamp { min: -0.5, max: f32::INFINITY },
        Unary::PowScalar { exponent: 2.3 },
        Unary::LeakyRelu { slope: 0.1 },
        Unary::Elu { alpha: 0.9 },
    ];
    let mut all = Vec::new();
    for op in Unary::PLAIN.into_iter().chain(with_parameters) {
        let mut y = vec![f32::NAN; x.len()];
        unary(instructions, op, &x, &mut y);
        all.extend(y);
    }
    all
}
