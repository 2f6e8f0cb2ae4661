//! `y = x / sqrt(mean(x^2) + epsilon) w`: relative `3 u + lambda u sqrt(0.18 n / 3) / 2` (docs/numerics.md#norms). A
//! sum of squares has no cancellation, so only the random walk of its partial sums remains; the square root halves it.

use super::{Case, arithmetic, in_strips, within};
use crate::precision::{LAMBDA, ROUNDING_VARIANCE};
use crate::statistics::Statistics;
use crate::sum::Sum;
use trueup_graph::op::RmsNorm;

pub(super) fn judge(norm: &RmsNorm, case: &Case) -> Statistics {
    let [x, w] = case.inputs else { return Statistics::default() };
    let len = x.ty.shape[0];
    let weights = w.all();
    let precision = arithmetic(case.profile);
    in_strips(case, x.ty.shape.rows(), |row, tally| {
        let mut buffer = Vec::new();
        let x = x.row(row, &mut buffer);
        let squares: Vec<f64> = x.iter().map(|x| x * x).collect();
        let sum = Sum::of(&squares, case.profile.lanes);
        let mean = squares.iter().fold(0.0, |sum, square| sum + square) / len as f64;
        let scale = 1.0 / (mean + f64::from(norm.epsilon)).sqrt();
        // At least the walk of one chain over all lanes' share; an outlier early in the row makes it longer.
        let chain = ROUNDING_VARIANCE * (len.div_ceil(case.profile.lanes.max(1)) + case.profile.lanes) as f64 / 3.0;
        let variance = sum.variance(precision, case.profile.order, case.profile.lanes);
        let walk = if sum.value > 0.0 { variance.sqrt() / sum.value } else { 0.0 };
        let relative = 3.0 * precision.unit + LAMBDA * walk.max(precision.unit * chain.sqrt()) / 2.0;
        for (column, (x, w)) in x.iter().zip(weights.iter()).enumerate() {
            let exact = x * scale * w;
            let error = relative * exact.abs() + precision.normal_min * (1.0 + w.abs());
            tally.add(row * len + column, &within(case, exact, error));
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::{Op, op::RmsNorm};
    use trueup_runtime::profile::Profile;

    fn normed(x: &[f64], w: &[f64], epsilon: f32) -> Vec<f64> {
        let mut all = Vec::new();
        for row in x.chunks(w.len()) {
            let sum = row.iter().fold(0.0f32, |sum, x| sum + *x as f32 * *x as f32);
            let scale = 1.0 / (sum / w.len() as f32 + epsilon).sqrt();
            all.extend(row.iter().zip(w).map(|(x, w)| f64::from(*x as f32 * scale * *w as f32)));
        }
        all
    }

    #[test]
    fn f32_norms_pass_and_another_epsilon_does_not() {
        for len in [1, 33, 4096] {
            let (x, w) = (numbers(len * 3, 9), numbers(len, 10));
            let inputs = [Operand::numbers(f32_type(&[len, 3]), &x), Operand::numbers(f32_type(&[len]), &w)];
            let op = Op::RmsNorm(RmsNorm { epsilon: 1e-5 });
            assert!(passes(&op, &inputs, &Profile::F32, &normed(&x, &w, 1e-5)), "{len}");
            assert!(!passes(&op, &inputs, &Profile::F32, &normed(&x, &w, 1e-3)), "{len}");
            assert!(!passes(&op, &inputs, &Profile::F32, &normed(&x, &w, 0.0)) || len == 4096, "{len}");
        }
    }
}
