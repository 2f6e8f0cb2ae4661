//! One side of the diagonal overwritten: bit for bit.

use super::{Case, in_strips};
use crate::precision::Precision;
use crate::statistics::{Expected, Statistics};
use trueup_graph::op::{DiagMask, Triangle};

pub(super) fn judge(mask: &DiagMask, case: &Case) -> Statistics {
    let [x] = case.inputs else { return Statistics::default() };
    let [positions, tokens, ..] = x.ty.shape.sizes();
    let stored = Precision::of(case.output.ty.dtype);
    let value = stored.round(f64::from(mask.value));
    in_strips(case, x.ty.shape.rows(), |row, tally| {
        let diagonal = mask.past.saturating_add(row % tokens);
        let mut buffer = Vec::new();
        for (position, x) in x.row(row, &mut buffer).iter().enumerate() {
            let overwritten = match mask.triangle {
                Triangle::Upper => position > diagonal,
                Triangle::Lower => position < diagonal,
            };
            let exact = if overwritten { value } else { *x };
            tally.add(row * positions + position, &Expected::same(exact, exact));
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::op::{DiagMask, Triangle};
    use trueup_runtime::profile::Profile;

    #[test]
    fn the_diagonal_itself_stays() {
        let x = numbers(4 * 3, 31);
        let inputs = [Operand::numbers(f32_type(&[4, 3]), &x)];
        for (triangle, value) in
            [(Triangle::Upper, f32::NEG_INFINITY), (Triangle::Upper, 0.0), (Triangle::Lower, f32::NEG_INFINITY)]
        {
            // `off` moves the diagonal by one.
            let masked = |off: usize| -> Vec<f64> {
                let hidden = |i: usize| match triangle {
                    Triangle::Upper => i % 4 + off > i / 4 + 1,
                    Triangle::Lower => i % 4 < i / 4 + 1 + off,
                };
                (0..12).map(|i| if hidden(i) { f64::from(value) } else { x[i] }).collect()
            };
            let op = DiagMask { triangle, past: 1, value }.into();
            assert!(passes(&op, &inputs, &Profile::F32, &masked(0)), "{op:?}");
            assert!(!passes(&op, &inputs, &Profile::F32, &masked(1)), "{op:?}");
        }
    }
}
