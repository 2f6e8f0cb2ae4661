//! The gated activation of the feed-forward.

use super::{Call, expect_f32, pieces_min, unary};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::Gated;
use trueup_kernels as kernel;

/// Elements that a thread takes at a time.
const CHUNK: usize = 1 << 10;

pub fn profile(op: &Gated, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("gate and up", &inputs[0])?;
    Ok(unary::declared(&op.function()))
}

pub fn compute(op: &Gated, call: Call) -> Result<(), String> {
    let (gate, up) = (call.inputs[0].floats()?, call.inputs[1].floats()?);
    let y = Call::output_floats(call.output)?;
    let chunks = y.chunks_mut(CHUNK).zip(gate.chunks(CHUNK).zip(up.chunks(CHUNK)));
    call.team.each(chunks, pieces_min(4 * CHUNK), |(y, (gate, up))| {
        kernel::gated(call.instructions, *op, gate, up, y);
    });
    Ok(())
}
