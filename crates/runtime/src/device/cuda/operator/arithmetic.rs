//! Arithmetic of two tensors, with repetition of either: a thread for each element.

use super::{Argument, Call, ELEMENTWISE, Grid, expect_f32, expect_plain, suffix};
use crate::profile::{Accumulator, Profile};
use trueup_graph::op::Arithmetic;
use trueup_graph::{Op, TensorType};

pub fn profile(op: &Arithmetic, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("a", &inputs[0])?;
    expect_plain("b", &inputs[1])?;
    Ok(match op {
        Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul | Arithmetic::Div => ELEMENTWISE,
        // In f64, rounded once.
        Arithmetic::Pow => Profile { accumulator: Accumulator::F64, ..ELEMENTWISE },
    })
}

pub fn launch(op: &Arithmetic, call: &mut Call) -> Result<(), String> {
    let views = [call.inputs[0], call.inputs[1], call.output].map(|operand| Argument::View(operand.view));
    let grid = Grid::elements(call.output.ty.shape.elements())?;
    let kernel = format!("{}_f32_{}", Op::Arithmetic(*op).name(), suffix(call.inputs[1].ty.dtype));
    call.launch(&kernel, grid, &views)
}
