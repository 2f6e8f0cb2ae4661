//! The short convolution along time, taps one after the other: a thread for each element.

use super::{Argument, Call, Grid, expect_f32, expect_plain, suffix};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::SsmConv;

pub fn profile(_: &SsmConv, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    expect_plain("w", &inputs[1])?;
    Ok(Profile::F32)
}

pub fn launch(_: &SsmConv, call: &mut Call) -> Result<(), String> {
    let views = [call.inputs[0], call.inputs[1], call.output].map(|operand| Argument::View(operand.view));
    let grid = Grid::elements(call.output.ty.shape.elements())?;
    call.launch(&format!("ssm_conv_{}", suffix(call.inputs[1].ty.dtype)), grid, &views)
}
