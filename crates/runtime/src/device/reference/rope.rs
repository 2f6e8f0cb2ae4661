//! Pairs of elements rotated by an angle that grows with the position.

use crate::host_tensor::HostTensor;
use std::f64::consts::TAU;
use trueup_graph::op::{Rope, RopePairs, RopeScaling};

pub(super) fn evaluate(rope: &Rope, inputs: &[&HostTensor]) -> Vec<f64> {
    let mut y = inputs[0].values().into_owned();
    let [head_size, heads, ..] = inputs[0].ty().shape.sizes();
    let positions = inputs[1].to_indices();
    let half = rope.dimensions / 2;
    let factors = inputs.get(2).map(|factors| factors.values());
    let frequencies: Vec<f64> =
        (0..half).map(|i| frequency(rope, i) / factors.as_ref().map_or(1.0, |factors| factors[i])).collect();
    let magnitude = magnitude(&rope.scaling);
    let [tokens, rows, ..] = inputs[1].ty().shape.sizes();
    for (t, token) in y.chunks_exact_mut((head_size * heads).max(1)).enumerate() {
        for head in token.chunks_exact_mut(head_size) {
            for row in 0..rows {
                let part = &mut head[row * rope.dimensions..][..rope.dimensions];
                rotate(rope.pairs, &frequencies, magnitude, f64::from(positions[row * tokens + t]), part);
            }
        }
    }
    y
}

/// Rotates all pairs of a head, or of the part of one that has positions of its own.
fn rotate(pairs: RopePairs, frequencies: &[f64], magnitude: f64, position: f64, part: &mut [f64]) {
    for (i, frequency) in frequencies.iter().enumerate() {
        let (first, second) = match pairs {
            RopePairs::Neighbours => (2 * i, 2 * i + 1),
            RopePairs::Halves => (i, i + frequencies.len()),
        };
        let (sin, cos) = (position * frequency).sin_cos();
        let (a, b) = (part[first], part[second]);
        part[first] = magnitude * (a * cos - b * sin);
        part[second] = magnitude * (a * sin + b * cos);
    }
}

/// The angle of pair `i` for each position, before the division by factors.
fn frequency(rope: &Rope, i: usize) -> f64 {
    let (dimensions, base) = (rope.dimensions as f64, f64::from(rope.base));
    let plain = base.powf(-2.0 * i as f64 / dimensions);
    match rope.scaling {
        RopeScaling::None | RopeScaling::Long { .. } => plain,
        RopeScaling::Linear { factor } => plain / f64::from(factor),
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, .. } => {
            let turns_at = |turns: f32| {
                let ratio = f64::from(original_context) / (TAU * f64::from(turns));
                dimensions * ratio.ln() / (2.0 * base.ln())
            };
            let low = turns_at(beta_fast).floor().max(0.0);
            let high = turns_at(beta_slow).ceil().min(dimensions - 1.0);
            let kept = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            plain * ((1.0 - kept) / f64::from(factor) + kept)
        }
    }
}

fn magnitude(scaling: &RopeScaling) -> f64 {
    match scaling {
        RopeScaling::None | RopeScaling::Linear { .. } => 1.0,
        RopeScaling::Yarn { magnitude, .. } | RopeScaling::Long { magnitude } => f64::from(*magnitude),
    }
}
