//! Candidates for any operator: results stored in less precision, inputs rounded before they are used.

use super::sums::listed;
use super::{Candidate, CandidateKind, Guess, Guesses};
use crate::precision::{LAMBDA, Precision};
use crate::scene::{Content, Scene};
use trueup_graph::Op;

/// The list.
pub(super) const CANDIDATES: &[Candidate] = &[
    Candidate {
        name: "rounds results to f16",
        kind: CandidateKind::Precision,
        guess: |scene| results(scene, Precision::F16),
    },
    Candidate {
        name: "rounds results to bf16",
        kind: CandidateKind::Precision,
        guess: |scene| results(scene, Precision::BF16),
    },
    Candidate {
        name: "rounds inputs to f16",
        kind: CandidateKind::Precision,
        guess: |scene| inputs(scene, Precision::F16),
    },
    Candidate {
        name: "rounds inputs to bf16",
        kind: CandidateKind::Precision,
        guess: |scene| inputs(scene, Precision::BF16),
    },
];

/// Every result as declared, then rounded: to either neighbour where noise may decide.
fn results(scene: &Scene, precision: Precision) -> Option<Guesses> {
    if Precision::of(scene.output.dtype).unit >= precision.unit {
        return None;
    }
    let rounded = |guess: Guess| {
        let noise = LAMBDA * guess.sigma;
        let ends = [guess.low - noise, guess.high + noise].map(|end| precision.round(end));
        Guess { low: ends[0], high: ends[1], sigma: guess.sigma }
    };
    let found = listed(scene.judged().1);
    Some(found.into_iter().map(|(index, guess)| (index, rounded(guess))).collect())
}

/// Activations rounded first. Products have candidates of their own for that; where nothing is computed it shows in the
/// result.
fn inputs(scene: &Scene, precision: Precision) -> Option<Guesses> {
    if matches!(scene.op, Op::MulMat(_) | Op::KvScores(_) | Op::KvMix(_) | Op::GetRows(_)) {
        return None;
    }
    let mut scene = scene.clone();
    let numbers = scene.inputs.iter_mut().filter_map(|input| match &mut input.content {
        Content::Numbers(numbers) => Some(numbers),
        Content::Integers(_) | Content::Blocks(_) => None,
    });
    numbers.flatten().for_each(|number| *number = precision.round(*number));
    Some(listed(scene.judged().1))
}
