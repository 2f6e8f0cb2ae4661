//! One number at the given places of one dimension: a copy, and a thread for each place.

use super::{Argument, Call, Grid, moved};
use crate::profile::Profile;
use half::{bf16, f16};
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::IndexFill;

pub fn profile(_: &IndexFill, inputs: &[TensorType]) -> Result<Profile, String> {
    moved::profile("x", &inputs[0])
}

pub fn launch(op: &IndexFill, call: &mut Call) -> Result<(), String> {
    let (x, index) = (call.inputs[0], call.inputs[1]);
    moved::copy(call, x)?;
    let shape = call.output.ty.shape;
    let count = index.ty.shape[0];
    // Indices are looked at though there is nothing to fill.
    let places = if shape.elements() == 0 { count } else { shape.elements() / shape[op.dimension] * count };
    let arguments = [
        Argument::View(index.view),
        Argument::View(call.output.view),
        Argument::Int(op.dimension as i32),
        Argument::Int(word(op.value, x.ty.dtype)?),
        call.fault(),
    ];
    call.launch(&moved::kernel("index_fill", x.ty.dtype), Grid::elements(places)?, &arguments)
}

/// The number as an element of this type.
fn word(value: f32, dtype: DType) -> Result<i32, String> {
    if dtype == DType::I32 {
        Ok(value as i32)
    } else if dtype == DType::F32 {
        Ok(value.to_bits().cast_signed())
    } else if dtype == DType::F16 {
        Ok(f16::from_f32(value).to_bits().into())
    } else if dtype == DType::Bf16 {
        Ok(bf16::from_f32(value).to_bits().into())
    } else {
        Err(format!("cannot fill {dtype}"))
    }
}
