//! Elements that change their places: bit for bit what the oracle moves.

use super::{Case, in_strips};
use crate::statistics::{Expected, Statistics};
use trueup_runtime::HostTensor;
use trueup_runtime::device::reference::evaluate;

pub(super) fn judge(case: &Case) -> Statistics {
    let held: Vec<HostTensor> = case.inputs.iter().map(|input| input.to_host_tensor()).collect();
    let Ok(moved) = evaluate(case.op, &held.iter().collect::<Vec<_>>()) else { return Statistics::default() };
    let moved = moved.values();
    let len = case.output.ty.shape[0];
    in_strips(case, case.output.ty.shape.rows(), |row, tally| {
        for (index, value) in moved.iter().enumerate().skip(row * len).take(len) {
            tally.add(index, &Expected::same(*value, *value));
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::Op;
    use trueup_graph::op::{Im2Col, Upscale, Window};
    use trueup_runtime::profile::Profile;

    #[test]
    fn rows_seen_by_a_window_pass_and_a_neighbour_does_not() {
        let x = numbers(5, 40);
        let inputs = [Operand::numbers(f32_type(&[5, 1, 1]), &x)];
        let op = Op::Im2Col(Im2Col { window: Window::line(2, 2, 1, 1), lines: true });
        let mut seen = vec![0.0, x[0], x[1], x[2], x[3], x[4]];
        assert!(passes(&op, &inputs, &Profile::F32, &seen));
        seen.swap(2, 3);
        assert!(!passes(&op, &inputs, &Profile::F32, &seen));
    }

    #[test]
    fn repeated_elements_pass_and_a_shifted_one_does_not() {
        let inputs = [Operand::numbers(f32_type(&[2]), &[1.0, 2.0])];
        let op = Op::Upscale(Upscale { factors: [2, 1, 1, 1] });
        assert!(passes(&op, &inputs, &Profile::F32, &[1.0, 1.0, 2.0, 2.0]));
        assert!(!passes(&op, &inputs, &Profile::F32, &[1.0, 2.0, 2.0, 2.0]));
    }
}
