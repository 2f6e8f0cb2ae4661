//! New rows in a copy of a table: a block of threads for each.

use super::{Argument, Call, ELEMENTWISE, Grid, expect_f32, moved, suffix};
use crate::profile::Profile;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::SetRows;

pub fn profile(_: &SetRows, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[1])?;
    let known = matches!(inputs[0].dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::Q4_0 | DType::Q8_0);
    if known {
        Ok(ELEMENTWISE)
    } else {
        Err(format!("the table must be f32, f16, bf16, q4_0 or q8_0 here, not {}", inputs[0].dtype))
    }
}

pub fn launch(_: &SetRows, call: &mut Call) -> Result<(), String> {
    let (table, x, rows) = (call.inputs[0], call.inputs[1], call.inputs[2]);
    moved::copy(call, table)?;
    let [x, rows_seen, y] = [x, rows, call.output].map(|operand| Argument::View(operand.view));
    let arguments = [x, rows_seen, y, call.fault()];
    call.launch(&format!("set_rows_{}", suffix(table.ty.dtype)), Grid::rows(rows.ty.shape[0])?, &arguments)
}
