//! Normalisation of runs of elements: a block of threads for each run, which reads by 16 bytes where runs begin so.

use super::{Argument, Call, Grid, expect_f32};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Norm, NormRule};

pub fn profile(_: &Norm, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(Profile { lanes: 256, ..Profile::F32 })
}

pub fn launch(op: &Norm, call: &mut Call) -> Result<(), String> {
    let (shape, x) = (call.output.ty.shape, call.inputs[0]);
    let len = op.run(&shape);
    let rule = match op.rule {
        NormRule::Layer | NormRule::Group { .. } => "norm",
        NormRule::L2 => "l2_norm",
    };
    let wide = call.means.repack && len.is_multiple_of(4) && x.ty.shape.is_dense() && x.begins_at(16);
    let kernel = format!("{rule}{}_f32", if wide { "_wide" } else { "" });
    let [x, y] = [x, call.output].map(|operand| Argument::View(operand.view));
    let arguments = [x, y, Argument::Index(len as i64), Argument::Float(op.epsilon)];
    call.launch(&kernel, Grid::rows(shape.elements() / len)?, &arguments)
}
