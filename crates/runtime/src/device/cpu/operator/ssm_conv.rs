//! The short convolution along time, in f64 but for the result.

use super::{Call, IN_F64, expect_f32, expect_plain, pieces_min};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::SsmConv;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    expect_plain("w", &inputs[1])?;
    Ok(Profile { lanes: 1, ..IN_F64 })
}

pub fn compute(_: &SsmConv, call: Call) -> Result<(), String> {
    let (x, w) = (call.inputs[0].floats()?, call.inputs[1].widened()?);
    let (len, taps) = (call.inputs[0].ty.shape[0], call.inputs[1].ty.shape[0]);
    let y = Call::output_floats(call.output)?;
    // y[c, t, s]
    let [channels, tokens, ..] = call.output_type.shape.sizes();
    if y.is_empty() {
        return Ok(());
    }
    let rows = y.chunks_mut(channels).enumerate();
    call.team.each(rows, pieces_min(channels * taps), |(row, y)| {
        let (token, sequence) = (row % tokens, row / tokens);
        for (c, (y, w)) in y.iter_mut().zip(w.chunks_exact(taps)).enumerate() {
            let seen = &x[(sequence * channels + c) * len + token..][..taps];
            *y = seen.iter().zip(w).fold(0.0, |sum, (x, w)| sum + f64::from(*x) * f64::from(*w)) as f32;
        }
    });
    Ok(())
}
