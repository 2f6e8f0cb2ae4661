//! Rows written at indices.

use super::encode::encode;
use super::get_rows::expect_readable;
use super::{Call, ELEMENTWISE, expect_f32, expect_known};
use crate::device::ascend::acl::{Array, Scalar, Type};
use crate::device::ascend::chip::Chip;
use crate::device::ascend::memory::Memory;
use crate::device::ascend::notes::Must;
use crate::device::ascend::split::{LEN, Matrix, Split};
use crate::profile::Profile;
use std::collections::HashMap;
use trueup_graph::TensorType;
use trueup_graph::op::IndexFill;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_known("x", &inputs[0]).map(|()| ELEMENTWISE)
}

pub fn profile_store(inputs: &[TensorType], chip: &Chip) -> Result<Profile, String> {
    expect_readable("the cache", &inputs[0], chip)?;
    expect_f32("x", &inputs[1])?;
    Ok(Profile { output: inputs[0].dtype, ..ELEMENTWISE })
}

/// One number at some places of a dimension.
pub fn fill(op: &IndexFill, call: &Call) -> Result<(), String> {
    let (queue, out) = (&call.engine.queue, call.output()?);
    queue.copy_to(&out, &call.input(0)?)?;
    let d = 3 - op.dimension;
    let count = call.index_count(1, out.sizes[d].unsigned_abs() as usize)?;
    if count == 0 {
        return Ok(());
    }
    let mut sizes = out.sizes.clone();
    sizes[d] = count;
    let values = call.room(out.ty, &sizes)?;
    let value = if out.ty == Type::I32 { Scalar::I64(op.value as i64) } else { Scalar::F32(op.value) };
    queue.fill(&values, value)?;
    queue.index_copy(&out, d as i64, &index(call, 1)?, &values)
}

/// New rows of the KV cache.
pub fn store(call: &Call) -> Result<(), String> {
    if Split::of(&call.step.output.ty).is_some() {
        return store_blocks(call);
    }
    let cache = call.output()?;
    let [sequences, context, width] = [cache.sizes[1], cache.sizes[2], cache.sizes[3]];
    rows(call, &call.input(1)?.ordered(&[2, 3]), 2, &cache.under(&[sequences * context, width]))
}

/// The same as blocks: codes, four as a word, which operators write by index on every chip, and scales.
fn store_blocks(call: &Call) -> Result<(), String> {
    let cache = Memory::of(&call.step.output)?.cache(&call.step.output)?;
    let x = call.gathered(&call.input(1)?, Type::F32)?;
    let [tokens, width] = [x.sizes[2], x.sizes[3]];
    let codes = call.room(Type::I32, &[tokens, cache.code_words().sizes[1]])?;
    let scales = call.room(Type::F16, &[tokens, width / LEN as i64])?;
    let made = Matrix { codes: Array::dense(cache.codes.ty, codes.address, &[tokens, width]), scales: scales.clone() };
    encode(call, &x, std::slice::from_ref(&made))?;
    rows(call, &codes, 2, &cache.code_words())?;
    rows(call, &scales, 2, &cache.scales)
}

/// A table with new rows.
pub fn set_rows(call: &Call) -> Result<(), String> {
    let out = call.output()?;
    call.engine.queue.copy_to(&out, &call.input(0)?)?;
    let (rows_, width) = (out.sizes[2], out.sizes[3]);
    rows(call, &call.input(1)?.ordered(&[2, 3]), 2, &out.under(&[rows_, width]))
}

/// Rows written to a table at the indices of an input: of several for one row the last stays, for the card promises no
/// order.
fn rows(call: &Call, x: &Array, places: usize, table: &Array) -> Result<(), String> {
    let (queue, width) = (&call.engine.queue, table.sizes[1]);
    let count = table.sizes[0].unsigned_abs() as usize;
    let indices = call.checked(places, count)?;
    if indices.is_empty() {
        return Ok(());
    }
    let last: HashMap<&i32, usize> = indices.iter().enumerate().map(|(place, index)| (index, place)).collect();
    let index = index(call, places)?;
    if last.len() == indices.len() {
        call.engine.needs(places, Must::Differ(count));
        let rounded = call.gathered(x, table.ty)?;
        return queue.index_copy(table, 0, &index, &rounded);
    }
    call.engine.needs(places, Must::Be(indices.clone()));
    let mut in_order: Vec<(i64, i64)> =
        last.into_iter().map(|(index, place)| (i64::from(*index), place as i64)).collect();
    in_order.sort_unstable();
    in_order.iter().try_for_each(|(row, place)| {
        queue.copy_to(&Array { sizes: vec![1, width], ..table.clone() }.part(0, *row, 1), &x.clone().part(0, *place, 1))
    })
}

fn index(call: &Call, place: usize) -> Result<Array, String> {
    Ok(call.input(place)?.ordered(&[3]))
}
