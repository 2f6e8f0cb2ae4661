//! `y = a o b`: one rounding, one unit in the last place allowed; for a quotient and a power what the device declares
//! of its functions (docs/numerics.md#elementwise-functions).

use super::{Case, arithmetic, in_strips, oracle, within};
use crate::statistics::Statistics;
use trueup_graph::Shape;
use trueup_graph::op::Arithmetic;

pub(super) fn judge(member: Arithmetic, case: &Case) -> Statistics {
    let [a, b] = case.inputs else { return Statistics::default() };
    let shape = case.output.ty.shape;
    let moved = moved_by_inputs(case);
    in_strips(case, shape.rows(), |row, tally| {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let left = a.row(repeated_row(row, &shape, &a.ty.shape), &mut left);
        let right = b.row(repeated_row(row, &shape, &b.ty.shape), &mut right);
        for column in 0..shape[0] {
            let (left, right) = (left[column % left.len()], right[column % right.len()]);
            let (index, exact) = (row * shape[0] + column, apply(member, left, right));
            if exact.is_nan() && left.is_finite() && right.is_finite() {
                tally.add_no_number(index);
            } else {
                let moved = moved.get(index).copied().unwrap_or(0.0);
                tally.add(index, &within(case, exact, error(member, case, exact) + moved));
            }
        }
    })
}

/// As [`oracle::moved_by_inputs`]; none where inputs are used as they are, without asking the oracle.
fn moved_by_inputs(case: &Case) -> Vec<f64> {
    if !oracle::rounds_inputs(case.profile) {
        return Vec::new();
    }
    let inputs = oracle::host_inputs(case);
    let exact = oracle::exact(case.op, &inputs.iter().collect::<Vec<_>>());
    exact.map(|exact| oracle::moved_by_inputs(case, &inputs, &exact)).unwrap_or_default()
}

fn apply(member: Arithmetic, a: f64, b: f64) -> f64 {
    match member {
        Arithmetic::Add => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::Mul => a * b,
        Arithmetic::Div => a / b,
        Arithmetic::Pow => a.powf(b),
    }
}

/// What arithmetic may add; products and quotients below the smallest normal number may be flushed to 0.
fn error(member: Arithmetic, case: &Case, exact: f64) -> f64 {
    let precision = arithmetic(case.profile);
    let function = 1.0 + f64::from(case.profile.function_ulp);
    match member {
        Arithmetic::Add | Arithmetic::Sub => precision.ulp(exact),
        Arithmetic::Mul => precision.ulp(exact) + precision.normal_min,
        Arithmetic::Div | Arithmetic::Pow => function * precision.ulp(exact) + precision.normal_min,
    }
}

/// Which row of an input row `row` of the output is computed from.
fn repeated_row(row: usize, output: &Shape, input: &Shape) -> usize {
    let ([_, first, second, _], [_, i1, i2, i3]) = (output.sizes(), input.sizes());
    let (i, j, k) = (row % first, row / first % second, row / first / second);
    i % i1 + i1 * (j % i2 + i2 * (k % i3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use crate::precision::Precision;
    use trueup_graph::Op;
    use trueup_runtime::profile::{Accumulator, Profile};

    const ADD: Op = Op::Arithmetic(Arithmetic::Add);

    #[test]
    fn f32_addition_passes_and_two_units_do_not() {
        let (a, b) = (numbers(37 * 3, 1), numbers(37, 2));
        let inputs = [Operand::numbers(f32_type(&[37, 3]), &a), Operand::numbers(f32_type(&[37]), &b)];
        let mut sums: Vec<f64> = (0..37 * 3).map(|i| f64::from(a[i] as f32 + b[i % 37] as f32)).collect();
        assert!(passes(&ADD, &inputs, &Profile::F32, &sums));
        sums[40] = f64::from(f32::from_bits((sums[40] as f32).to_bits() + 2));
        assert!(!passes(&ADD, &inputs, &Profile::F32, &sums));
    }

    #[test]
    fn the_smaller_one_is_repeated_on_either_side() {
        let (a, b) = (numbers(4, 3), numbers(8 * 3, 4));
        let inputs = [Operand::numbers(f32_type(&[4]), &a), Operand::numbers(f32_type(&[8, 3]), &b)];
        let of = |place: fn(usize) -> usize| -> Vec<f64> {
            (0..24).map(|i| f64::from(a[place(i)] as f32 - b[i] as f32)).collect()
        };
        let op = Op::Arithmetic(Arithmetic::Sub);
        assert!(passes(&op, &inputs, &Profile::F32, &of(|i| i % 4)));
        assert!(!passes(&op, &inputs, &Profile::F32, &of(|i| i / 2 % 4)));
    }

    #[test]
    fn what_has_no_value_must_be_nan_and_division_by_zero_infinite() {
        let inputs =
            [Operand::numbers(f32_type(&[3]), &[0.0, -1.0, 3.0]), Operand::numbers(f32_type(&[3]), &[0.0, 0.0, 2.0])];
        let op = Op::Arithmetic(Arithmetic::Div);
        assert!(passes(&op, &inputs, &Profile::F32, &[f64::NAN, f64::NEG_INFINITY, 1.5]));
        assert!(!passes(&op, &inputs, &Profile::F32, &[0.0, f64::NEG_INFINITY, 1.5]));
        assert!(!passes(&op, &inputs, &Profile::F32, &[f64::NAN, f64::INFINITY, 1.5]));
        assert!(!passes(&op, &inputs, &Profile::F32, &[f64::NAN, f64::NEG_INFINITY, f64::NAN]));
    }

    #[test]
    fn inputs_may_be_rounded_where_that_is_declared() {
        let (a, b) = (numbers(64, 5), numbers(64, 6));
        let inputs = [Operand::numbers(f32_type(&[64]), &a), Operand::numbers(f32_type(&[64]), &b)];
        let half = |x: f64| Precision::F16.round(x);
        let sums: Vec<f64> = a.iter().zip(&b).map(|(a, b)| half(half(*a) + half(*b))).collect();
        let declared = Profile { accumulator: Accumulator::F16, ..Profile::F32 };
        assert!(passes(&ADD, &inputs, &declared, &sums));
        assert!(!passes(&ADD, &inputs, &Profile::F32, &sums));
    }
}
