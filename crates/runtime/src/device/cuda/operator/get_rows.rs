//! Rows of a table by index, decoded: a thread for each element.

use super::{Argument, Call, ELEMENTWISE, Grid, expect_f32, matrix, suffix};
use crate::profile::Profile;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::GetRows;

pub fn profile(op: &GetRows, inputs: &[TensorType]) -> Result<Profile, String> {
    let dtype = inputs[0].dtype;
    expect_f32("the output", &TensorType { dtype: op.output, ..inputs[0] })?;
    if dtype != DType::F64 && dtype.decoder().is_some() {
        Ok(ELEMENTWISE)
    } else {
        Err(format!(
            "rows of {dtype} cannot be decoded on this device; use f32, f16, bf16 or a type with 32 \
            elements per block"
        ))
    }
}

pub fn launch(_: &GetRows, call: &mut Call) -> Result<(), String> {
    let (table, index, y) = (call.inputs[0], call.inputs[1], call.output);
    let form = if table.divided.is_some() { "split_" } else { "" };
    let kernel = format!("get_rows_{form}{}", suffix(table.ty.dtype));
    let mut arguments = matrix::weights(&table);
    arguments.extend([Argument::View(index.view), Argument::View(y.view), call.fault()]);
    call.launch(&kernel, Grid::elements(y.ty.shape.elements())?, &arguments)
}
