//! Root mean square normalisation of each innermost row: a block of threads each.

use super::{Argument, Call, Grid, expect_f32, expect_plain, suffix};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::RmsNorm;

pub fn profile(_op: &RmsNorm, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    expect_plain("w", &inputs[1])?;
    // Root and reciprocal are rounded once each.
    Ok(Profile { lanes: 256, ..Profile::F32 })
}

pub fn launch(op: &RmsNorm, call: &mut Call) -> Result<(), String> {
    let (x, w) = (call.inputs[0], call.inputs[1]);
    let kernel = format!("rms_norm_{}", suffix(w.ty.dtype));
    let views = [x, w, call.output].map(|operand| Argument::View(operand.view));
    let [x, w, y] = views;
    call.launch(&kernel, Grid::rows(call.output.ty.shape.rows())?, &[x, w, y, Argument::Float(op.epsilon)])
}
