//! Tensors from parameters, in f64 but for the result: a thread for each element.

use super::{Argument, Call, Grid, expect_f32};
use crate::profile::{Accumulator, Profile};
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::{Make, Making};

pub fn profile(op: &Make, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("the output", &TensorType::new(op.output, &[]))?;
    inputs.iter().try_for_each(|steps| expect_f32("the steps", steps))?;
    Ok(Profile { accumulator: Accumulator::F64, output: DType::F32, ..Profile::EXACT })
}

pub fn launch(op: &Make, call: &mut Call) -> Result<(), String> {
    let y = Argument::View(call.output.view);
    let grid = Grid::elements(call.output.ty.shape.elements())?;
    match op.rule {
        Making::Arange { start, step, .. } => {
            call.launch("arange_f32", grid, &[y, Argument::Float(start), Argument::Float(step)])
        }
        Making::Fill { value, .. } => call.launch("fill_f32", grid, &[y, Argument::Float(value)]),
        Making::TimestepEmbedding { period_max, .. } => {
            let steps = Argument::View(call.inputs[0].view);
            call.launch("timestep_embedding_f32", grid, &[steps, y, Argument::Float(period_max)])
        }
        Making::AlibiSlopes { bias_max, .. } => call.launch("alibi_slopes_f32", grid, &[y, Argument::Float(bias_max)]),
    }
}
