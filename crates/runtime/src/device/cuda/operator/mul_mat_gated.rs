//! Two weight matrices applied to each token and the gated activation of both results, with activations brought into the weights' form once:
//! one kernel where both matrices are of one type and a fast way of ours takes them, else the kernels of the three operators that it stands for.
//!
//! ```text
//!   g x ─▶ room of the call ─┐
//!   u x ─▶ y ────────────────┴─ f(g x) (u x) ─▶ y
//! ```

use super::matrix::{self, Way, expect_multiplied, is_readable};
use super::{Argument, Call, Grid, Operand, View, suffix, unary};
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
    let taken = matrix::take(call, way, gate.ty.dtype, &x)?;
    let are_alike = gate.ty.dtype == up.ty.dtype && is_readable(&gate) && is_readable(&up);
    let by_library = way == Way::Halves && matrix::by_library(call, &gate, &y) && matrix::by_library(call, &up, &y);
    if way != Way::Plain && are_alike && !by_library {
        return launch_at_once(op, call, way, taken);
    }
    let room = call.scratch(y.ty.bytes())?;
    let opened = Operand { ty: y.ty, view: View { data: room, ..y.view }, divided: None };
    matrix::multiply(call, way, &gate, &x, taken, &opened)?;
    matrix::multiply(call, way, &up, &x, taken, &y)?;
    let arguments = [opened, y, y].map(|operand| Argument::View(operand.view));
    let kernel = format!("{}_f32", Op::Gated(op.gated).name());
    call.launch(&kernel, Grid::elements(y.ty.shape.elements())?, &arguments)
}

/// One kernel for both matrices, of one type; `taken` is where activations lie in the form that it takes.
fn launch_at_once(op: &MulMatGated, call: &Call, way: Way, taken: u64) -> Result<(), String> {
    let (gate, up, x, y) = (call.inputs[0], call.inputs[1], call.inputs[2], call.output);
    let (weights, ends) = (suffix(gate.ty.dtype), [Argument::View(y.view), Argument::Int(op.gated as i32)]);
    let matrices = [matrix::weights(&gate), matrix::weights(&up)].concat();
    if way == Way::Halves {
        let arguments = [&matrices[..], &[Argument::Address(taken)], &ends].concat();
        return call.launch("mul_mat_gated_halves", matrix::tiles_grid(way, &y.ty, 2)?, &arguments);
    }
    let arguments = [matrices, matrix::activations(call, &gate, &x, taken), ends.to_vec()].concat();
    if way == Way::Tiles {
        return call.launch(&format!("mul_mat_gated_tiles_{weights}"), matrix::tiles_grid(way, &y.ty, 2)?, &arguments);
    }
    // Of each matrix a warp takes half the rows that it takes of one.
    let tokens = matrix::tokens_of_warp(&gate.ty, &y.ty);
    let grid = matrix::rows_grid(call, &y.ty, matrix::rows_of_warp(&gate.ty, tokens) / 2, tokens)?;
    call.launch(&format!("mul_mat_gated_{weights}_{tokens}"), grid, &arguments)
}
