//! Tensors from parameters, in f64 but for the result.

use super::{Call, IN_F64, expect_f32, pieces_min};
use crate::device::cpu::team::Team;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Make, Making};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    inputs.iter().try_for_each(|steps| expect_f32("the steps", steps))?;
    Ok(Profile { lanes: 1, ..IN_F64 })
}

pub fn compute(op: &Make, call: Call) -> Result<(), String> {
    expect_f32("the output", &call.output_type)?;
    let y = Call::output_floats(call.output)?;
    match op.rule {
        Making::Arange { start, step, .. } => {
            for (i, y) in y.iter_mut().enumerate() {
                *y = (f64::from(start) + i as f64 * f64::from(step)) as f32;
            }
        }
        Making::Fill { value, .. } => y.fill(value),
        Making::TimestepEmbedding { dimensions, period_max } => {
            if dimensions > 0 {
                embed(call.team, call.inputs[0].floats()?, dimensions, f64::from(period_max), y);
            }
        }
        Making::AlibiSlopes { heads, bias_max } => {
            for (h, y) in y.iter_mut().enumerate() {
                *y = (-f64::from(bias_max) * halvings(h, heads)).exp2() as f32;
            }
        }
    }
    Ok(())
}

fn embed(team: &Team, steps: &[f32], dimensions: usize, period_max: f64, y: &mut [f32]) {
    let half = dimensions / 2;
    let frequencies: Vec<f64> = (0..half).map(|j| period_max.powf(-(j as f64) / half as f64)).collect();
    let columns = y.chunks_mut(dimensions).zip(steps);
    team.each(columns, pieces_min(32 * dimensions), |(y, step)| {
        y.fill(0.0);
        for (j, frequency) in frequencies.iter().enumerate() {
            let (sine, cosine) = (f64::from(*step) * frequency).sin_cos();
            (y[j], y[half + j]) = (cosine as f32, sine as f32);
        }
    });
}

/// What a head's slope is halved by, in parts of the largest bias: the heads up to the last power of two take whole
/// steps, the others those between.
fn halvings(h: usize, heads: usize) -> f64 {
    let whole = 1usize << heads.ilog2();
    if h < whole { (h + 1) as f64 / whole as f64 } else { ((h - whole) as f64 + 0.5) / whole as f64 }
}
