//! The same elements in another type: a thread for each, a warp for each block.

use super::{Argument, Call, ELEMENTWISE, Grid, moved, suffix};
use crate::profile::Profile;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::Cast;

/// The types that have kernels.
const TYPES: [DType; 7] = [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64, DType::Q4_0, DType::Q8_0];

pub fn profile(op: &Cast, inputs: &[TensorType]) -> Result<Profile, String> {
    let from = inputs[0].dtype;
    // What keeps its type is moved.
    let known = TYPES.contains(&from) && TYPES.contains(&op.to) || from == op.to && from != DType::F64;
    if known { Ok(ELEMENTWISE) } else { Err(format!("{from} cannot be cast to {} on this device", op.to)) }
}

pub fn launch(op: &Cast, call: &mut Call) -> Result<(), String> {
    let x = call.inputs[0];
    if x.ty.dtype == op.to {
        return moved::copy(call, x);
    }
    let kernel = format!("cpy_{}_{}", suffix(x.ty.dtype), suffix(op.to));
    let views = [x, call.output].map(|operand| Argument::View(operand.view));
    call.launch(&kernel, Grid::elements(x.ty.shape.elements())?, &views)
}
