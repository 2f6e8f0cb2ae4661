//! One tensor with another in it, bit for bit, or added to it: one rounding where the two lie over each other, one unit
//! in the last place allowed.

use super::{Case, in_strips, moving, within};
use crate::precision::Precision;
use crate::statistics::{Expected, Statistics};
use crate::verdict::Gate;
use trueup_graph::op::{Overlay, Overlaying};

pub(super) fn judge(overlay: &Overlay, case: &Case) -> Statistics {
    let [a, b] = case.inputs else { return Statistics::default() };
    if overlay.how == Overlaying::Set {
        return moving::judge(case);
    }
    let exact = moving::exact(case);
    let output = Precision::of(case.output.ty.dtype);
    let (len, [_, rows, planes, _]) = (a.ty.shape[0], a.ty.shape.sizes());
    in_strips(case, a.ty.shape.rows(), |row, tally| {
        for column in 0..len {
            let i = [column, row % rows, row / rows % planes, row / rows / planes];
            let inside = (0..4).all(|d| i[d] >= overlay.start[d] && i[d] - overlay.start[d] < b.ty.shape[d]);
            let index = row * len + column;
            let exact = exact.get(index).copied().unwrap_or(f64::NAN);
            let expected = if inside { within(case, exact, output.ulp(exact)) } else { Expected::same(exact, exact) };
            tally.add(index, &expected);
        }
    })
}

pub(super) fn gate(overlay: &Overlay) -> Gate {
    match overlay.how {
        Overlaying::Set => Gate::Bits,
        Overlaying::Acc => Gate::Bound,
    }
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::Op;
    use trueup_graph::op::{Overlay, Overlaying};
    use trueup_runtime::profile::Profile;

    #[test]
    fn sums_pass_and_elements_beside_them_must_keep_their_bits() {
        let (a, b) = (numbers(12, 1), numbers(2, 2));
        let inputs = [Operand::numbers(f32_type(&[4, 3]), &a), Operand::numbers(f32_type(&[2, 1]), &b)];
        let op = Op::from(Overlay { how: Overlaying::Acc, start: [1, 2, 0, 0] });
        let mut y = a.clone();
        (y[9], y[10]) = (f64::from((a[9] + b[0]) as f32), f64::from((a[10] + b[1]) as f32));
        assert!(passes(&op, &inputs, &Profile::F32, &y));
        y[11] = f64::from(f32::from_bits((y[11] as f32).to_bits() + 1));
        assert!(!passes(&op, &inputs, &Profile::F32, &y));
    }
}
