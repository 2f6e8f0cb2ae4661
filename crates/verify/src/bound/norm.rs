//! `y = (x - m) / sqrt(v + epsilon)`, or `x` divided by its length. The sums behind `m`, `v` and the length are those
//! of a product with ones (docs/numerics.md#norms):
//!
//! ```text
//!  error of m      lambda sigma(sum x) / n + u |m|
//!  error of y      (error of m + u |x - m|) / sqrt(v + epsilon) + |y| (3 u + (lambda sigma(sum d^2) / sum d^2 + 3 u) / 2)
//! ```
//!
//! An error of `m` is the same for all elements and adds only its square to `v`.

use super::{Case, arithmetic, in_strips, within};
use crate::precision::{LAMBDA, Precision, ROUNDING_VARIANCE};
use crate::statistics::Statistics;
use crate::sum::Sum;
use trueup_graph::op::{Norm, NormRule};
use trueup_runtime::profile::Profile;

pub(super) fn judge(norm: &Norm, case: &Case) -> Statistics {
    let [x] = case.inputs else { return Statistics::default() };
    let all = x.all();
    let len = norm.run(&x.ty.shape);
    in_strips(case, all.len().checked_div(len).unwrap_or(0), |run, tally| {
        let x = &all[run * len..][..len];
        let made = made(norm, case, x);
        for (place, x) in x.iter().enumerate() {
            let centred = x - made.mean;
            let exact = centred / made.divisor;
            let precision = arithmetic(case.profile);
            let shifted = (made.mean_error + precision.unit * centred.abs()) / made.divisor;
            let error = shifted + made.relative * exact.abs() + precision.normal_min;
            tally.add(run * len + place, &within(case, exact, error));
        }
    })
}

/// What a run is normalised by, and how exactly a device knows it.
struct Made {
    mean: f64,
    mean_error: f64,
    divisor: f64,
    relative: f64,
}

fn made(norm: &Norm, case: &Case, x: &[f64]) -> Made {
    let (precision, len, epsilon) = (arithmetic(case.profile), x.len() as f64, f64::from(norm.epsilon));
    let (mean, mean_error) = match norm.rule {
        NormRule::Layer | NormRule::Group { .. } => {
            let sum = Sum::of(x, case.profile.lanes);
            let noise = LAMBDA * sum.variance(precision, case.profile.order, case.profile.lanes).sqrt();
            (sum.value / len, noise / len + precision.unit * (sum.value / len).abs())
        }
        NormRule::L2 => (0.0, 0.0),
    };
    let squares: Vec<f64> = x.iter().map(|x| (x - mean) * (x - mean)).collect();
    let sum = Sum::of(&squares, case.profile.lanes);
    let walk = LAMBDA * walk(&sum, precision, case.profile);
    let (divisor, drift) = match norm.rule {
        NormRule::Layer | NormRule::Group { .. } => {
            let variance = sum.value / len + epsilon;
            (variance.sqrt(), mean_error * mean_error / variance)
        }
        NormRule::L2 => (sum.value.sqrt().max(epsilon), 0.0),
    };
    Made { mean, mean_error, divisor, relative: 3.0 * precision.unit + (walk + 3.0 * precision.unit) / 2.0 + drift }
}

/// Standard deviation of a sum of squares, relative: at least that of one chain over all lanes' share.
fn walk(sum: &Sum, precision: Precision, profile: &Profile) -> f64 {
    let lanes = profile.lanes.max(1);
    let chain = ROUNDING_VARIANCE * (sum.terms.div_ceil(lanes) + lanes) as f64 / 3.0;
    let known = if sum.value > 0.0 { sum.variance(precision, profile.order, lanes).sqrt() / sum.value } else { 0.0 };
    known.max(precision.unit * chain.sqrt())
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::Op;
    use trueup_graph::op::{Norm, NormRule};
    use trueup_runtime::profile::Profile;

    fn standardised(x: &[f64], run: usize, unbiased: bool) -> Vec<f64> {
        let mut all = Vec::new();
        for x in x.chunks(run) {
            let mean = x.iter().fold(0.0f32, |sum, x| sum + *x as f32) / run as f32;
            let squares = x.iter().fold(0.0f32, |sum, x| sum + (*x as f32 - mean) * (*x as f32 - mean));
            let scale = 1.0 / (squares / (run - usize::from(unbiased)) as f32 + 1e-5).sqrt();
            all.extend(x.iter().map(|x| f64::from((*x as f32 - mean) * scale)));
        }
        all
    }

    #[test]
    fn f32_norms_pass_around_any_mean_and_the_unbiased_variance_does_not() {
        for (len, shift) in [(33, 0.0), (257, 1.0), (4096, -8.0)] {
            let x: Vec<f64> = numbers(len * 3, 9).iter().map(|x| f64::from((x + shift) as f32)).collect();
            let op = Op::Norm(Norm { rule: NormRule::Layer, epsilon: 1e-5 });
            let inputs = [Operand::numbers(f32_type(&[len, 3]), &x)];
            assert!(passes(&op, &inputs, &Profile::F32, &standardised(&x, len, false)), "{len}");
            assert!(!passes(&op, &inputs, &Profile::F32, &standardised(&x, len, true)), "{len}");
        }
    }

    #[test]
    fn groups_are_those_of_channels() {
        let x = numbers(5 * 3 * 8 * 2, 21);
        let inputs = [Operand::numbers(f32_type(&[5, 3, 8, 2]), &x)];
        let op = |groups| Op::Norm(Norm { rule: NormRule::Group { groups }, epsilon: 1e-5 });
        let result = standardised(&x, 5 * 3 * 2, false);
        assert!(passes(&op(4), &inputs, &Profile::F32, &result));
        assert!(!passes(&op(2), &inputs, &Profile::F32, &result));
    }

    #[test]
    fn a_length_below_epsilon_is_epsilon() {
        let x: Vec<f64> = [3e-4f32, -4e-4].map(f64::from).to_vec();
        let inputs = [Operand::numbers(f32_type(&[2]), &x)];
        let op = |epsilon| Op::Norm(Norm { rule: NormRule::L2, epsilon });
        let divided = |by: f32| x.iter().map(|x| f64::from(*x as f32 / by)).collect::<Vec<f64>>();
        assert!(passes(&op(1e-6), &inputs, &Profile::F32, &divided(5e-4)));
        assert!(passes(&op(0.1), &inputs, &Profile::F32, &divided(0.1)));
        assert!(!passes(&op(0.1), &inputs, &Profile::F32, &divided(0.1005)));
    }
}
