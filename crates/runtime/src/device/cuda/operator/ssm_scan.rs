//! The selective state space model: a warp for each channel of each sequence, which runs through the tokens.

use super::{Argument, Call, Grid, expect_f32, expect_plain, suffix};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::SsmScan;

/// Threads of a warp.
const WARP: usize = 32;

pub fn profile(_: &SsmScan, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("states", &inputs[0])?;
    expect_plain("A", &inputs[3])?;
    // The exponential function is the least exact one.
    Ok(Profile { lanes: WARP, function_ulp: 2.0, ..Profile::F32 })
}

pub fn launch(_: &SsmScan, call: &mut Call) -> Result<(), String> {
    let [_, size, heads, _] = call.inputs[0].ty.shape.sizes();
    let channels = size * heads * call.inputs[1].ty.shape[3];
    let mut arguments: Vec<Argument> = call.inputs.iter().map(|input| Argument::View(input.view)).collect();
    arguments.extend([Argument::View(call.output.view), call.fault()]);
    let kernel = format!("ssm_scan_{}", suffix(call.inputs[3].ty.dtype));
    call.launch(&kernel, Grid::elements(WARP * channels)?, &arguments)
}
