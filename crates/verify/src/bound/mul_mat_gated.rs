//! `y = f(g x) (u x)`: the noise of both products through the function and the product, the error of the function, and
//! its roundings.
//!
//! ```text
//!   g x ~ G + sigma_G ─ f ─▶ f(G) + f'(G) sigma_G ─┐
//!   u x ~ U + sigma_U ─────────────────────────────┴─ * ─▶ f(G) U,  sigma^2 = (U f'(G) sigma_G)^2 + (f(G) sigma_U)^2 + (f'(G) sigma_G sigma_U)^2
//! ```
//!
//! Both products are those of `mul_mat`, rounded to the type of the result, as the function takes them. Around R0 the
//! rounding of activations is one and the same for both: its variance is that of one row of weights, `U f'(G) g + f(G)
//! u`. Where the function is not straight over the noise, how far its ends are away counts in the place of its slope.

use super::dot::Accumulation;
use super::panel::{Covariance, Panel, Places, ROWS, Shared, Token, products, shared_loss};
use super::{Case, arithmetic, in_pieces, unary};
use crate::operand::Operand;
use crate::precision::{LAMBDA, Precision};
use crate::statistics::{Expected, Statistics};
use std::f64::consts::{PI, SQRT_2};
use trueup_graph::op::{Gated, MulMatGated};
use trueup_runtime::profile::{Accumulator, Activations, Profile};

/// What is made for some rows of both weights.
#[derive(Default)]
struct Buffers {
    panels: [Panel; 2],
    shared: Shared,
    sums: [Vec<[Expected; ROWS]>; 2],
    losses: Vec<Covariance>,
}

pub(super) fn judge(op: &MulMatGated, case: &Case) -> Statistics {
    let [gate, up, x] = case.inputs else { return Statistics::default() };
    let rule = Gating::new(op.gated, case);
    let accumulations = [gate, up].map(|weights| rule.accumulation(weights));
    let places = Places::new(&gate.ty.shape, &x.ty.shape, case.copies);
    let all: Vec<Token> = places.columns().iter().map(|column| Token::of(x, *column, case.profile)).collect();
    in_pieces(case, places.strips(), |piece, Buffers { panels, shared, sums, losses }: &mut Buffers, tally| {
        for group in places.groups(piece) {
            let tokens = &all[group.columns.clone()];
            for (i, weights) in [gate, up].into_iter().enumerate() {
                panels[i].read(weights, group.first, group.count, case.profile);
                products(&accumulations[i], case.profile, &panels[i], tokens, &mut sums[i]);
            }
            shared.read(panels);
            shared_loss(case.profile.activations, panels, shared, tokens, losses);
            group.add(&places, case, tally, |row, token| {
                rule.expected(&sums[0][token][row], &sums[1][token][row], |slopes| losses[token].variance(row, slopes))
            });
        }
    })
}

/// How products are gated.
struct Gating<'a> {
    gated: Gated,
    profile: &'a Profile,
    /// What the function is computed in: products are rounded to it, and so is the result.
    precision: Precision,
    /// The same as a profile of elementwise arithmetic.
    elementwise: Profile,
}

impl Gating<'_> {
    fn new<'a>(gated: Gated, case: &Case<'a>) -> Gating<'a> {
        let (sums, output) = (arithmetic(case.profile), Precision::of(case.output.ty.dtype));
        let precision = if output.unit > sums.unit { output } else { sums };
        // Half precisions have the error of their own last place, whatever the function is computed in before.
        let accumulator = if precision.unit > Precision::F32.unit {
            Accumulator::F16
        } else if precision.unit > Precision::F64.unit {
            Accumulator::F32
        } else {
            Accumulator::F64
        };
        let elementwise = Profile { activations: Activations::Unchanged, accumulator, ..*case.profile };
        Gating { gated, profile: case.profile, precision, elementwise }
    }

    fn accumulation(&self, weights: &Operand) -> Accumulation {
        Accumulation::with_weights(self.profile, self.precision, weights)
    }

    /// One element of the result; `loss` is the variance of the declared rounding of activations by the result's slopes
    /// along both products.
    fn expected(&self, gate: &Expected, up: &Expected, loss: impl Fn([f64; 2]) -> f64) -> Expected {
        let curve = Curve::at(self.gated, gate.declared);
        let (value, other) = (curve.value, up.declared);
        let declared = value * other;
        let exact = apply(self.gated, gate.exact) * up.exact;
        let error = self.error(gate.declared, value, other, declared);
        let noise = product_of_noise([curve.sigma(gate.sigma), up.sigma], [value, other]);
        let slopes = [curve.slope * other, value];
        let wide = Curve::at(self.gated, gate.exact);
        let bent = wide.sigma(gate.sigma_exact).powi(2) - (wide.slope * gate.sigma_exact).powi(2);
        let crossed = (wide.sigma(gate.sigma_exact) * up.sigma_exact).powi(2);
        let loss = loss(slopes) + bent.max(0.0) * other * other + crossed;
        let loss = if self.profile.activations == Activations::Unchanged { 0.0 } else { loss };
        let moved = |gate: f64, up: f64| {
            let gate = curve.moved(gate);
            within_limits(gate * (other.abs() + up)) + within_limits(value.abs() * up)
        };
        Expected {
            exact,
            declared,
            sigma: noise + error / LAMBDA,
            sigma_exact: (noise * noise + loss).sqrt() + error / LAMBDA,
            bound: moved(gate.bound, up.bound) + error,
            ties: moved(gate.ties, up.ties),
            coarse: moved(gate.coarse, up.coarse).max(error) + 2.0 * Precision::BF16.unit * declared.abs(),
        }
    }

    /// How far the function and the product may be off for right sums: half of it is likely.
    fn error(&self, gate: f64, value: f64, other: f64, declared: f64) -> f64 {
        let function = unary::error(self.gated.function(), &self.elementwise, gate, value);
        let product = self.precision.ulp(declared) + self.precision.normal_min * (1.0 + other.abs());
        function * other.abs() + product + 16.0 * Precision::F64.unit * declared.abs()
    }
}

/// Standard deviation of a product of two noisy numbers.
fn product_of_noise(sigmas: [f64; 2], values: [f64; 2]) -> f64 {
    let terms = [sigmas[0] * values[1], values[0] * sigmas[1], sigmas[0] * sigmas[1]];
    terms.iter().map(|term| term * term).sum::<f64>().sqrt()
}

/// A bound, where 0 times infinity is no number.
fn within_limits(bound: f64) -> f64 {
    if bound.is_nan() { f64::INFINITY } else { bound }
}

/// The function around one point.
struct Curve {
    gated: Gated,
    at: f64,
    value: f64,
    slope: f64,
}

impl Curve {
    fn at(gated: Gated, at: f64) -> Curve {
        let step = 1e-5 * at.abs().max(1.0);
        let slope = (apply(gated, at + step) - apply(gated, at - step)) / (2.0 * step);
        let slope = if slope.is_finite() { slope } else { 1.0 };
        Curve { gated, at, value: apply(gated, at), slope }
    }

    /// How far the value moves when the point moves by up to `distance`: a curve lies between its tangent and its ends.
    fn moved(&self, distance: f64) -> f64 {
        if distance == 0.0 {
            return 0.0;
        }
        let end = |end: f64| (apply(self.gated, end) - self.value).abs();
        let ends = end(self.at - distance).max(end(self.at + distance));
        (self.slope.abs() * distance).max(ends)
    }

    /// Standard deviation of the value for that of the point, up to [`LAMBDA`] of them away.
    fn sigma(&self, sigma: f64) -> f64 {
        self.moved(LAMBDA * sigma) / LAMBDA
    }
}

/// The functions of gates, written here and not by the oracle: `f(x)` in f64.
fn apply(gated: Gated, x: f64) -> f64 {
    match gated {
        Gated::Reglu => x.max(0.0),
        // (1 + tanh z) / 2 = 1 / (1 + e^(-2 z))
        Gated::Geglu => x / (1.0 + (-2.0 * (2.0 / PI).sqrt() * x * (1.0 + 0.044715 * x * x)).exp()),
        // 1 + erf z = erfc(-z)
        Gated::GegluErf => x / 2.0 * libm::erfc(-x / SQRT_2),
        Gated::GegluQuick => x / (1.0 + (-1.702 * x).exp()),
        Gated::Swiglu => x / (1.0 + (-x).exp()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::testing::{f32_type, judged, numbers, passes};
    use trueup_graph::Op;
    use trueup_runtime::profile::Rounding;

    const LEN: usize = 96;
    const ROWS: usize = 40;
    const TOKENS: usize = 3;

    const F32: Profile = Profile { function_ulp: 1.0, ..Profile::F32 };
    const Q8: Profile = Profile {
        activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
        accumulator: Accumulator::F64,
        ..F32
    };

    fn inputs<'a>(gate: &'a [f64], up: &'a [f64], x: &'a [f64]) -> [Operand<'a>; 3] {
        let w = f32_type(&[LEN, ROWS]);
        [Operand::numbers(w, gate), Operand::numbers(w, up), Operand::numbers(f32_type(&[LEN, TOKENS]), x)]
    }

    /// Weights and activations of a seed; products have a deviation of about 2.
    fn given(seed: u64) -> [Vec<f64>; 3] {
        let scaled = |len, seed| numbers(len, seed).into_iter().map(|x| f64::from((x * 0.2) as f32)).collect();
        [scaled(LEN * ROWS, seed), scaled(LEN * ROWS, seed + 1), numbers(LEN * TOKENS, seed + 2)]
    }

    /// Activations in codes of blocks of 32.
    fn coded(x: &[f64]) -> Vec<f64> {
        let block = |block: &[f64]| {
            let scale = block.iter().fold(0.0f32, |largest, x| largest.max(x.abs() as f32)) / 127.0;
            block
                .iter()
                .map(|x| f64::from((*x as f32 / scale).round_ties_even()) * f64::from(scale))
                .collect::<Vec<_>>()
        };
        x.chunks(32).flat_map(block).collect()
    }

    fn silu(x: f32) -> f32 {
        x / (1.0 + (-x).exp())
    }

    /// A kernel in f32: each sum by `sum`, both gated by `gate`.
    fn kernel(given: &[&[f64]; 3], sum: fn(&[f64], &[f64]) -> f32, gate: fn(f32, f32) -> f32) -> Vec<f64> {
        let [gates, ups, x] = given;
        let token = |x: &[f64]| {
            let rows = gates.chunks(LEN).zip(ups.chunks(LEN));
            rows.map(|(g, u)| f64::from(gate(sum(g, x), sum(u, x)))).collect::<Vec<f64>>()
        };
        x.chunks(LEN).flat_map(token).collect()
    }

    fn in_f32(w: &[f64], x: &[f64]) -> f32 {
        w.iter().zip(x).fold(0.0, |sum, (w, x)| (*w as f32).mul_add(*x as f32, sum))
    }

    fn in_f64(w: &[f64], x: &[f64]) -> f32 {
        w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() as f32
    }

    const SWIGLU: MulMatGated = MulMatGated { gated: Gated::Swiglu };

    #[test]
    fn right_kernels_of_both_profiles_pass_with_the_noise_that_is_declared() {
        for seed in 0..20 {
            let [gate, up, x] = given(100 + 3 * seed);
            let coded = coded(&x);
            let f32_result = kernel(&[&gate, &up, &x], in_f32, |g, u| silu(g) * u);
            let q8_result = kernel(&[&gate, &up, &coded], in_f64, |g, u| silu(g) * u);
            for (profile, result) in [(F32, f32_result), (Q8, q8_result)] {
                let statistics = judged(&SWIGLU.into(), &inputs(&gate, &up, &x), &profile, &result);
                let worst = statistics.worst_z.map_or(0.0, |worst| worst.ratio);
                assert!(crate::bound::gate(&SWIGLU.into()).verdict(&statistics, false).passes(), "{profile}, {seed}");
                assert!(worst <= 6.5 && statistics.rms_z() <= 1.1, "{profile}: {worst}, rms {}", statistics.rms_z());
                // The declared loss itself is as large as its model says.
                let exact = statistics.rms_z_exact();
                assert!(profile != Q8 || (0.5..1.5).contains(&exact), "rms against R0 {exact}");
            }
        }
    }

    /// Gate and up with the same weights share the rounding of activations wholly.
    #[test]
    fn the_loss_of_shared_activations_is_not_that_of_two_by_themselves() {
        let [gate, _, x] = given(7);
        let result = kernel(&[&gate, &gate, &coded(&x)], in_f64, |g, u| silu(g) * u);
        let statistics = judged(&SWIGLU.into(), &inputs(&gate, &gate, &x), &Q8, &result);
        assert!((0.5..1.3).contains(&statistics.rms_z_exact()), "{}", statistics.rms_z_exact());
    }

    #[test]
    fn wrong_kernels_do_not_pass() {
        let [gate, up, x] = given(31);
        let coded = coded(&x);
        let op: Op = SWIGLU.into();
        let right = kernel(&[&gate, &up, &coded], in_f64, |g, u| silu(g) * u);
        let fails = |what: &str, result: &[f64]| {
            assert!(!passes(&op, &inputs(&gate, &up, &x), &Q8, result), "{what}");
        };
        fails("gate and up exchanged", &kernel(&[&up, &gate, &coded], in_f64, |g, u| silu(g) * u));
        fails("no function", &kernel(&[&gate, &up, &coded], in_f64, |g, u| g * u));
        fails("another function", &kernel(&[&gate, &up, &coded], in_f64, |g, u| g / (1.0 + (-1.702 * g).exp()) * u));
        fails(
            "the last element of K left out",
            &kernel(&[&gate, &up, &coded], |w, x| in_f64(&w[..LEN - 1], x), |g, u| silu(g) * u),
        );
        fails("activations in f32", &kernel(&[&gate, &up, &x], in_f64, |g, u| silu(g) * u));
        let mut moved = right.clone();
        moved[17] *= 1.00001;
        fails("one element off by 1e-5", &moved);
        assert!(passes(&op, &inputs(&gate, &up, &x), &Q8, &right));
    }

    #[test]
    fn a_curve_moves_by_its_ends_or_its_tangent() {
        let relu = Curve::at(Gated::Reglu, -1.0);
        assert_eq!((relu.moved(0.5), relu.moved(3.0)), (0.0, 2.0));
        for (gated, at) in
            [(Gated::Swiglu, -1.278), (Gated::Geglu, 2.0), (Gated::GegluErf, -0.5), (Gated::GegluQuick, 0.0)]
        {
            let curve = Curve::at(gated, at);
            for distance in [1e-6, 1e-3, 0.3, 2.0] {
                let beyond =
                    (-50..=50).map(|step| (apply(gated, at + distance * f64::from(step) / 50.0) - curve.value).abs());
                let farthest = beyond.fold(0.0, f64::max);
                assert!(farthest <= curve.moved(distance) * 1.05 + 1e-12, "{gated:?} at {at}: {farthest}");
            }
        }
    }
}
