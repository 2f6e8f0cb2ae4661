//! Products of queries with cached keys: eight lanes for each.

use super::{Argument, Call, Grid, expect_f32, suffix};
use crate::profile::Profile;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::KvScores;

/// Lanes that share the elements of a key, as `kernels/cuda/attention.cuh` has them.
pub const KEY_LANES: usize = 8;

pub fn profile(_: &KvScores, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("q", &inputs[0])?;
    expect_kv_cache("keys", &inputs[1])?;
    Ok(Profile { lanes: KEY_LANES, ..Profile::F32 })
}

pub fn launch(_: &KvScores, call: &mut Call) -> Result<(), String> {
    let (q, keys, sequences, y) = (call.inputs[0], call.inputs[1], call.inputs[2], call.output);
    let kernel = format!("kv_scores_{}", suffix(keys.ty.dtype));
    let [q, keys, sequences] = [q, keys, sequences].map(|operand| Argument::View(operand.view));
    let arguments = [q, keys, sequences, Argument::View(y.view), call.fault()];
    call.launch(&kernel, Grid::elements(y.ty.shape.elements() * KEY_LANES)?, &arguments)
}

/// What the KV cache holds.
pub fn expect_kv_cache(what: &str, ty: &TensorType) -> Result<(), String> {
    let cache = matches!(ty.dtype, DType::F32 | DType::F16 | DType::Q8_0);
    if cache { Ok(()) } else { Err(format!("{what} must be f32, f16 or q8_0, not {}", ty.dtype)) }
}
