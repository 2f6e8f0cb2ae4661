//! The selective state space model. The error of a state is carried through its recurrence (Higham, Accuracy and
//! Stability of Numerical Algorithms, 3.3, running error analysis):
//!
//! ```text
//!  d = softplus(dt)           relative e_d = 2 f + 2 u         f: the declared error of functions, and u
//!  a = exp(d A)               relative e_a = |d A| (e_d + u) + f
//!  H' = a H + d B x           E' = a E + |a H| (e_a + u) + |d B x| (e_d + 2 u) + u |H'|
//!  y = sum C H                sum |C| E + lambda sigma of the sum
//! ```

use super::{Case, arithmetic, function_error, in_strips, within};
use crate::precision::{LAMBDA, Precision};
use crate::statistics::{Expected, Statistics};
use crate::sum::Sum;
use std::borrow::Cow;

/// The inputs as numbers, and their sizes.
struct Scan<'a> {
    state: usize,
    size: usize,
    heads: usize,
    tokens: usize,
    groups: usize,
    a_state: usize,
    states: Cow<'a, [f64]>,
    x: Cow<'a, [f64]>,
    dt: Cow<'a, [f64]>,
    a: Cow<'a, [f64]>,
    b: Cow<'a, [f64]>,
    c: Cow<'a, [f64]>,
}

pub(super) fn judge(case: &Case) -> Statistics {
    let [states, x, dt, a, b, c, ids] = case.inputs else { return Statistics::default() };
    let [state, size, heads, slots] = states.ty.shape.sizes();
    let [_, _, tokens, sequences] = x.ty.shape.sizes();
    let scan = Scan {
        state,
        size,
        heads,
        tokens,
        groups: b.ty.shape[1],
        a_state: a.ty.shape[0],
        states: states.all(),
        x: x.all(),
        dt: dt.all(),
        a: a.all(),
        b: b.all(),
        c: c.all(),
    };
    let width = size * heads;
    in_strips(case, width * sequences, |channel, tally| {
        let (sequence, place) = (channel / width, channel % width);
        // A sequence whose state lies nowhere has no result that could be right.
        let slot = ids.indices().get(sequence).and_then(|id| usize::try_from(*id).ok()).filter(|slot| *slot < slots);
        let nothing = || vec![Expected::same(f64::NAN, f64::NAN); tokens + state];
        let expected = slot.map_or_else(nothing, |slot| scan.channel(case, sequence, place, slot));
        for (token, expected) in expected[..tokens].iter().enumerate() {
            tally.add((sequence * tokens + token) * width + place, expected);
        }
        for (n, expected) in expected[tokens..].iter().enumerate() {
            tally.add(scan.x.len() + channel * state + n, expected);
        }
    })
}

impl Scan<'_> {
    /// The results of one channel, token by token, and behind them its last state.
    fn channel(&self, case: &Case, sequence: usize, place: usize, slot: usize) -> Vec<Expected> {
        let precision = arithmetic(case.profile);
        let u = precision.unit;
        let function = function_error(case.profile) * Precision::F32.unit + u;
        let delta_error = 2.0 * function + 2.0 * u;
        let width = self.size * self.heads;
        let head = place / self.size;
        let group = head * self.groups / self.heads;
        let mut held = self.states[(slot * width + place) * self.state..][..self.state].to_vec();
        let mut errors = vec![0.0; self.state];
        let mut expected = Vec::with_capacity(self.tokens + self.state);
        for token in sequence * self.tokens..(sequence + 1) * self.tokens {
            let delta = softplus(self.dt[token * self.heads + head]);
            let x = self.x[token * width + place];
            let row = (token * self.groups + group) * self.state;
            for (n, (held, error)) in held.iter_mut().zip(&mut errors).enumerate() {
                let exponent = delta * self.a[head * self.a_state + n % self.a_state];
                let (decay, input) = (exponent.exp(), delta * self.b[row + n] * x);
                let kept = decay * *held;
                *held = kept + input;
                *error = decay * *error
                    + kept.abs() * (exponent.abs() * (delta_error + u) + function + u)
                    + input.abs() * (delta_error + 2.0 * u)
                    + u * held.abs()
                    + precision.normal_min;
            }
            expected.push(self.mixed(case, &held, &errors, &self.c[row..][..self.state]));
        }
        expected.extend(held.iter().zip(errors).map(|(held, error)| within(case, *held, error)));
        expected
    }

    /// One result from the state.
    fn mixed(&self, case: &Case, held: &[f64], errors: &[f64], c: &[f64]) -> Expected {
        let precision = arithmetic(case.profile);
        let products: Vec<f64> = held.iter().zip(c).map(|(held, c)| held * c).collect();
        let sum = Sum::of(&products, case.profile.lanes);
        let carried = errors.iter().zip(c).fold(0.0, |sum, (error, c)| sum + error * c.abs());
        let variance =
            sum.variance(precision, case.profile.order, case.profile.lanes) + sum.product_variance(precision);
        let expected = within(case, sum.value, carried + LAMBDA * variance.sqrt());
        Expected { coarse: expected.coarse + 2.0 * Precision::BF16.unit * sum.absolute, ..expected }
    }
}

/// `log(1 + exp x)`, without overflow.
fn softplus(x: f64) -> f64 {
    if x > 0.0 { x + (-x).exp().ln_1p() } else { x.exp().ln_1p() }
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_blocks::DType;
    use trueup_graph::op::SsmScan;
    use trueup_graph::{Op, TensorType};
    use trueup_runtime::profile::Profile;

    const STATE: usize = 16;
    const HEADS: usize = 6;
    const TOKENS: usize = 33;

    /// One sequence, heads of one channel, one group, in f32.
    fn scanned(inputs: &[Vec<f64>], slot: usize) -> Vec<f64> {
        let [states, x, dt, a, b, c] = inputs else { return Vec::new() };
        let mut held: Vec<f32> = states[slot * STATE * HEADS..][..STATE * HEADS].iter().map(|x| *x as f32).collect();
        let mut all = Vec::new();
        for t in 0..TOKENS {
            for h in 0..HEADS {
                let delta = (dt[t * HEADS + h] as f32).exp().ln_1p();
                let mut sum = 0.0f32;
                for n in 0..STATE {
                    let held = &mut held[h * STATE + n];
                    let input = delta * b[t * STATE + n] as f32 * x[t * HEADS + h] as f32;
                    *held = *held * (delta * a[h * STATE + n] as f32).exp() + input;
                    sum += *held * c[t * STATE + n] as f32;
                }
                all.push(f64::from(sum));
            }
        }
        all.extend(held.into_iter().map(f64::from));
        all
    }

    #[test]
    fn f32_scans_pass_and_another_slot_or_an_older_token_does_not() {
        let mut values: Vec<Vec<f64>> =
            [STATE * HEADS * 2, HEADS * TOKENS, HEADS * TOKENS, STATE * HEADS, STATE * TOKENS, STATE * TOKENS]
                .iter()
                .enumerate()
                .map(|(seed, len)| numbers(*len, 60 + seed as u64))
                .collect();
        values[3].iter_mut().for_each(|a| *a = -a.abs());
        let sizes: [&[usize]; 6] = [
            &[STATE, 1, HEADS, 2],
            &[1, HEADS, TOKENS],
            &[HEADS, TOKENS],
            &[STATE, HEADS],
            &[STATE, 1, TOKENS],
            &[STATE, 1, TOKENS],
        ];
        let mut inputs: Vec<Operand> =
            sizes.iter().zip(&values).map(|(sizes, values)| Operand::numbers(f32_type(sizes), values)).collect();
        inputs.push(Operand::integers(TensorType::new(DType::I32, &[1]), &[1]));
        let profile = Profile { function_ulp: 1.0, ..Profile::F32 };
        let right = scanned(&values, 1);
        assert!(passes(&Op::SsmScan(SsmScan), &inputs, &profile, &right));
        assert!(!passes(&Op::SsmScan(SsmScan), &inputs, &profile, &scanned(&values, 0)));
        let mut stale = right;
        stale.copy_within(4 * HEADS..5 * HEADS, 5 * HEADS);
        assert!(!passes(&Op::SsmScan(SsmScan), &inputs, &profile, &stale));
    }
}
