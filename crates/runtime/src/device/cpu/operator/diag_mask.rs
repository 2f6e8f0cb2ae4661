//! One side of a diagonal overwritten.

use super::{Call, ELEMENTWISE, expect_f32, pieces_min};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{DiagMask, Triangle};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(ELEMENTWISE)
}

pub fn compute(op: &DiagMask, call: Call) -> Result<(), String> {
    let x = call.inputs[0].floats()?;
    let y = Call::output_floats(call.output)?;
    let [positions, tokens, ..] = call.output_type.shape.sizes();
    if y.is_empty() {
        return Ok(());
    }
    let rows = y.chunks_mut(positions).zip(x.chunks(positions)).enumerate();
    call.team.each(rows, pieces_min(positions), |(row, (y, x))| {
        y.copy_from_slice(x);
        let diagonal = op.past.saturating_add(row % tokens);
        match op.triangle {
            Triangle::Upper => y[diagonal.saturating_add(1).min(positions)..].fill(op.value),
            Triangle::Lower => y[..diagonal.min(positions)].fill(op.value),
        }
    });
    Ok(())
}
