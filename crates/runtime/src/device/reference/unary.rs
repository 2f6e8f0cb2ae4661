//! `y[i] = f(x[i])`. Where a formula loses digits by cancellation, it is written so that it does not.

use crate::host_tensor::HostTensor;
use std::f64::consts::{FRAC_1_SQRT_2, PI};
use trueup_graph::op::Unary;

pub(super) fn evaluate(unary: &Unary, inputs: &[&HostTensor]) -> Vec<f64> {
    inputs[0].values().iter().map(|x| function(unary, *x)).collect()
}

/// `f(x)`.
pub(super) fn function(unary: &Unary, x: f64) -> f64 {
    match *unary {
        Unary::Sqr => x * x,
        Unary::Sqrt => x.sqrt(),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Step => f64::from(x > 0.0),
        Unary::Relu => x.clamp(0.0, f64::INFINITY),
        Unary::Silu => x / (1.0 + (-x).exp()),
        // (1 + tanh u) / 2 = 1 / (1 + e^(-2 u))
        Unary::Gelu => x / (1.0 + (-2.0 * (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)).exp()),
        // 1 + erf z = erfc(-z)
        Unary::GeluErf => 0.5 * x * libm::erfc(-x * FRAC_1_SQRT_2),
        Unary::GeluQuick => x / (1.0 + (-1.702 * x).exp()),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Tanh => x.tanh(),
        Unary::Hardsigmoid => (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Unary::Hardswish => x * ((x + 3.0).clamp(0.0, 6.0) / 6.0),
        // ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|)
        Unary::Softplus => x.clamp(0.0, f64::INFINITY) + (-x.abs()).exp().ln_1p(),
        Unary::Scale { factor, bias } => f64::from(factor) * x + f64::from(bias),
        Unary::Clamp { min, max } => x.clamp(min.into(), max.into()),
        Unary::PowScalar { exponent } => x.powf(exponent.into()),
        Unary::LeakyRelu { slope } => {
            if x > 0.0 {
                x
            } else {
                f64::from(slope) * x
            }
        }
        Unary::Elu { alpha } => {
            if x > 0.0 {
                x
            } else {
                f64::from(alpha) * x.exp_m1()
            }
        }
    }
}
