//! Root mean square normalisation of each innermost row.

use super::{Call, expect_f32, expect_plain, pieces_min};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::RmsNorm;
use trueup_kernels as kernel;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    expect_plain("w", &inputs[1])?;
    Ok(Profile { lanes: kernel::LANES, ..Profile::F32 })
}

pub fn compute(op: &RmsNorm, call: Call) -> Result<(), String> {
    let (x, w) = (call.inputs[0].floats()?, call.inputs[1].widened()?);
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    let rows = y.chunks_mut(w.len()).zip(x.chunks(w.len()));
    call.team.each(rows, pieces_min(w.len()), |(y, x)| kernel::rms_norm(call.instructions, x, &w, op.epsilon, y));
    Ok(())
}
