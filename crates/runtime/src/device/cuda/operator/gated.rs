//! The gated activation of the feed-forward: a thread for each element.

use super::{Argument, Call, Grid, expect_f32, unary};
use crate::profile::Profile;
use trueup_graph::op::Gated;
use trueup_graph::{Op, TensorType};

pub fn profile(op: &Gated, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("gate and up", &inputs[0])?;
    Ok(unary::declared(&op.function()))
}

pub fn launch(op: &Gated, call: &mut Call) -> Result<(), String> {
    let views = [call.inputs[0], call.inputs[1], call.output].map(|operand| Argument::View(operand.view));
    let grid = Grid::elements(call.output.ty.shape.elements())?;
    call.launch(&format!("{}_f32", Op::Gated(*op).name()), grid, &views)
}
