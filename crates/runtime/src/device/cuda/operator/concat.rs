//! One tensor behind another along one dimension: a thread for each element.

use super::{Argument, Call, Grid, moved};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::Concat;

pub fn profile(_: &Concat, inputs: &[TensorType]) -> Result<Profile, String> {
    moved::profile("a", &inputs[0])
}

pub fn launch(op: &Concat, call: &mut Call) -> Result<(), String> {
    let [a, b, y] = [call.inputs[0], call.inputs[1], call.output].map(|operand| Argument::View(operand.view));
    let kernel = moved::kernel("concat", call.output.ty.dtype);
    let grid = Grid::elements(call.output.ty.shape.elements())?;
    call.launch(&kernel, grid, &[a, b, y, Argument::Int(op.dimension as i32)])
}
