//! Softmax of scaled and masked scores: a block of threads for each row, which reads by 16 bytes where rows begin so.

use super::{Argument, Call, Grid, Operand, expect_f32};
use crate::profile::Profile;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::SoftMax;

/// The largest error of the exponential, in units in the last place.
pub const EXPONENTIAL_ULP: f32 = 2.0;

pub fn profile(_: &SoftMax, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(Profile { lanes: 256, function_ulp: EXPONENTIAL_ULP, ..Profile::F32 })
}

pub fn launch(op: &SoftMax, call: &mut Call) -> Result<(), String> {
    let (x, y) = (call.inputs[0], call.output);
    let [mask, mask_type] = mask(call.inputs.get(1), &x);
    let (scale, max_bias) = (Argument::Float(op.scale), Argument::Float(op.max_bias));
    let arguments = [Argument::View(x.view), mask, mask_type, Argument::View(y.view), scale, max_bias];
    let wide = call.means.repack && is_wide(&x, call.inputs.get(1));
    call.launch(if wide { "soft_max_wide_f32" } else { "soft_max_f32" }, Grid::rows(y.ty.shape.rows())?, &arguments)
}

/// Whether rows of scores and of the mask can be read in fours.
fn is_wide(x: &Operand, mask: Option<&Operand>) -> bool {
    let mask = mask.is_none_or(|mask| mask.begins_at(4 * mask.ty.dtype.block_bytes()));
    x.ty.shape[0].is_multiple_of(4) && x.begins_at(16) && mask
}

/// A mask as kernels take it: its view, that of `other` where there is none, and the number of its type in
/// `kernels/cuda/masks.cuh`.
pub fn mask(mask: Option<&Operand>, other: &Operand) -> [Argument; 2] {
    let number = match mask.map(|mask| mask.ty.dtype) {
        None => 0,
        Some(DType::F16) => 2,
        Some(_) => 1,
    };
    [Argument::View(mask.unwrap_or(other).view), Argument::Int(number)]
}
