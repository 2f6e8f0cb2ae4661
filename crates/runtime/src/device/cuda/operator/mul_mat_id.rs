//! For each token the matrices of the experts that it uses.

use super::matrix::{self, WARP, WARPS, Way, expect_multiplied};
use super::{Argument, Call, Grid, suffix};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::MulMatId;

/// Rows that a warp takes of weights in planes, as `kernels/cuda/mul_mat_id.cu` has them.
const ROWS: usize = 2;

pub fn profile(_: &MulMatId, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_multiplied("x", &inputs[1])?;
    matrix::profile(inputs[0].dtype)
}

pub fn launch(_: &MulMatId, call: &mut Call) -> Result<(), String> {
    let (w, x, ids, y) = (call.inputs[0], call.inputs[1], call.inputs[2], call.output);
    let taken = matrix::take(call, Way::Rows, w.ty.dtype, &x)?;
    let mut arguments = [matrix::weights(&w), matrix::activations(call, &w, &x, taken)].concat();
    if call.means.takes_codes(w.ty.dtype) {
        arguments.push(Argument::Index(x.view.sizes[1]));
    }
    arguments.extend([Argument::View(ids.view), Argument::View(y.view), call.fault()]);
    if w.divided.is_some() {
        let [rows, used, tokens, _] = y.ty.shape.sizes();
        let kernel = format!("mul_mat_id_rows_{}", suffix(w.ty.dtype));
        let blocks = matrix::filling(call, &kernel, rows.div_ceil(ROWS * WARPS), used * tokens)?;
        let grid = Grid::of([used * tokens, blocks, 1], (WARPS * WARP) as u32)?;
        return call.launch(&kernel, grid, &arguments);
    }
    let grid = Grid::elements(y.ty.shape.elements() * WARP)?;
    call.launch(&matrix::kernel(call, "mul_mat_id", &w, &x), grid, &arguments)
}
