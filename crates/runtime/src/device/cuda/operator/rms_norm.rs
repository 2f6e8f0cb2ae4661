//! Root mean square normalisation of each innermost row: a block of threads each, which reads by 16 bytes where rows begin so.

use super::{Argument, Call, Grid, Operand, expect_f32, expect_plain, suffix};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::RmsNorm;

pub fn profile(_op: &RmsNorm, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    expect_plain("w", &inputs[1])?;
    // Root and reciprocal are rounded once each. Of rows that are read by 16 bytes, four neighbours share a lane.
    Ok(Profile { lanes: 256, ..Profile::F32 })
}

pub fn launch(op: &RmsNorm, call: &mut Call) -> Result<(), String> {
    let (x, w) = (call.inputs[0], call.inputs[1]);
    let form = if call.means.repack && is_wide(&x, &w) { "_wide" } else { "" };
    let kernel = format!("rms_norm{form}_{}", suffix(w.ty.dtype));
    let [x, w, y] = [x, w, call.output].map(|operand| Argument::View(operand.view));
    call.launch(&kernel, Grid::rows(call.output.ty.shape.rows())?, &[x, w, y, Argument::Float(op.epsilon)])
}

/// Whether rows and weights can be read in fours.
fn is_wide(x: &Operand, w: &Operand) -> bool {
    x.ty.shape[0].is_multiple_of(4) && x.begins_at(16) && w.begins_at(4 * w.ty.dtype.block_bytes())
}

/// As [`launch`], from `x` and `w` to `y`, and writes the rows as activations in 8 bits to `codes` too: the bytes that
/// [`take`](super::matrix::take) gives for y. None where rows are not whole blocks of 32, or cannot be read by 16 bytes: then nothing is launched.
#[allow(dead_code, reason = "for launches of several steps at once")]
pub fn launch_with_codes(op: &RmsNorm, call: &Call, [x, w, y]: [Operand; 3], codes: u64) -> Result<Option<()>, String> {
    if !call.means.repack || !is_wide(&x, &w) || !x.ty.shape[0].is_multiple_of(32) {
        return Ok(None);
    }
    let kernel = format!("rms_norm_codes_{}", suffix(w.ty.dtype));
    let [x, w, y_view] = [x, w, y].map(|operand| Argument::View(operand.view));
    let arguments = [x, w, y_view, Argument::Float(op.epsilon), Argument::Address(codes)];
    call.launch(&kernel, Grid::rows(y.ty.shape.rows())?, &arguments).map(Some)
}
