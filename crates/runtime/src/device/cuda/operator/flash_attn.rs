//! Attention in one operator: a block of threads for each row of the result, some positions at a time.

use super::kv_attention::{grid, shared_bytes};
use super::kv_scores::KEY_LANES;
use super::matrix::expect_multiplied;
use super::soft_max::{self, EXPONENTIAL_ULP};
use super::{Argument, Call, suffix};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::FlashAttn;

pub fn profile(_: &FlashAttn, inputs: &[TensorType]) -> Result<Profile, String> {
    for (what, ty) in ["q", "k", "v"].into_iter().zip(inputs) {
        expect_multiplied(what, ty)?;
    }
    shared_bytes(inputs[0].shape[0], inputs[2].shape[0])?;
    // The hyperbolic tangent of the cap is as exact as the exponential.
    Ok(Profile { lanes: KEY_LANES, function_ulp: EXPONENTIAL_ULP, ..Profile::F32 })
}

pub fn launch(op: &FlashAttn, call: &mut Call) -> Result<(), String> {
    let (q, k, v, y) = (call.inputs[0], call.inputs[1], call.inputs[2], call.output);
    let [mask, mask_type] = soft_max::mask(call.inputs.get(3), &q);
    let types = [q, k, v].map(|operand| suffix(operand.ty.dtype));
    let kernel = format!("flash_attn_{}", types.join("_"));
    let grid = grid(y.ty.shape.rows(), q.ty.shape[0], v.ty.shape[0])?;
    let [q, k, v] = [q, k, v].map(|operand| Argument::View(operand.view));
    let numbers = [op.scale, op.max_bias, op.softcap].map(Argument::Float);
    let arguments = [&[q, k, v, mask, mask_type, Argument::View(y.view)][..], &numbers].concat();
    call.launch(&kernel, grid, &arguments)
}
