//! Rows of a table by index. Of blocks, codes and scales are taken first, and only these rows are decoded.

use super::{Call, ELEMENTWISE};
use crate::device::ascend::acl::{Array, Scalar, Type};
use crate::device::ascend::chip::{Chip, Quantized};
use crate::device::ascend::memory::element_type;
use crate::device::ascend::split::{LEN, Matrix, Split};
use crate::profile::{Profile, Weights};
use trueup_blocks::DType;
use trueup_graph::TensorType;

pub fn profile(inputs: &[TensorType], chip: &Chip) -> Result<Profile, String> {
    let table = &inputs[0];
    if chip.decoded_type(table.dtype).is_some() {
        return Ok(Profile { weights: Weights::F16, ..ELEMENTWISE });
    }
    expect_readable("the table", table, chip)?;
    if Split::of(table).is_some() && table.shape[2] != 1 {
        return Err(format!("rows of a stack of tables of {} cannot be taken: only of one table", table.dtype));
    }
    Ok(ELEMENTWISE)
}

/// Whether a chip can decode a type.
pub fn expect_readable(what: &str, ty: &TensorType, chip: &Chip) -> Result<(), String> {
    match (ty.dtype, chip.quantized_products) {
        (DType::Q4_0, Quantized::Both) | (DType::Q8_0, Quantized::Both | Quantized::Decoded) => Ok(()),
        (DType::Q4_0, Quantized::Decoded) => Err(format!("chip {} has no {}", chip.name, ty.dtype)),
        (dtype, _) if element_type(dtype).is_some() => Ok(()),
        (dtype, _) => Err(format!("{what} cannot be {dtype}: CANN has no operator that decodes it")),
    }
}

pub fn compose(call: &Call) -> Result<(), String> {
    let (queue, table) = (&call.engine.queue, call.ty(0));
    let [width, rows, tables, _] = table.shape.sizes();
    if tables != 1 {
        return compose_stack(call);
    }
    let count = call.index_count(1, rows)?;
    let index = call.gathered(&call.input(1)?.ordered(&[3]), Type::I32)?;
    let (index, out) = (index.clone().under(&[count]), call.output()?.under(&[count, width as i64]));
    if !call.is_in_blocks(0)? {
        let table = call.input(0)?.ordered(&[2, 3]);
        if table.ty == out.ty {
            return queue.index_select(&table, 0, &index, &out);
        }
        let taken = call.room(table.ty, &out.sizes)?;
        queue.index_select(&table, 0, &index, &taken)?;
        return queue.cast(&taken, out.ty, &out);
    }
    let matrices = call.matrices(0)?;
    let matrix = matrices.first().ok_or("the table is empty")?;
    let taken = select(call, matrix, &index, count)?;
    decode(call, &taken.matrix, &out)
}

/// Rows of each of several tables by its own indices.
fn compose_stack(call: &Call) -> Result<(), String> {
    let (queue, table, out) = (&call.engine.queue, call.input(0)?, call.output()?);
    call.index_count(1, call.ty(0).shape[1])?;
    let index = call.gathered(&call.input(1)?.ordered(&[2, 3]), Type::I32)?;
    let [count, width] = [out.sizes[2], out.sizes[3]];
    let taken = (table.ty != out.ty).then(|| call.room(table.ty, &[count, width])).transpose()?;
    for number in 0..out.sizes[1] {
        let rows = table.clone().part(1, number, 1).ordered(&[2, 3]);
        let index = index.clone().part(0, number, 1).under(&[count]);
        let out = out.clone().part(1, number, 1).under(&[count, width]);
        match &taken {
            None => queue.index_select(&rows, 0, &index, &out)?,
            Some(taken) => {
                queue.index_select(&rows, 0, &index, taken)?;
                queue.cast(taken, out.ty, &out)?;
            }
        }
    }
    Ok(())
}

/// Rows that were taken, and the room that they lie in.
pub struct Taken {
    /// The rows.
    pub matrix: Matrix,
    _rooms: [crate::device::ascend::pool::Room; 2],
}

/// Rows of a matrix by index, still in codes and scales.
pub fn select(call: &Call, matrix: &Matrix, index: &Array, count: i64) -> Result<Taken, String> {
    let queue = &call.engine.queue;
    // Bytes of codes are moved, whatever they hold.
    let codes = matrix.code_bytes();
    let taken_codes = call.room(Type::I8, &[count, codes.sizes[1]])?;
    let taken_scales = call.room(Type::F16, &[count, matrix.scales.sizes[1]])?;
    queue.index_select(&codes, 0, index, &taken_codes)?;
    queue.index_select(&matrix.scales, 0, index, &taken_scales)?;
    let codes = Array::dense(matrix.codes.ty, taken_codes.address, &[count, matrix.codes.sizes[1]]);
    Ok(Taken { matrix: Matrix { codes, scales: taken_scales.clone() }, _rooms: [taken_codes, taken_scales] })
}

/// Codes times scales, in the type of `out` `[rows, columns]`: exact in f32.
pub fn decode(call: &Call, matrix: &Matrix, out: &Array) -> Result<(), String> {
    let queue = &call.engine.queue;
    let len = LEN as i64;
    let [rows, columns] = [matrix.codes.sizes[0], matrix.codes.sizes[1]];
    let in_groups = |array: Array| array.split(1, columns / len);
    let scales = matrix.scales.clone().inserted(2);
    call.dense(out, |out| {
        // Integers and f16 give f16: what is more precise is multiplied in f32.
        if matrix.codes.ty == Type::I8 && out.ty == Type::F16 {
            return queue.mul(&in_groups(matrix.codes.clone()), &scales, &in_groups(out.clone()));
        }
        let wide = call.room(Type::F32, &[rows, columns])?;
        if matrix.codes.ty == Type::I8 {
            queue.cast(&matrix.codes, Type::F32, &wide)?;
        } else {
            // Nibbles become f16, which holds them exactly, by a scale of one; scales of f16 are refused.
            let (decoded, one) = (call.room(Type::F16, &[rows, columns])?, call.room(Type::F32, &[1])?);
            queue.fill(&one, Scalar::F32(1.0))?;
            queue.anti_quantize(&matrix.codes, &one, None, Type::F16 as i64, false, &decoded)?;
            queue.cast(&decoded, Type::F32, &wide)?;
        }
        queue.mul(&in_groups(wide.clone()), &scales, &in_groups(out.clone()))
    })
}
