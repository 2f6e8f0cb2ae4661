//! Elements repeated along every dimension: a thread for each element.

use super::{Argument, Call, ELEMENTWISE, Grid, expect_f32, moved};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::Upscale;

pub fn profile(_: &Upscale, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(ELEMENTWISE)
}

pub fn launch(op: &Upscale, call: &mut Call) -> Result<(), String> {
    let views = [call.inputs[0], call.output].map(|operand| Argument::View(operand.view));
    let arguments = [&views[..], &moved::indices(op.factors)].concat();
    call.launch("upscale_f32", Grid::elements(call.output.ty.shape.elements())?, &arguments)
}
