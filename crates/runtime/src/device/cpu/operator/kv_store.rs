//! New keys or values enter the KV cache.

use super::{Call, ELEMENTWISE, expect_f32, expect_kv_cache};
use crate::device::cpu::memory::Target;
use crate::profile::Profile;
use half::f16;
use trueup_graph::TensorType;
use trueup_graph::op::KvStore;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_kv_cache("the cache", &inputs[0])?;
    expect_f32("x", &inputs[1])?;
    Ok(Profile { output: inputs[0].dtype, ..ELEMENTWISE })
}

/// The cache is the output; `x` and the rows are what is left of the inputs.
pub fn compute(_: &KvStore, call: Call) -> Result<(), String> {
    let width = call.output_type.shape[0];
    let x = call.inputs[0].floats()?;
    let rows = call.inputs[1].indices("row of the KV cache", call.output_type.shape.rows())?;
    if width == 0 {
        return Ok(());
    }
    match call.output {
        Target::F32(cache) => {
            for (x, row) in x.chunks_exact(width).zip(rows) {
                cache[row * width..][..width].copy_from_slice(x);
            }
        }
        Target::F16(cache) => {
            for (x, row) in x.chunks_exact(width).zip(rows) {
                for (cell, x) in cache[row * width..][..width].iter_mut().zip(x) {
                    *cell = f16::from_f32(*x);
                }
            }
        }
        Target::Blocks(cache) => {
            let dtype = call.output_type.dtype;
            let codec = dtype.codec().ok_or_else(|| format!("{dtype} cannot be encoded"))?;
            let row_bytes = width / dtype.block_len() * dtype.block_bytes();
            for (x, row) in x.chunks_exact(width).zip(rows) {
                (codec.encode)(x, &mut cache[row * row_bytes..][..row_bytes]);
            }
        }
        Target::Bf16(_) => return Err(format!("does not support a cache of type {}", call.output_type.dtype)),
    }
    Ok(())
}
