//! One side of a diagonal overwritten: a thread for each element.

use super::{Argument, Call, ELEMENTWISE, Grid, expect_f32};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{DiagMask, Triangle};

/// Beyond every diagonal.
const PAST_MAX: i64 = i64::MAX / 2;

pub fn profile(_: &DiagMask, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(ELEMENTWISE)
}

pub fn launch(op: &DiagMask, call: &mut Call) -> Result<(), String> {
    let [x, y] = [call.inputs[0], call.output].map(|operand| Argument::View(operand.view));
    let past = i64::try_from(op.past).map_or(PAST_MAX, |past| past.min(PAST_MAX));
    let upper = Argument::Int(i32::from(op.triangle == Triangle::Upper));
    let grid = Grid::elements(call.output.ty.shape.elements())?;
    call.launch("diag_mask_f32", grid, &[x, y, Argument::Index(past), upper, Argument::Float(op.value)])
}
