//! `y = a + b`: one rounding, one unit in the last place allowed.

use super::{Case, in_strips, within};
use crate::precision::Precision;
use crate::statistics::Statistics;

pub(super) fn judge(case: &Case) -> Statistics {
    let [a, b] = case.inputs else { return Statistics::default() };
    let (shape, repeated) = (a.ty.shape, b.ty.shape);
    let output = Precision::of(case.output.ty.dtype);
    in_strips(case, shape.rows(), |row, tally| {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let left = a.row(row, &mut left);
        let right = b.row(repeated_row(row, shape.sizes(), repeated.sizes()), &mut right);
        for (column, left) in left.iter().enumerate() {
            let exact = left + right[column % right.len()];
            tally.add(row * shape[0] + column, &within(case, exact, output.ulp(exact)));
        }
    })
}

/// Which row of `b`, of sizes `repeated`, is added to row `row` of `a`.
fn repeated_row(row: usize, sizes: [usize; 4], repeated: [usize; 4]) -> usize {
    let [_, first, second, _] = sizes;
    let (i, j, k) = (row % first, row / first % second, row / first / second);
    i % repeated[1] + repeated[1] * (j % repeated[2] + repeated[2] * (k % repeated[3]))
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::Op;
    use trueup_graph::op::Add;
    use trueup_runtime::profile::Profile;

    #[test]
    fn f32_addition_passes_and_two_units_do_not() {
        let (a, b) = (numbers(37 * 3, 1), numbers(37, 2));
        let inputs = [Operand::numbers(f32_type(&[37, 3]), &a), Operand::numbers(f32_type(&[37]), &b)];
        let mut sums: Vec<f64> = (0..37 * 3).map(|i| f64::from(a[i] as f32 + b[i % 37] as f32)).collect();
        assert!(passes(&Op::Add(Add), &inputs, &Profile::F32, &sums));
        sums[40] = f64::from(f32::from_bits((sums[40] as f32).to_bits() + 2));
        assert!(!passes(&Op::Add(Add), &inputs, &Profile::F32, &sums));
    }
}
