//! Two weight matrices applied to each token and the gated activation of both results, with activations brought into the weights' form once:
//! one kernel for few tokens, else the kernels of the three operators that it stands for.
//!
//! ```text
//!   g x ─▶ room of the call ─┐
//!   u x ─▶ y ────────────────┴─ f(g x) (u x) ─▶ y
//! ```

use super::matrix::{self, Way, expect_multiplied, takes_codes};
use super::{ALIGNMENT, Argument, Call, Grid, Operand, View, suffix, unary};
use crate::profile::Profile;
use trueup_graph::op::MulMatGated;
use trueup_graph::{Op, TensorType};

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
    let way = call.means.way(&[gate.ty, up.ty], &x.ty);
    let codes_bytes = matrix::codes_bytes(gate.ty.dtype, &x.ty);
    if way == Way::Rows && are_alike(&gate, &up) {
        let codes = call.scratch(codes_bytes)?;
        matrix::quantize(call, gate.ty.dtype, &x, codes)?;
        return launch_at_once(op, call, codes);
    }
    let opened_bytes = y.ty.bytes().next_multiple_of(ALIGNMENT);
    let room = call.scratch(opened_bytes + codes_bytes)?;
    let opened = Operand { ty: y.ty, view: View { data: room, ..y.view }, divided: None };
    let codes = room + opened_bytes as u64;
    matrix::quantize(call, gate.ty.dtype, &x, codes)?;
    matrix::multiply(call, way, &gate, &x, codes, &opened)?;
    matrix::multiply(call, way, &up, &x, codes, &y)?;
    let arguments = [opened, y, y].map(|operand| Argument::View(operand.view));
    let kernel = format!("{}_f32", Op::Gated(op.gated).name());
    call.launch(&kernel, Grid::elements(y.ty.shape.elements())?, &arguments)
}

/// Whether one kernel reads both: of one type, blocks in planes.
fn are_alike(gate: &Operand, up: &Operand) -> bool {
    let readable = |w: &Operand| w.divided.is_some() || !takes_codes(w.ty.dtype);
    gate.ty.dtype == up.ty.dtype && readable(gate) && readable(up)
}

/// `codes` is where activations lie in 8 bits. Of each matrix a warp takes half the rows that it takes of one.
fn launch_at_once(op: &MulMatGated, call: &Call, codes: u64) -> Result<(), String> {
    let (gate, up, x, y) = (call.inputs[0], call.inputs[1], call.inputs[2], call.output);
    let tokens = matrix::tokens_of_warp(&gate.ty, &y.ty);
    let grid = matrix::rows_grid(call, &y.ty, matrix::rows_of_warp(&gate.ty, tokens) / 2, tokens)?;
    let ends = vec![Argument::View(y.view), Argument::Int(op.gated as i32)];
    let arguments =
        [matrix::weights(&gate), matrix::weights(&up), matrix::activations(&gate, &x, codes), ends].concat();
    call.launch(&format!("mul_mat_gated_{}_{tokens}", suffix(gate.ty.dtype)), grid, &arguments)
}
