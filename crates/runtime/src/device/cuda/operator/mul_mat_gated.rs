//! Two weight matrices applied to each token and the gated activation of both results, with activations brought into
//! the weights' form once: one kernel where both matrices are of one type and a fast way of ours takes them, else the
//! kernels of the three operators that it stands for.
//!
//! ```text
//!   g x ─▶ room of the call ─┐
//!   u x ─▶ y ────────────────┴─ f(g x) (u x) ─▶ y
//! ```

use super::matrix::{self, Form, Way, expect_multiplied, is_readable};
use super::{Argument, BlasLibrary, Call, Grid, Means, Needed, Operand, View, WORKSPACE_BYTES, batches, suffix, unary};
use crate::profile::Profile;
use trueup_graph::op::MulMatGated;
use trueup_graph::{Op, TensorType};

pub fn profile(op: &MulMatGated, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_multiplied("x", &inputs[2])?;
    let (gate, up) = (matrix::profile(inputs[0].dtype)?, matrix::profile(inputs[1].dtype)?);
    if gate != up {
        let (gate, up) = (inputs[0].dtype, inputs[1].dtype);
        return Err(format!("{gate} and {up} weights need different kernels; compute them separately"));
    }
    Ok(Profile { function_ulp: unary::declared(&op.gated.function()).function_ulp, ..gate })
}

/// As [`launch`], and brings the result into the 8-bit blocks that products behind it take; whether it did: not where
/// another way is taken or where rows are not whole blocks. Then nothing is launched.
pub fn launch_for_products(op: &MulMatGated, call: &Call) -> Result<bool, String> {
    let (gate, up, x, y) = (call.inputs[0], call.inputs[1], call.inputs[2], call.output);
    let [rows, tokens, n2, n3] = y.ty.shape.sizes();
    let by_rows = call.means.way(&[gate.ty, up.ty], &x.ty) == Way::Rows && call.means.takes_codes(gate.ty.dtype);
    let at_once = by_rows && are_alike(&gate, &up);
    if !at_once || tokens > matrix::tokens_of_warp(&gate.ty, &y.ty) || n2 * n3 != 1 || !rows.is_multiple_of(PART) {
        return Ok(false);
    }
    let taken = matrix::take(call, Way::Rows, gate.ty.dtype, &x)?;
    let (codes, _) = call.taken(Form::Codes, &y, Form::Codes.bytes(&y.ty));
    launch_at_once(op, call, Way::Rows, taken, [codes, call.counters(rows / PART)]).map(|()| true)
}

/// Rows of a block of activations, which have a counter together.
const PART: usize = 32;

/// Whether one kernel reads both matrices.
fn are_alike(gate: &Operand, up: &Operand) -> bool {
    gate.ty.dtype == up.ty.dtype && is_readable(gate) && is_readable(up)
}

/// Decoded weights and the gate's product, where the kernels are others than for both at once; activations; counters of
/// the blocks that products behind it take. Weights of 32 codes a block lie in planes, as those of models do.
pub fn needed(inputs: &[TensorType], y: &TensorType, means: &Means, library: &BlasLibrary) -> Needed {
    let ([gate, up], x) = ([&inputs[0], &inputs[1]], &inputs[2]);
    let way = means.way(&inputs[..2], x);
    let by_library = [gate, up].iter().all(|w| matrix::takes_library(way, library.is_used(), w, y));
    let apart = !is_at_once(way) || gate.dtype != up.dtype || by_library;
    Needed {
        operators: if apart { means.decoded_bytes(&inputs[..2], x) + y.bytes() } else { 0 },
        activations: means.taken_bytes(way, gate, x),
        counters: if way == Way::Rows { y.shape[0].div_ceil(PART) } else { 0 },
        workspace: if by_library { WORKSPACE_BYTES } else { 0 },
        ..Needed::default()
    }
}

/// Whether there are kernels that multiply with both matrices.
pub fn is_at_once(way: Way) -> bool {
    matches!(way, Way::Rows | Way::Tiles | Way::Halves)
}

pub fn launch(op: &MulMatGated, call: &mut Call) -> Result<(), String> {
    batches::launch_parts(call, |call| launch_part(op, call))
}

fn launch_part(op: &MulMatGated, call: &mut Call) -> Result<(), String> {
    let (gate, up, x, y) = (call.inputs[0], call.inputs[1], call.inputs[2], call.output);
    let way = call.means.way(&[gate.ty, up.ty], &x.ty);
    let taken = matrix::take(call, way, gate.ty.dtype, &x)?;
    let are_alike = are_alike(&gate, &up);
    let by_library =
        |w: &Operand| way == Way::Halves && matrix::by_library(call.library().is_used(), &w.view, taken, &y);
    let at_once = is_at_once(way) && are_alike;
    if at_once && !(by_library(&gate) && by_library(&up)) {
        return launch_at_once(op, call, way, taken, [0; 2]);
    }
    let decoded = call.means.decoded_bytes(&[gate.ty, up.ty], &x.ty);
    let room = call.scratch(decoded + y.ty.bytes())?;
    let opened = Operand { ty: y.ty.dense(), view: View { data: room + decoded as u64, ..y.view }, divided: None };
    matrix::multiply(call, way, &gate, &x, [taken, room], &opened)?;
    matrix::multiply(call, way, &up, &x, [taken, room], &y)?;
    let arguments = [opened, y, y].map(|operand| Argument::View(operand.view));
    let kernel = format!("{}_f32", Op::Gated(op.gated).name());
    call.launch(&kernel, Grid::elements(y.ty.shape.elements())?, &arguments)
}

/// One kernel for both matrices, of one type; `taken` is where activations lie in the form that it takes, and `codes`
/// where those of the result go, by rows, and their counters: 0 for nowhere.
fn launch_at_once(op: &MulMatGated, call: &Call, way: Way, taken: u64, codes: [u64; 2]) -> Result<(), String> {
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
    // Kernels of plain numbers write no codes: what is behind them takes none.
    let codes = if call.means.takes_codes(gate.ty.dtype) { codes.map(Argument::Address).to_vec() } else { Vec::new() };
    let arguments = [arguments, codes].concat();
    // Of each matrix a warp takes half the rows that it takes of one.
    let tokens = matrix::tokens_of_warp(&gate.ty, &y.ty);
    let kernel = format!("mul_mat_gated_{weights}_{tokens}");
    let grid = matrix::rows_grid(call, &kernel, &y.ty, matrix::rows_of_warp(&gate.ty, tokens) / 2, tokens)?;
    call.launch(&kernel, grid, &arguments)
}
