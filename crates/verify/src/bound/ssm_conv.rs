//! The short convolution along time: a dot product over the taps.

use super::dot::{Accumulation, Loss};
use super::{Case, in_strips};
use crate::precision::Precision;
use crate::statistics::Statistics;

pub(super) fn judge(case: &Case) -> Statistics {
    let [x, w] = case.inputs else { return Statistics::default() };
    let (x_all, w_all) = (x.all(), w.all());
    let (len, taps) = (x.ty.shape[0], w.ty.shape[0]);
    let [channels, tokens, sequences, _] = case.output.ty.shape.sizes();
    let accumulation = Accumulation::new(case.profile, Precision::of(case.output.ty.dtype), false);
    in_strips(case, tokens * sequences, |row, tally| {
        let (token, sequence) = (row % tokens, row / tokens);
        for channel in 0..channels {
            let seen = &x_all[(sequence * channels + channel) * len + token..][..taps];
            let products: Vec<f64> = seen.iter().zip(&w_all[channel * taps..]).map(|(x, w)| x * w).collect();
            let exact = products.iter().fold(0.0, |sum, product| sum + product);
            let expected = accumulation.expected(&products, exact, None, &Loss::default());
            tally.add(row * channels + channel, &expected);
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::Op;
    use trueup_graph::op::SsmConv;
    use trueup_runtime::profile::Profile;

    #[test]
    fn f32_taps_pass_and_reversed_ones_do_not() {
        let (x, w) = (numbers(9 * 5, 51), numbers(4 * 5, 52));
        let inputs = [Operand::numbers(f32_type(&[9, 5]), &x), Operand::numbers(f32_type(&[4, 5]), &w)];
        let result = |tap: fn(usize) -> usize| -> Vec<f64> {
            let mut all = Vec::new();
            for t in 0..6 {
                for c in 0..5 {
                    let product = |k: usize| (x[c * 9 + t + k] as f32, w[c * 4 + tap(k)] as f32);
                    let sum = (0..4).map(product).fold(0.0f32, |sum, (x, w)| x.mul_add(w, sum));
                    all.push(f64::from(sum));
                }
            }
            all
        };
        assert!(passes(&Op::SsmConv(SsmConv), &inputs, &Profile::F32, &result(|k| k)));
        assert!(!passes(&Op::SsmConv(SsmConv), &inputs, &Profile::F32, &result(|k| 3 - k)));
    }
}
