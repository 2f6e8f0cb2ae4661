//! One number at the given places of one dimension.

use super::{Call, moved};
use crate::device::cpu::memory::Target;
use crate::profile::Profile;
use half::{bf16, f16};
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::IndexFill;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    moved::profile("x", &inputs[0])
}

pub fn compute(fill: &IndexFill, mut call: Call) -> Result<(), String> {
    let shape = call.output_type.shape;
    let indices = call.inputs[1].indices("index", shape[fill.dimension])?;
    moved::copy(call.team, call.inputs[0].view, &mut call.output)?;
    // Elements behind each other that one index names, and the distance to those that the next one names in the next
    // outer place.
    let len: usize = shape.sizes()[..fill.dimension].iter().product();
    let period = len * shape[fill.dimension];
    let is_integer = call.output_type.dtype == DType::I32;
    match call.output {
        Target::F32(cells) if is_integer => {
            put(cells, &indices, len, period, f32::from_bits((fill.value as i32).cast_unsigned()));
        }
        Target::F32(cells) => put(cells, &indices, len, period, fill.value),
        Target::F16(cells) => put(cells, &indices, len, period, f16::from_f32(fill.value)),
        Target::Bf16(cells) => put(cells, &indices, len, period, bf16::from_f32(fill.value)),
        Target::Blocks(_) => return Err(format!("cannot fill {}", call.output_type)),
    }
    Ok(())
}

fn put<T: Copy>(cells: &mut [T], indices: &[usize], len: usize, period: usize, value: T) {
    for outer in cells.chunks_exact_mut(period.max(1)) {
        for index in indices {
            outer[index * len..][..len].fill(value);
        }
    }
}
