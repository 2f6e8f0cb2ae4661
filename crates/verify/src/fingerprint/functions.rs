//! Candidates for functions of single elements, by themselves or as the gate of a product: another function than the
//! operator's.

use super::sums::listed;
use super::{Candidate, CandidateKind, Guess, Guesses};
use crate::precision::Precision;
use crate::scene::Scene;
use trueup_graph::Op;
use trueup_graph::op::{Gated, MulMat, MulMatGated, Unary};

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
    "applies relu instead of the declared activation": Unary::Relu;
    "applies silu instead of the declared activation": Unary::Silu;
    "applies gelu (tanh) instead of the declared activation": Unary::Gelu;
    "applies gelu (erf) instead of the declared activation": Unary::GeluErf;
    "applies quick gelu instead of the declared activation": Unary::GeluQuick;
    "applies the sigmoid instead of the declared activation": Unary::Sigmoid;
    "applies tanh instead of the declared activation": Unary::Tanh;
    "applies no activation": Unary::Scale { factor: 1.0, bias: 0.0 };
}

fn guesses(scene: &Scene, function: Unary) -> Option<Guesses> {
    if let Op::MulMatGated(fused) = &scene.op {
        return if fused.gated.function() == function { None } else { fused_guesses(scene, function) };
    }
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

/// Of a fused feed-forward: another gate of the same family, or none.
fn fused_guesses(scene: &Scene, function: Unary) -> Option<Guesses> {
    if let Some(gated) = Gated::ALL.into_iter().find(|gated| gated.function() == function) {
        let applied = Scene { op: MulMatGated { gated }.into(), ..scene.clone() };
        return Some(listed(applied.judged().1));
    }
    let is_none = function == Unary::Scale { factor: 1.0, bias: 0.0 };
    let product = |weights: usize| {
        let inputs = vec![scene.inputs[weights].clone(), scene.inputs[2].clone()];
        listed(Scene { op: MulMat.into(), inputs, ..scene.clone() }.judged().1)
    };
    is_none.then(|| product(0).into_iter().zip(product(1)).map(|(gate, up)| (gate.0, gate.1.times(up.1))).collect())
}

impl Guess {
    /// The product of two numbers that are known so well.
    fn times(self, other: Guess) -> Guess {
        let ends = [self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high];
        let value = ends[0].abs();
        let sigma = (self.sigma * other.low).hypot(other.sigma * self.low) + Precision::F32.unit * value;
        let (low, high) =
            ends.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), end| (end.min(low), end.max(high)));
        Guess { low, high, sigma }
    }
}
