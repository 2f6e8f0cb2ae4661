//! Candidates for functions of single elements, by themselves or as the gate of a product: another function than the operator's.

use super::sums::listed;
use super::{Candidate, CandidateKind, Guess, Guesses};
use crate::precision::Precision;
use crate::scene::Scene;
use trueup_graph::Op;
use trueup_graph::op::Unary;

macro_rules! candidates {
    ($($name:literal: $function:expr;)*) => {
        /// The list.
        pub(super) const CANDIDATES: &[Candidate] = &[$(Candidate {
            name: $name,
            kind: CandidateKind::Formula,
            guess: |scene| guesses(scene, $function),
        }),*];
    };
}

candidates! {
    "applies relu instead of its own function": Unary::Relu;
    "applies silu instead of its own function": Unary::Silu;
    "applies gelu (by tanh) instead of its own function": Unary::Gelu;
    "applies gelu (by erf) instead of its own function": Unary::GeluErf;
    "applies quick gelu instead of its own function": Unary::GeluQuick;
    "applies the sigmoid instead of its own function": Unary::Sigmoid;
    "applies tanh instead of its own function": Unary::Tanh;
    "applies no function": Unary::Scale { factor: 1.0, bias: 0.0 };
}

fn guesses(scene: &Scene, function: Unary) -> Option<Guesses> {
    let own = if let Op::Gated(gated) = &scene.op {
        gated.function()
    } else if let Op::Unary(unary) = &scene.op {
        *unary
    } else {
        return None;
    };
    if own == function {
        return None;
    }
    let mut applied = scene.clone();
    applied.op = Op::Unary(function);
    applied.inputs.truncate(1);
    let applied = listed(applied.judged().1);
    let Some(up) = scene.inputs.get(1) else { return Some(applied) };
    let up = up.operand().all();
    let product = |(index, guess): (usize, Guess)| {
        let ends = [guess.low * up[index], guess.high * up[index]];
        let rounding = Precision::F32.unit * ends[0].abs() + Precision::F32.normal_min;
        let sigma = guess.sigma * up[index].abs() + rounding;
        (index, Guess { low: ends[0].min(ends[1]), high: ends[0].max(ends[1]), sigma })
    };
    Some(applied.into_iter().map(product).collect())
}
