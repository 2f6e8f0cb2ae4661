//! `y = gate / (1 + exp(-gate)) up`: relative 4 u for silu and one more rounding for the product (NUMERICS 2.4).

use super::{Case, arithmetic, function_error, in_strips, within};
use crate::statistics::Statistics;

pub(super) fn judge(case: &Case) -> Statistics {
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
    use trueup_graph::{Op, op::Swiglu};
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
        let op = Op::Swiglu(Swiglu);
        assert!(passes(&op, &inputs, &Profile::F32, &result));
        result[100] = -result[100];
        assert!(!passes(&op, &inputs, &Profile::F32, &result));
    }
}
