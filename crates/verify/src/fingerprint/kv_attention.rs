//! Candidates for attention over the cache in one operator: other masks, no scale, keys and values exchanged. Wrong
//! sequences and heads stand in `wiring.rs`.

use super::soft_max::{later, sooner, without_window};
use super::sums::listed;
use super::{Candidate, CandidateKind, Guesses};
use crate::scene::Scene;
use trueup_graph::Op;
use trueup_graph::op::KvAttention;

/// The place of the mask among the inputs.
const MASK: usize = 4;

macro_rules! candidates {
    ($($name:literal: $guess:expr;)*) => {
        /// The list.
        pub(super) const CANDIDATES: &[Candidate] =
            &[$(Candidate { name: $name, kind: CandidateKind::Formula, guess: $guess }),*];
    };
}

candidates! {
    "ignores the mask": |scene| masked(scene, |masks| vec![0.0; masks.len()]);
    "attends to one position more than the mask allows": |scene| masked(scene, |masks| later(masks, f64::max));
    "attends to one position less than the mask allows": |scene| masked(scene, |masks| sooner(masks, f64::min));
    "attends to one position more at the start of the mask": |scene| masked(scene, |masks| sooner(masks, f64::max));
    "attends to one position less at the start of the mask": |scene| masked(scene, |masks| later(masks, f64::min));
    "attends to all earlier positions: the sliding window is ignored": |scene| masked(scene, without_window);
    "omits the scale": unscaled;
    "swaps keys and values": exchanged;
}

/// Attention under another mask.
fn masked(scene: &Scene, change: fn(&[f64]) -> Vec<f64>) -> Option<Guesses> {
    matches!(scene.op, Op::KvAttention(_)).then(|| listed(scene.with_rows(MASK, change).judged().1))
}

fn unscaled(scene: &Scene) -> Option<Guesses> {
    let Op::KvAttention(attention) = scene.op else { return None };
    let op = KvAttention { scale: 1.0, ..attention }.into();
    (attention.scale != 1.0).then(|| listed(Scene { op, ..scene.clone() }.judged().1))
}

fn exchanged(scene: &Scene) -> Option<Guesses> {
    let fits = matches!(scene.op, Op::KvAttention(_)) && scene.inputs[1].ty.shape == scene.inputs[2].ty.shape;
    fits.then(|| {
        let mut scene = scene.clone();
        scene.inputs.swap(1, 2);
        listed(scene.judged().1)
    })
}
