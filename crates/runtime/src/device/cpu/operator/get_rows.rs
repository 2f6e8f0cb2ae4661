//! Rows of a table by index, decoded.

use super::{Call, ELEMENTWISE, Operand, expect_f32, pieces_min};
use crate::device::cpu::memory::View;
use crate::profile::Profile;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::GetRows;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    let dtype = inputs[0].dtype;
    if dtype != DType::F64 && dtype.decoder().is_some() {
        Ok(ELEMENTWISE)
    } else {
        Err(format!(
            "rows of {dtype} cannot be decoded on this device; use f32, f16, bf16 or a type with 32 \
            elements per block"
        ))
    }
}

pub fn compute(op: &GetRows, call: Call) -> Result<(), String> {
    expect_f32("the output", &TensorType { dtype: op.output, shape: call.output_type.shape })?;
    let table = call.inputs[0];
    let [width, rows, ..] = table.ty.shape.sizes();
    let indices = call.inputs[1].indices("row", rows)?;
    let y = Call::output_floats(call.output)?;
    if width == 0 {
        return Ok(());
    }
    let count = call.output_type.shape[1].max(1);
    let stacked = indices.iter().enumerate().map(|(place, row)| place / count * rows + row);
    let targets = y.chunks_mut(width).zip(stacked);
    call.team.try_each(targets, pieces_min(width), |(target, row)| decode_row(&table, row, target))
}

fn decode_row(table: &Operand, row: usize, target: &mut [f32]) -> Result<(), String> {
    let len = target.len();
    match table.view {
        View::F32(cells) => target.copy_from_slice(&cells[row * len..][..len]),
        View::F16(cells) => {
            target.iter_mut().zip(&cells[row * len..]).for_each(|(target, cell)| *target = cell.to_f32());
        }
        View::Bf16(cells) => {
            target.iter_mut().zip(&cells[row * len..]).for_each(|(target, cell)| *target = cell.to_f32());
        }
        View::Blocks(bytes) => {
            let row_bytes = len / table.ty.dtype.block_len() * table.ty.dtype.block_bytes();
            decode(table.ty.dtype, &bytes[row * row_bytes..][..row_bytes], target)?;
        }
        View::Packed(packed) => {
            let mut bytes = vec![0; packed.row_bytes()];
            packed.unpack_row(row, &mut bytes);
            decode(table.ty.dtype, &bytes, target)?;
        }
    }
    Ok(())
}

fn decode(dtype: DType, bytes: &[u8], target: &mut [f32]) -> Result<(), String> {
    let decoder = dtype.decoder().ok_or_else(|| format!("{dtype} cannot be decoded"))?;
    (decoder.decode)(bytes, target);
    Ok(())
}
