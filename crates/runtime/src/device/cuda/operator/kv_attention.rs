//! Attention over the KV cache: a block of threads for each head of a token, some positions at a time.

use super::kv_scores::{KEY_LANES, expect_kv_cache};
use super::soft_max::{self, EXPONENTIAL_ULP};
use super::{Argument, Call, Grid, expect_f32, suffix};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::KvAttention;

/// Positions at once and threads of a block, as `kernels/cuda/attention.cuh` has them.
const SEEN: u32 = 128;

/// Shared memory that every card gives a block.
const SHARED_BYTES_MAX: usize = 48 << 10;

pub fn profile(_: &KvAttention, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("q", &inputs[0])?;
    expect_kv_cache("keys", &inputs[1])?;
    expect_kv_cache("values", &inputs[2])?;
    let size = inputs[0].shape[0];
    shared_bytes(size, inputs[2].shape[0] / (inputs[1].shape[0] / size))?;
    Ok(Profile { lanes: KEY_LANES, function_ulp: EXPONENTIAL_ULP, ..Profile::F32 })
}

pub fn launch(op: &KvAttention, call: &mut Call) -> Result<(), String> {
    let (q, keys, values, sequences) = (call.inputs[0], call.inputs[1], call.inputs[2], call.inputs[3]);
    let y = call.output;
    let [mask, mask_type] = soft_max::mask(call.inputs.get(4), &q);
    let [size, heads, tokens, _] = q.ty.shape.sizes();
    let kernel = format!("kv_attention_{}_{}", suffix(keys.ty.dtype), suffix(values.ty.dtype));
    let grid = grid(heads * tokens, size, y.ty.shape[0] / heads)?;
    let [q, keys, values, sequences] = [q, keys, values, sequences].map(|operand| Argument::View(operand.view));
    let (scale, max_bias) = (Argument::Float(op.scale), Argument::Float(op.max_bias));
    let y = Argument::View(y.view);
    let arguments = [q, keys, values, sequences, mask, mask_type, y, scale, max_bias, call.fault()];
    call.launch(&kernel, grid, &arguments)
}

/// A block for each head of a token, of keys of `size` and values of `width`.
pub fn grid(blocks: usize, size: usize, width: usize) -> Result<Grid, String> {
    Ok(Grid { threads: SEEN, ..Grid::blocks(blocks, shared_bytes(size, width)?)? })
}

/// What a block keeps: a query, its result, weights, and a number for each warp.
pub fn shared_bytes(size: usize, width: usize) -> Result<u32, String> {
    let bytes = (size + width + SEEN as usize + 32) * size_of::<f32>();
    let fits = u32::try_from(bytes).ok().filter(|_| bytes <= SHARED_BYTES_MAX);
    fits.ok_or_else(|| format!("heads of {size} keys and {width} values are more than a block of threads can keep"))
}
