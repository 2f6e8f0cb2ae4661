//! `y[j] = exp(s_j - max s) / sum exp(s - max s)`, `s = scale x + slope mask`: relative `u (|s - max| + 4 + lambda
//! sqrt(0.18 n / 3))` (docs/numerics.md#softmax). A masked element is exactly 0.

use super::{Case, arithmetic, function_error, in_strips, within};
use crate::operand::Operand;
use crate::precision::{LAMBDA, ROUNDING_VARIANCE};
use crate::statistics::{Expected, Statistics};
use trueup_graph::op::SoftMax;
use trueup_runtime::profile::Profile;

pub(super) fn judge(soft_max: &SoftMax, case: &Case) -> Statistics {
    let (x, mask) = match case.inputs {
        [x] => (x, None),
        [x, mask] => (x, Some(mask)),
        _ => return Statistics::default(),
    };
    let [len, tokens, heads, _] = x.ty.shape.sizes();
    in_strips(case, x.ty.shape.rows(), |row, tally| {
        let mut scores = Vec::new();
        let scores = x.row(row, &mut scores);
        let place = [row % tokens, row / tokens % heads, row / tokens / heads];
        let biases = biases(mask, place, len, slope(soft_max.max_bias, place[1], heads));
        // What a masked score is does not matter, not even whether it was computed.
        let arguments: Vec<f64> = scores
            .iter()
            .zip(&biases)
            .map(|(x, bias)| if *bias == f64::NEG_INFINITY { *bias } else { f64::from(soft_max.scale) * x + bias })
            .collect();
        for (column, expected) in row_expected(case, soft_max, &arguments, &biases).iter().enumerate() {
            tally.add(row * len + column, expected);
        }
    })
}

/// What is added to the scores of a token, a head and a batch: the mask, repeated along the outer dimensions, times the
/// head's slope.
pub(crate) fn biases(mask: Option<&Operand>, [token, head, batch]: [usize; 3], len: usize, slope: f64) -> Vec<f64> {
    let Some(mask) = mask else { return vec![0.0; len] };
    let [_, tokens, heads, batches] = mask.ty.shape.sizes();
    let mut buffer = Vec::new();
    let row = mask.row(token + tokens * (head % heads + heads * (batch % batches)), &mut buffer);
    row.iter().map(|mask| if *mask == f64::NEG_INFINITY { *mask } else { slope * mask }).collect()
}

/// ALiBi's slope of a head; the formula stands at [`SoftMax`].
pub(crate) fn slope(max_bias: f32, head: usize, heads: usize) -> f64 {
    let power = f64::from(heads.max(1).ilog2()).exp2();
    let (head, bias) = (head as f64, f64::from(max_bias));
    if max_bias == 0.0 {
        1.0
    } else if head < power {
        (-bias * (head + 1.0) / power).exp2()
    } else {
        (-bias * (2.0 * (head - power) + 1.0) / (2.0 * power)).exp2()
    }
}

/// Errors of a bias that has a slope, in units of `u |bias|`: the exponent's rounding, which the power multiplies, the
/// power's own error, and two products. An exponent is at most `max_bias`.
pub(super) fn bias_units(max_bias: f32, profile: &Profile) -> f64 {
    let exponent = f64::from(max_bias) * std::f64::consts::LN_2;
    if max_bias == 0.0 { 0.0 } else { function_error(profile) + 3.0 + 2.0 * exponent }
}

/// What one row of results should be.
fn row_expected(case: &Case, soft_max: &SoftMax, arguments: &[f64], biases: &[f64]) -> Vec<Expected> {
    if has_no_sum(arguments, biases) {
        return vec![Expected::same(f64::NAN, f64::NAN); arguments.len()];
    }
    let precision = arithmetic(case.profile);
    let largest = arguments.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let masked = |argument: &f64| *argument == f64::NEG_INFINITY;
    let exponentials: Vec<f64> =
        arguments.iter().map(|argument| if masked(argument) { 0.0 } else { (argument - largest).exp() }).collect();
    let sum = exponentials.iter().fold(0.0, |sum, exponential| sum + exponential);
    let terms = arguments.iter().filter(|argument| !masked(argument)).count();
    let lanes = case.profile.lanes.max(1);
    let walk = LAMBDA * (ROUNDING_VARIANCE * (terms.div_ceil(lanes) + lanes.min(terms)) as f64 / 3.0).sqrt();
    // Numerator and sum each hold the function's error; the rest is the division or a product with a reciprocal.
    let functions = (2.0 * function_error(case.profile) + 2.0).max(4.0);
    let scaling = if is_power_of_two(soft_max.scale) { 0.0 } else { 1.0 };
    let biased = bias_units(soft_max.max_bias, case.profile);
    let added = |argument: &f64, bias: &f64| {
        let sum = if *bias == 0.0 { 0.0 } else { argument.abs() };
        scaling * (argument - bias).abs() + sum + biased * bias.abs()
    };
    let products = exponentials.iter().zip(arguments.iter().zip(biases)).filter(|(exponential, _)| **exponential > 0.0);
    let scaled = products.map(|(exponential, (argument, bias))| exponential * added(argument, bias)).sum::<f64>() / sum;
    arguments
        .iter()
        .zip(biases)
        .zip(&exponentials)
        .map(|((argument, bias), exponential)| {
            if masked(argument) {
                return Expected::same(0.0, 0.0);
            }
            let exact = exponential / sum;
            let units = (argument - largest).abs() + added(argument, bias) + scaled + functions + walk;
            within(case, exact, precision.unit * units * exact + precision.normal_min)
        })
        .collect()
}

/// Whether a row that shows something has no sum: of scores that are NaN or infinite, as those of a cache that
/// overflowed are, nothing is left to say of any element, masked ones included.
fn has_no_sum(arguments: &[f64], biases: &[f64]) -> bool {
    let shown = || arguments.iter().zip(biases).filter(|(_, bias)| **bias != f64::NEG_INFINITY);
    let wild = shown().any(|(argument, _)| argument.is_nan() || *argument == f64::INFINITY);
    wild || (shown().next().is_some() && shown().all(|(argument, _)| *argument == f64::NEG_INFINITY))
}

/// Whether multiplying by it rounds nothing.
fn is_power_of_two(scale: f32) -> bool {
    scale.to_bits().trailing_zeros() >= f32::MANTISSA_DIGITS - 1
}

#[cfg(test)]
mod tests {
    use crate::bound::gate;
    use crate::bound::testing::{f32_type, judged, numbers, passes};
    use crate::operand::Operand;
    use crate::verdict::Verdict;
    use trueup_graph::{Op, op::SoftMax};
    use trueup_runtime::profile::Profile;

    const LEN: usize = 70;

    fn softened(x: &[f64], mask: &[f64]) -> Vec<f64> {
        let mut all = Vec::new();
        for (row, x) in x.chunks(LEN).enumerate() {
            let mask = &mask[row % 2 * LEN..][..LEN];
            let scores: Vec<f32> = x.iter().zip(mask).map(|(x, mask)| 0.3f32 * *x as f32 + *mask as f32).collect();
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exponentials: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum: f32 = exponentials.iter().sum();
            all.extend(exponentials.iter().map(|exponential| f64::from(exponential / sum)));
        }
        all
    }

    #[test]
    fn f32_soft_max_passes_and_one_without_its_mask_does_not() {
        let x: Vec<f64> = numbers(LEN * 2 * 3, 11).into_iter().map(|x| f64::from((x * 9.0) as f32)).collect();
        let mut mask = vec![0.0; LEN * 2];
        mask[50..LEN].fill(f64::NEG_INFINITY);
        mask[LEN + 51..].fill(f64::NEG_INFINITY);
        let inputs = [Operand::numbers(f32_type(&[LEN, 2, 3]), &x), Operand::numbers(f32_type(&[LEN, 2]), &mask)];
        let op = Op::SoftMax(SoftMax { scale: 0.3, max_bias: 0.0 });
        let profile = Profile { function_ulp: 1.0, ..Profile::F32 };
        let right = softened(&x, &mask);
        assert!(passes(&op, &inputs, &profile, &right));
        assert!(!passes(&op, &inputs, &profile, &softened(&x, &[0.0; LEN * 2])));
        let mut leak = right;
        leak[60] = 1e-30;
        assert!(!passes(&op, &inputs, &profile, &leak), "a masked position is exactly 0");
    }

    #[test]
    fn a_row_that_is_all_masked_is_all_zero() {
        let mask = vec![f64::NEG_INFINITY; LEN];
        let x = numbers(LEN, 12);
        let inputs = [Operand::numbers(f32_type(&[LEN, 1, 1]), &x), Operand::numbers(f32_type(&[LEN, 1]), &mask)];
        let op = Op::SoftMax(SoftMax { scale: 0.5, max_bias: 0.0 });
        assert!(passes(&op, &inputs, &Profile::F32, &[0.0; LEN]));
        assert!(!passes(&op, &inputs, &Profile::F32, &[f64::NAN; LEN]));
    }

    #[test]
    fn of_a_row_whose_scores_are_no_numbers_nothing_is_said() {
        let mut mask = vec![0.0; LEN];
        mask[50..].fill(f64::NEG_INFINITY);
        for scores in [[f64::INFINITY; 50], [f64::NEG_INFINITY; 50], [f64::NAN; 50]] {
            let mut x = numbers(LEN, 13);
            x[..50].copy_from_slice(&scores);
            let inputs = [Operand::numbers(f32_type(&[LEN, 1, 1]), &x), Operand::numbers(f32_type(&[LEN, 1]), &mask)];
            let op = Op::SoftMax(SoftMax { scale: 0.5, max_bias: 0.0 });
            let found = judged(&op, &inputs, &Profile::F32, &[f64::NAN; LEN]);
            assert_eq!(gate(&op).verdict(&found, false), Verdict::Inconclusive, "scores of {}", scores[0]);
        }
    }
}
