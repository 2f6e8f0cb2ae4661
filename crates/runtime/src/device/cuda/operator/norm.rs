//! Normalisation of runs of elements: a block of threads for each run.

use super::{Argument, Call, Grid, expect_f32};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Norm, NormRule};

pub fn profile(_: &Norm, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(Profile { lanes: 256, ..Profile::F32 })
}

pub fn launch(op: &Norm, call: &mut Call) -> Result<(), String> {
    let kernel = match op.rule {
        NormRule::Layer | NormRule::Group { .. } => "norm_f32",
        NormRule::L2 => "l2_norm_f32",
    };
    let shape = call.output.ty.shape;
    let len = op.run(&shape);
    let [x, y] = [call.inputs[0], call.output].map(|operand| Argument::View(operand.view));
    let arguments = [x, y, Argument::Index(len as i64), Argument::Float(op.epsilon)];
    call.launch(kernel, Grid::rows(shape.elements() / len)?, &arguments)
}
