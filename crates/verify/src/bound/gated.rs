//! `y = f(gate) up`: the error of `f`, and one rounding for the product. The bounds are in
//! docs/numerics.md#elementwise-functions.

use super::{Case, arithmetic, function_error, in_strips, oracle, unary, within};
use crate::statistics::Statistics;
use trueup_graph::Op;
use trueup_graph::op::Gated;

pub(super) fn judge(gated: Gated, case: &Case) -> Statistics {
    match gated {
        Gated::Swiglu if !oracle::rounds_inputs(case.profile) => swiglu(case),
        Gated::Reglu | Gated::Geglu | Gated::GegluErf | Gated::GegluQuick | Gated::Swiglu => by_oracle(gated, case),
    }
}

fn by_oracle(gated: Gated, case: &Case) -> Statistics {
    let [gate, up] = case.inputs else { return Statistics::default() };
    let inputs = oracle::host_inputs(case);
    let function = gated.function();
    let activated = oracle::exact(&Op::Unary(function), &[&inputs[0]]);
    let exact = oracle::exact(case.op, &inputs.iter().collect::<Vec<_>>());
    let (Some(activated), Some(exact)) = (activated, exact) else { return Statistics::default() };
    let moved = oracle::moved_by_inputs(case, &inputs, &exact);
    let (len, precision) = (gate.ty.shape[0], arithmetic(case.profile));
    in_strips(case, gate.ty.shape.rows(), |row, tally| {
        let (mut gates, mut ups) = (Vec::new(), Vec::new());
        let (gates, ups) = (gate.row(row, &mut gates), up.row(row, &mut ups));
        for (column, (gate, up)) in gates.iter().zip(ups).enumerate() {
            let index = row * len + column;
            let activation = unary::error(function, case.profile, *gate, activated[index]);
            let product = precision.ulp(exact[index]) + precision.normal_min;
            let error = activation * up.abs() + product + moved[index];
            tally.add(index, &within(case, exact[index], error));
        }
    })
}

fn swiglu(case: &Case) -> Statistics {
    let [gate, up] = case.inputs else { return Statistics::default() };
    let len = gate.ty.shape[0];
    let precision = arithmetic(case.profile);
    let units = (function_error(case.profile) + 2.0).max(4.0) + 1.0;
    in_strips(case, gate.ty.shape.rows(), |row, tally| {
        let (mut gates, mut ups) = (Vec::new(), Vec::new());
        let (gates, ups) = (gate.row(row, &mut gates), up.row(row, &mut ups));
        for (column, (gate, up)) in gates.iter().zip(ups).enumerate() {
            let exact = gate / (1.0 + (-gate).exp()) * up;
            // Far below zero exp(-gate) leaves the range, and the quotient becomes 0.
            let vanished = precision.normal_min * ((1.0 + gate.abs()) * up.abs() + 1.0);
            tally.add(row * len + column, &within(case, exact, precision.unit * units * exact.abs() + vanished));
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::{Op, op::Gated};
    use trueup_runtime::profile::Profile;

    #[test]
    fn f32_swiglu_passes_also_far_below_zero_and_a_sign_does_not() {
        let mut gate: Vec<f64> = numbers(257, 13).into_iter().map(|x| f64::from((x * 6.0) as f32)).collect();
        gate[..5].copy_from_slice(&[-90.0, -120.0, -1e30, 0.0, 88.0]);
        let up = numbers(257, 14);
        let inputs = [Operand::numbers(f32_type(&[257]), &gate), Operand::numbers(f32_type(&[257]), &up)];
        let mut result: Vec<f64> = gate
            .iter()
            .zip(&up)
            .map(|(gate, up)| (*gate as f32, *up as f32))
            .map(|(gate, up)| f64::from(gate / (1.0 + (-gate).exp()) * up))
            .collect();
        let op = Op::Gated(Gated::Swiglu);
        assert!(passes(&op, &inputs, &Profile::F32, &result));
        result[100] = -result[100];
        assert!(!passes(&op, &inputs, &Profile::F32, &result));
    }

    #[test]
    fn f32_geglu_passes_and_the_other_gelu_does_not() {
        let gate: Vec<f64> = numbers(129, 17).into_iter().map(|x| f64::from((x * 4.0) as f32)).collect();
        let up = numbers(129, 18);
        let inputs = [Operand::numbers(f32_type(&[129]), &gate), Operand::numbers(f32_type(&[129]), &up)];
        let gelu = |x: f32| 0.5 * x * (1.0 + (0.797_884_6 * x * (1.0 + 0.044715 * x * x)).tanh());
        let result: Vec<f64> =
            gate.iter().zip(&up).map(|(gate, up)| f64::from(gelu(*gate as f32) * *up as f32)).collect();
        let profile = Profile { function_ulp: 1.0, ..Profile::F32 };
        assert!(passes(&Op::Gated(Gated::Geglu), &inputs, &profile, &result));
        for other in [Gated::Reglu, Gated::GegluErf, Gated::GegluQuick, Gated::Swiglu] {
            assert!(!passes(&Op::Gated(other), &inputs, &profile, &result), "{other:?}");
        }
    }
}
