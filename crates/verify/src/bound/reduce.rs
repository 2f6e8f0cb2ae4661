//! Sums and means: dot products with ones (docs/numerics.md#other-operators). The elements of a cumulative sum share
//! their roundings, so their errors are not independent samples. Each has its own bound, `lambda sigma` of the sum so
//! far.

use super::dot::{Accumulation, Loss};
use super::{Case, arithmetic, in_strips, within};
use crate::precision::{LAMBDA, Precision};
use crate::statistics::{Expected, Statistics, Tally};
use crate::sum::Sum;
use crate::verdict::Gate;
use trueup_graph::op::{Reduce, Reduction};

pub(super) fn gate(reduce: &Reduce) -> Gate {
    match reduce.rule {
        Reduction::Sum | Reduction::SumRows | Reduction::Mean => Gate::Noise,
        Reduction::CumSum => Gate::Bound,
    }
}

pub(super) fn judge(reduce: &Reduce, case: &Case) -> Statistics {
    let [x] = case.inputs else { return Statistics::default() };
    let rows = x.ty.shape.rows();
    match reduce.rule {
        Reduction::Sum => in_strips(case, 1, |_, tally| tally.add(0, &summed(case, &x.all()))),
        Reduction::SumRows => {
            in_strips(case, rows, |row, tally| tally.add(row, &summed(case, x.row(row, &mut Vec::new()))))
        }
        Reduction::Mean => {
            in_strips(case, rows, |row, tally| tally.add(row, &averaged(case, x.row(row, &mut Vec::new()))))
        }
        Reduction::CumSum => {
            in_strips(case, rows, |row, tally| accumulated(case, row, x.row(row, &mut Vec::new()), tally))
        }
    }
}

fn summed(case: &Case, x: &[f64]) -> Expected {
    let accumulation = Accumulation::new(case.profile, Precision::of(case.output.ty.dtype), false);
    accumulation.expected(x, exact_sum(x), None, &Loss::default())
}

fn exact_sum(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |sum, x| sum + x)
}

/// A sum that is kept as it is accumulated, divided, and rounded when it is divided and when it is stored.
fn averaged(case: &Case, x: &[f64]) -> Expected {
    let (precision, output) = (arithmetic(case.profile), Precision::of(case.output.ty.dtype));
    let len = x.len() as f64;
    let sum = Accumulation::new(case.profile, precision, false).expected(x, exact_sum(x), None, &Loss::default());
    let mean = sum.declared / len;
    let stored = if output.unit > precision.unit { (output.variance(mean), output.ulp(mean)) } else { (0.0, 0.0) };
    let sigma = |sigma: f64| ((sigma / len).powi(2) + precision.variance(mean) + stored.0).sqrt();
    Expected {
        exact: sum.exact / len,
        declared: mean,
        sigma: sigma(sum.sigma),
        sigma_exact: sigma(sum.sigma_exact),
        bound: sum.bound / len + precision.ulp(mean) + stored.1,
        ties: sum.ties / len,
        coarse: sum.coarse / len,
    }
}

fn accumulated(case: &Case, row: usize, x: &[f64], tally: &mut Tally) {
    let precision = arithmetic(case.profile);
    let mut sum = Sum::default();
    for (place, term) in x.iter().enumerate() {
        sum.terms += 1;
        sum.value += term;
        sum.path += sum.value * sum.value;
        sum.absolute += term.abs();
        sum.squares += term * term;
        let noise = LAMBDA * sum.variance(precision, case.profile.order, 1).sqrt();
        let mut expected = within(case, sum.value, noise.min(sum.hard_bound(precision, 0)));
        expected.coarse += 2.0 * Precision::BF16.unit * sum.absolute;
        tally.add(row * x.len() + place, &expected);
    }
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::Op;
    use trueup_graph::op::{Reduce, Reduction};
    use trueup_runtime::profile::Profile;

    fn op(rule: Reduction) -> Op {
        Op::Reduce(Reduce { rule })
    }

    #[test]
    fn f32_sums_pass_and_one_without_its_last_element_does_not() {
        for len in [2, 33, 1025] {
            let x = numbers(len * 7, 3);
            let inputs = [Operand::numbers(f32_type(&[len, 7]), &x)];
            let sums = |len_used: usize| -> Vec<f64> {
                let sum = |row: &[f64]| row[..len_used].iter().fold(0.0f32, |sum, x| sum + *x as f32);
                x.chunks(len).map(|row| f64::from(sum(row))).collect()
            };
            let means =
                |by: usize| sums(len).iter().map(|sum| f64::from(*sum as f32 / by as f32)).collect::<Vec<f64>>();
            assert!(passes(&op(Reduction::SumRows), &inputs, &Profile::F32, &sums(len)), "{len}");
            assert!(!passes(&op(Reduction::SumRows), &inputs, &Profile::F32, &sums(len - 1)), "{len}");
            assert!(passes(&op(Reduction::Mean), &inputs, &Profile::F32, &means(len)), "{len}");
            assert!(!passes(&op(Reduction::Mean), &inputs, &Profile::F32, &means(len + 1)), "{len}");
            let all = sums(len).iter().fold(0.0f32, |sum, row| sum + *row as f32);
            assert!(passes(&op(Reduction::Sum), &inputs, &Profile::F32, &[f64::from(all)]), "{len}");
            assert!(!passes(&op(Reduction::Sum), &inputs, &Profile::F32, &[f64::from(all) + 0.01]), "{len}");
        }
    }

    #[test]
    fn f32_running_sums_pass_and_those_before_each_element_do_not() {
        let x = numbers(257 * 2, 4);
        let inputs = [Operand::numbers(f32_type(&[257, 2]), &x)];
        let running = |after: bool| -> Vec<f64> {
            let mut all = Vec::new();
            for row in x.chunks(257) {
                let mut sum = 0.0f32;
                for x in row {
                    let before = sum;
                    sum += *x as f32;
                    all.push(f64::from(if after { sum } else { before }));
                }
            }
            all
        };
        assert!(passes(&op(Reduction::CumSum), &inputs, &Profile::F32, &running(true)));
        assert!(!passes(&op(Reduction::CumSum), &inputs, &Profile::F32, &running(false)));
    }
}
