//! Two weight matrices applied to each token and the gated activation of both results: the kernels of the three operators that it stands for,
//! with activations brought into the weights' form once.
//!
//! ```text
//!   g x ─▶ room of the call ─┐
//!   u x ─▶ y ────────────────┴─ f(g x) (u x) ─▶ y
//! ```

use super::matrix::{self, expect_multiplied};
use super::{Argument, Call, Grid, Operand, View, unary};
use crate::profile::Profile;
use trueup_graph::op::MulMatGated;
use trueup_graph::{Op, TensorType};

/// Parts of the room begin at multiples of this.
const ALIGNMENT: usize = 256;

pub fn profile(op: &MulMatGated, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_multiplied("x", &inputs[2])?;
    let (gate, up) = (matrix::profile(inputs[0].dtype)?, matrix::profile(inputs[1].dtype)?);
    if gate != up {
        let (gate, up) = (inputs[0].dtype, inputs[1].dtype);
        return Err(format!("weights of {gate} and of {up} are multiplied in different ways; compute them one by one"));
    }
    Ok(Profile { function_ulp: unary::declared(&op.gated.function()).function_ulp, ..gate })
}

pub fn launch(op: &MulMatGated, call: &mut Call) -> Result<(), String> {
    let (gate, up, x, y) = (call.inputs[0], call.inputs[1], call.inputs[2], call.output);
    let opened_bytes = y.ty.bytes().next_multiple_of(ALIGNMENT);
    let room = call.scratch(opened_bytes + matrix::codes_bytes(gate.ty.dtype, &x.ty))?;
    let opened = Operand { ty: y.ty, view: View { data: room, ..y.view } };
    let codes = room + opened_bytes as u64;
    matrix::quantize(call, gate.ty.dtype, &x, codes)?;
    matrix::multiply(call, &gate, &x, codes, &opened)?;
    matrix::multiply(call, &up, &x, codes, &y)?;
    let arguments = [opened, y, y].map(|operand| Argument::View(operand.view));
    let kernel = format!("{}_f32", Op::Gated(op.gated).name());
    call.launch(&kernel, Grid::elements(y.ty.shape.elements())?, &arguments)
}
