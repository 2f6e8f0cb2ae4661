//! `y = f(x)` by the oracle, and what arithmetic as declared may make of the formula as it is written: the error of each function, one
//! rounding for each operation, and errors of intermediate results through the slope of what follows (NUMERICS 2.4 and 4).

use super::{Case, arithmetic, function_error, in_strips, oracle, within};
use crate::precision::Precision;
use crate::statistics::Statistics;
use trueup_graph::op::Unary;
use trueup_runtime::profile::Profile;

pub(super) fn judge(unary: Unary, case: &Case) -> Statistics {
    let [x] = case.inputs else { return Statistics::default() };
    let inputs = oracle::host_inputs(case);
    let Some(exact) = oracle::exact(case.op, &inputs.iter().collect::<Vec<_>>()) else { return Statistics::default() };
    let moved = oracle::moved_by_inputs(case, &inputs, &exact);
    let len = x.ty.shape[0];
    in_strips(case, x.ty.shape.rows(), |row, tally| {
        let mut buffer = Vec::new();
        for (column, x) in x.row(row, &mut buffer).iter().enumerate() {
            let index = row * len + column;
            if exact[index].is_nan() && x.is_finite() {
                tally.add_no_number(index);
            } else {
                let error = error(unary, case.profile, *x, exact[index]) + moved[index];
                tally.add(index, &within(case, exact[index], error));
            }
        }
    })
}

/// How far arithmetic as declared may be off `y = f(x)`, before the result is stored.
pub(super) fn error(unary: Unary, profile: &Profile, x: f64, y: f64) -> f64 {
    let precision = arithmetic(profile);
    let (u, function) = (precision.unit, function_error(profile));
    let last_places = (1.0 + f64::from(profile.function_ulp)) * precision.ulp(y);
    let flushed = precision.normal_min;
    match unary {
        Unary::Neg | Unary::Abs | Unary::Step | Unary::Relu | Unary::Clamp { .. } => 0.0,
        Unary::Sqr => precision.ulp(y) + flushed,
        Unary::Sqrt | Unary::Exp | Unary::Log | Unary::Sin | Unary::Cos | Unary::Tanh => last_places + flushed,
        Unary::PowScalar { .. } => last_places + flushed,
        Unary::Scale { factor, bias } => {
            let product = if bias == 0.0 { 0.0 } else { u * (f64::from(factor) * x).abs() };
            product + precision.ulp(y) + flushed
        }
        Unary::LeakyRelu { .. } => negative(x, precision.ulp(y) + flushed),
        Unary::Elu { alpha } => {
            negative(x, f64::from(alpha).abs() * (function + 1.0) * u * x.exp() + 2.0 * u * y.abs() + flushed)
        }
        Unary::Sigmoid => (function + 3.0) * u * y.abs() + flushed,
        Unary::Silu => (function + 2.0).max(4.0) * u * y.abs() + flushed * (2.0 + x.abs()),
        Unary::Gelu | Unary::GeluErf => (function + 6.0).max(8.0) * u * x.abs() + flushed * (2.0 + x.abs()),
        Unary::GeluQuick => {
            let argument = 1.702 * x;
            let slope = argument.abs() / (1.0 + argument.exp());
            (function + 4.0 + slope) * u * y.abs() + flushed * (2.0 + x.abs())
        }
        Unary::Hardsigmoid => ramp(x, precision),
        Unary::Hardswish => ramp(x, precision) * x.abs() + precision.ulp(y),
        // 1 + e^x is rounded before the logarithm.
        Unary::Softplus => u + (function + 1.0) * u / (1.0 + (-x).exp()) + last_places,
    }
}

/// Nothing is computed of what is positive.
fn negative(x: f64, error: f64) -> f64 {
    if x > 0.0 { 0.0 } else { error }
}

/// Error of `(x + 3) / 6` or `x / 6 + 1 / 2`; beyond the ramp the result is a constant.
fn ramp(x: f64, precision: Precision) -> f64 {
    let inside = x.abs() <= 3.0 * (1.0 + 4.0 * precision.unit);
    if inside { 3.0 * precision.unit * (x.abs() / 6.0 + 0.5) } else { 0.0 }
}
