//! Rotation of pairs by an angle that grows with the position. Angles, sines and the rotation itself are in f64,
//! rounded once.

use super::{Call, expect_f32, expect_plain, pieces_min};
use crate::profile::{Accumulator, Profile};
use std::f64::consts::PI;
use trueup_graph::TensorType;
use trueup_graph::op::{Rope, RopePairs, RopeScaling};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    if let Some(factors) = inputs.get(2) {
        expect_plain("factors", factors)?;
    }
    Ok(Profile { accumulator: Accumulator::F64, ..Profile::F32 })
}

pub fn compute(op: &Rope, call: Call) -> Result<(), String> {
    let x = call.inputs[0].floats()?;
    let positions: Vec<i32> = call.inputs[1].floats()?.iter().map(|cell| cell.to_bits() as i32).collect();
    let factors = call.inputs.get(2).map(|factors| factors.widened()).transpose()?;
    let y = Call::output_floats(call.output)?;
    // x[d, h, t]
    let [head_size, heads, ..] = call.inputs[0].ty.shape.sizes();
    let [tokens, rows, ..] = call.inputs[1].ty.shape.sizes();
    let width = head_size * heads;
    if y.is_empty() {
        return Ok(());
    }
    let frequencies = frequencies(op, factors.as_deref());
    let magnitude = magnitude(op.scaling);
    let pieces = y.chunks_mut(width).zip(x.chunks(width)).enumerate();
    call.team.each(pieces, pieces_min(4 * width), |(t, (y, x))| {
        y.copy_from_slice(x);
        for row in 0..rows {
            let position = f64::from(positions[row * tokens + t]);
            let turn = |frequency: &f64| {
                let (sine, cosine) = (position * frequency).sin_cos();
                (magnitude * cosine, magnitude * sine)
            };
            let turns: Vec<(f64, f64)> = frequencies.iter().map(turn).collect();
            let part = row * op.dimensions..(row + 1) * op.dimensions;
            for (y, x) in y.chunks_exact_mut(head_size).zip(x.chunks_exact(head_size)) {
                rotate(op.pairs, &turns, &x[part.clone()], &mut y[part.clone()]);
            }
        }
    });
    Ok(())
}

/// Rotates all pairs of a head, or of the part of one that has positions of its own; each turn is `(s cos a, s sin a)`
/// of a pair.
fn rotate(pairs: RopePairs, turns: &[(f64, f64)], x: &[f32], y: &mut [f32]) {
    for (i, (cosine, sine)) in turns.iter().enumerate() {
        let (first, second) = match pairs {
            RopePairs::Neighbours => (2 * i, 2 * i + 1),
            RopePairs::Halves => (i, i + turns.len()),
        };
        let (x_1, x_2) = (f64::from(x[first]), f64::from(x[second]));
        y[first] = (x_1 * cosine - x_2 * sine) as f32;
        y[second] = (x_1 * sine + x_2 * cosine) as f32;
    }
}

/// The angle of each pair at position 1; formulas at [`Rope`] and [`RopeScaling`].
fn frequencies(op: &Rope, factors: Option<&[f32]>) -> Vec<f64> {
    let (dimensions, base) = (op.dimensions as f64, f64::from(op.base));
    let frequency = |i: usize| {
        let factor = factors.map_or(1.0, |factors| f64::from(factors[i]));
        let frequency = base.powf(-2.0 * i as f64 / dimensions) / factor;
        match op.scaling {
            RopeScaling::None | RopeScaling::Long { .. } => frequency,
            RopeScaling::Linear { factor } => frequency / f64::from(factor),
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, .. } => {
                let context = f64::from(original_context);
                let corner = |beta: f32| dimensions * (context / (2.0 * PI * f64::from(beta))).ln() / (2.0 * base.ln());
                let low = corner(beta_fast).floor().max(0.0);
                let high = corner(beta_slow).ceil().min(dimensions - 1.0);
                let ramp = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                frequency * ((1.0 - ramp) / f64::from(factor) + ramp)
            }
        }
    };
    (0..op.dimensions / 2).map(frequency).collect()
}

/// What sine and cosine are multiplied by.
fn magnitude(scaling: RopeScaling) -> f64 {
    match scaling {
        RopeScaling::None | RopeScaling::Linear { .. } => 1.0,
        RopeScaling::Yarn { magnitude, .. } | RopeScaling::Long { magnitude } => magnitude.into(),
    }
}
