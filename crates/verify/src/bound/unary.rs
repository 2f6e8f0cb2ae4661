//! `y = f(x)` from the oracle. The bound contains the declared error of each function, one rounding for each operation,
//! and the errors of intermediate results times the slope of the operations that follow
//! (docs/numerics.md#elementwise-functions).

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
            // 1.702 and the product are rounded.
            let slope = 2.0 * argument.abs() / (1.0 + argument.exp());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::Op;
    use trueup_runtime::profile::Profile;

    type Function = fn(f32) -> f32;

    /// The formulas in f32 as they are usually written.
    const USUAL: [(Unary, Function); 15] = [
        (Unary::Sqr, |x| x * x),
        (Unary::Exp, f32::exp),
        (Unary::Sin, f32::sin),
        (Unary::Silu, |x| x / (1.0 + (-x).exp())),
        (Unary::Gelu, |x| 0.5 * x * (1.0 + (0.797_884_6 * x * (1.0 + 0.044715 * x * x)).tanh())),
        (Unary::GeluErf, |x| 0.5 * x * (1.0 + series_erf(x * std::f32::consts::FRAC_1_SQRT_2))),
        (Unary::GeluQuick, |x| x * (1.0 / (1.0 + (-1.702 * x).exp()))),
        (Unary::Sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
        (Unary::Tanh, f32::tanh),
        (Unary::Hardsigmoid, |x| (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        (Unary::Hardswish, |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        (Unary::Softplus, |x| if x > 20.0 { x } else { (1.0 + x.exp()).ln() }),
        (Unary::Scale { factor: 0.3, bias: -0.7 }, |x| x.mul_add(0.3, -0.7)),
        (Unary::LeakyRelu { slope: 0.1 }, |x| if x > 0.0 { x } else { 0.1 * x }),
        (Unary::Elu { alpha: 0.4 }, |x| if x > 0.0 { x } else { 0.4 * (x.exp() - 1.0) }),
    ];

    /// `erf z = 2 / sqrt pi e^(-z^2) sum_n 2^n z^(2 n + 1) / (2 n + 1)!!`, summed in f64 and rounded to f32.
    fn series_erf(z: f32) -> f32 {
        let z = f64::from(z).clamp(-6.0, 6.0);
        let (mut term, mut sum) = (z, z);
        for n in 1..200 {
            term *= 2.0 * z * z / f64::from(2 * n + 1);
            sum += term;
        }
        (std::f64::consts::FRAC_2_SQRT_PI * (-z * z).exp() * sum) as f32
    }

    #[test]
    fn the_usual_formulas_in_f32_pass_and_one_in_a_hundred_thousand_does_not() {
        let mut x: Vec<f64> = numbers(500, 15).into_iter().map(|x| f64::from((x * 5.0) as f32)).collect();
        x[..9].copy_from_slice(&[1.5, 0.0, -0.0, 3.0, -3.0, -90.0, 80.0, -17.0, 2f64.powi(-70)]);
        let profile = Profile { function_ulp: 1.0, ..Profile::F32 };
        for (unary, function) in USUAL {
            let (op, inputs) = (Op::Unary(unary), [Operand::numbers(f32_type(&[500]), &x)]);
            let mut result: Vec<f64> = x.iter().map(|x| f64::from(function(*x as f32))).collect();
            assert!(passes(&op, &inputs, &profile, &result), "{}", op.name());
            result[0] = f64::from((result[0] * 1.00001) as f32);
            assert!(!passes(&op, &inputs, &profile, &result), "{}", op.name());
        }
    }

    #[test]
    fn what_has_no_value_must_be_nan_and_the_logarithm_of_zero_infinite() {
        let inputs = [Operand::numbers(f32_type(&[3]), &[-1.0, 0.0, 1.0])];
        let log = Op::Unary(Unary::Log);
        assert!(passes(&log, &inputs, &Profile::F32, &[f64::NAN, f64::NEG_INFINITY, 0.0]));
        assert!(!passes(&log, &inputs, &Profile::F32, &[0.0, f64::NEG_INFINITY, 0.0]));
        assert!(!passes(&log, &inputs, &Profile::F32, &[f64::NAN, -3e38, 0.0]));
        assert!(!passes(&log, &inputs, &Profile::F32, &[crate::operand::UNWRITTEN, f64::NEG_INFINITY, 0.0]));
    }

    #[test]
    fn what_is_only_chosen_has_no_rounding() {
        let inputs = [Operand::numbers(f32_type(&[3]), &[-1.5, 0.0, 2.5])];
        let clamp = Op::Unary(Unary::Clamp { min: f32::NEG_INFINITY, max: 1.0 });
        assert!(passes(&clamp, &inputs, &Profile::F32, &[-1.5, 0.0, 1.0]));
        let above = f64::from(f32::from_bits(1f32.to_bits() + 1));
        assert!(!passes(&clamp, &inputs, &Profile::F32, &[-1.5, 0.0, above]));
    }
}
