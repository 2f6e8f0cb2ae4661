//! New keys or values enter the KV cache: a block of threads for each token.

use super::kv_scores::expect_kv_cache;
use super::{Argument, Call, ELEMENTWISE, Grid, expect_f32, suffix};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::KvStore;

pub fn profile(_: &KvStore, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_kv_cache("the cache", &inputs[0])?;
    expect_f32("x", &inputs[1])?;
    Ok(Profile { output: inputs[0].dtype, ..ELEMENTWISE })
}

/// The cache is the output.
pub fn launch(_: &KvStore, call: &mut Call) -> Result<(), String> {
    let (cache, x, rows) = (call.output, call.inputs[1], call.inputs[2]);
    let kernel = format!("kv_store_{}", suffix(cache.ty.dtype));
    let [x_view, rows, cache] = [x, rows, cache].map(|operand| Argument::View(operand.view));
    let arguments = [x_view, rows, cache, call.fault()];
    call.launch(&kernel, Grid::rows(x.ty.shape[1])?, &arguments)
}

/// Two stores of the same tokens in one launch: keys and values.
pub fn launch_pair(call: &mut Call, other: &Call) -> Result<(), String> {
    let (keys, values) = (call.output, other.output);
    let kernel = format!("kv_store_pair_{}_{}", suffix(keys.ty.dtype), suffix(values.ty.dtype));
    let (tokens, fault) = (call.inputs[1].ty.shape[1], call.fault());
    let views = [call.inputs[1], other.inputs[1], call.inputs[2], keys, values];
    let arguments = [&views.map(|operand| Argument::View(operand.view))[..], &[fault]].concat();
    call.launch(&kernel, Grid::rows(2 * tokens)?, &arguments)
}
