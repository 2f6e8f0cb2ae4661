//! The largest element that a window sees, or the mean: a thread for each place.

use super::{Argument, Call, ELEMENTWISE, Grid, expect_f32};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Pool2d, Pooling};

pub fn profile(_: &Pool2d, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(ELEMENTWISE)
}

pub fn launch(op: &Pool2d, call: &mut Call) -> Result<(), String> {
    let kernel = match op.rule {
        Pooling::Average => "pool_2d_average_f32",
        Pooling::Max => "pool_2d_max_f32",
    };
    let numbers = [op.window.size, op.window.stride, op.window.padding].concat();
    let mut arguments = vec![Argument::View(call.inputs[0].view), Argument::View(call.output.view)];
    arguments.extend(numbers.into_iter().map(|number| Argument::Index(number as i64)));
    call.launch(kernel, Grid::elements(call.output.ty.shape.elements())?, &arguments)
}
