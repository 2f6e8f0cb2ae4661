//! `y[m, u, t] = sum_k w[k, m, ids[u, t]] x[k, u, t]`: each element as one of `mul_mat`. An index outside the experts
//! has no result.

use super::dot::Accumulation;
use super::panel::{Panel, ROWS, Token, products};
use super::{Case, in_strips};
use crate::statistics::{Expected, Statistics};

pub(super) fn judge(case: &Case) -> Statistics {
    let [weights, x, ids] = case.inputs else { return Statistics::default() };
    let output = case.output_precision();
    let accumulation = Accumulation::with_weights(case.profile, output, weights);
    let [_, rows, experts, _] = weights.ty.shape.sizes();
    let (seen, used) = (x.ty.shape[1], case.output.ty.shape[1]);
    in_strips(case, ids.indices().len(), |pair, tally| {
        let column = pair % used % seen + seen * (pair / used);
        let token = [Token::of(x, column, case.profile)];
        let expert = usize::try_from(ids.indices()[pair]).ok().filter(|expert| *expert < experts);
        let (mut panel, mut results) = (Panel::default(), Vec::new());
        for first in (0..rows).step_by(ROWS) {
            let count = ROWS.min(rows - first);
            results.clear();
            if let Some(expert) = expert {
                panel.read(weights, expert * rows + first, count, case.profile);
                products(&accumulation, case.profile, &panel, &token, &mut results);
            }
            let all = results.first().copied().unwrap_or([Expected::same(f64::NAN, f64::NAN); ROWS]);
            for (row, expected) in all.iter().enumerate().take(count) {
                let index = pair * rows + first + row;
                // A token's experts see the same activations: no further samples of their rounding.
                if pair % used < seen {
                    tally.add(index, expected);
                } else {
                    tally.add_copy(index, expected);
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, judged, numbers, passes};
    use crate::operand::Operand;
    use trueup_blocks::DType;
    use trueup_graph::{Op, TensorType, op::MulMatId};
    use trueup_runtime::profile::Profile;

    /// 3 experts of 5 rows of 33, 2 used by each of 2 tokens.
    fn products(w: &[f64], x: &[f64], ids: [usize; 4]) -> Vec<f64> {
        let sum = |w: &[f64], x: &[f64]| {
            let pairs = w.iter().zip(x);
            f64::from(pairs.fold(0.0f32, |sum, (w, x)| (*w as f32).mul_add(*x as f32, sum)))
        };
        let pair = |(pair, expert): (usize, usize)| {
            let rows = w[expert * 5 * 33..][..5 * 33].chunks(33);
            rows.map(|row| sum(row, &x[pair * 33..][..33])).collect::<Vec<f64>>()
        };
        ids.into_iter().enumerate().flat_map(pair).collect()
    }

    #[test]
    fn products_with_the_chosen_experts_pass_and_another_expert_does_not() {
        let (w, x) = (numbers(33 * 5 * 3, 21), numbers(33 * 4, 22));
        let inputs = [
            Operand::numbers(f32_type(&[33, 5, 3]), &w),
            Operand::numbers(f32_type(&[33, 2, 2]), &x),
            Operand::integers(TensorType::new(DType::I32, &[2, 2]), &[2, 0, 1, 1]),
        ];
        let op = Op::MulMatId(MulMatId);
        assert!(passes(&op, &inputs, &Profile::F32, &products(&w, &x, [2, 0, 1, 1])));
        assert!(!passes(&op, &inputs, &Profile::F32, &products(&w, &x, [2, 1, 1, 1])));
    }

    #[test]
    fn an_expert_that_does_not_exist_cannot_be_judged() {
        let (w, x) = (numbers(4 * 2, 23), numbers(4, 24));
        let inputs = [
            Operand::numbers(f32_type(&[4, 1, 2]), &w),
            Operand::numbers(f32_type(&[4, 1, 1]), &x),
            Operand::integers(TensorType::new(DType::I32, &[1, 1]), &[2]),
        ];
        let found = judged(&Op::MulMatId(MulMatId), &inputs, &Profile::F32, &[0.0]);
        assert_eq!(found.broken.undefined, 1);
    }
}
