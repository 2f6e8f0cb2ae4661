//! New rows in a copy of a table.

use super::{Call, ELEMENTWISE, expect_f32, moved};
use crate::device::cpu::memory::Target;
use crate::profile::Profile;
use half::{bf16, f16};
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::SetRows;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[1])?;
    if inputs[0].dtype == DType::F64 {
        return Err("the table must not be f64".to_owned());
    }
    Ok(ELEMENTWISE)
}

pub fn compute(_: &SetRows, mut call: Call) -> Result<(), String> {
    let width = call.output_type.shape[0];
    let rows = call.inputs[2].indices("row", call.output_type.shape[1])?;
    moved::copy(call.team, call.inputs[0].view, &mut call.output)?;
    let x = call.inputs[1].floats()?.chunks_exact(width.max(1)).zip(rows);
    match call.output {
        Target::F32(cells) => x.for_each(|(x, row)| cells[row * width..][..width].copy_from_slice(x)),
        Target::F16(cells) => put(x, cells, width, f16::from_f32),
        Target::Bf16(cells) => put(x, cells, width, bf16::from_f32),
        Target::Blocks(bytes) => {
            let dtype = call.output_type.dtype;
            let codec = dtype.codec().ok_or_else(|| format!("{dtype} cannot be encoded"))?;
            let row_bytes = width / dtype.block_len() * dtype.block_bytes();
            x.for_each(|(x, row)| (codec.encode)(x, &mut bytes[row * row_bytes..][..row_bytes]));
        }
    }
    Ok(())
}

fn put<'a, T>(x: impl Iterator<Item = (&'a [f32], usize)>, cells: &mut [T], width: usize, round: impl Fn(f32) -> T) {
    for (x, row) in x {
        cells[row * width..][..width].iter_mut().zip(x).for_each(|(cell, x)| *cell = round(*x));
    }
}
