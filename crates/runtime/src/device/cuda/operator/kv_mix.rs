//! Cached values, weighed by attention: a thread for each element, positions one after the other.

use super::kv_scores::expect_kv_cache;
use super::{Argument, Call, Grid, expect_f32, suffix};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::KvMix;

pub fn profile(_: &KvMix, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("p", &inputs[0])?;
    expect_kv_cache("values", &inputs[1])?;
    Ok(Profile { lanes: 1, ..Profile::F32 })
}

pub fn launch(op: &KvMix, call: &mut Call) -> Result<(), String> {
    let (p, values, sequences, y) = (call.inputs[0], call.inputs[1], call.inputs[2], call.output);
    let kernel = format!("kv_mix_{}", suffix(values.ty.dtype));
    let kv_heads = Argument::Index(op.kv_heads as i64);
    let [p, values, sequences] = [p, values, sequences].map(|operand| Argument::View(operand.view));
    let arguments = [p, values, kv_heads, sequences, Argument::View(y.view), call.fault()];
    call.launch(&kernel, Grid::elements(y.ty.shape.elements())?, &arguments)
}
