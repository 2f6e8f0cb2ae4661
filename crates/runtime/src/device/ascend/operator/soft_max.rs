//! Weights of attention: scores scaled, a mask added, and rows that see nothing all 0.

use super::{Call, ELEMENTWISE, FUNCTION_ULP, ONE, broadcast, expect_f32, make};
use crate::device::ascend::acl::{Array, Scalar, Type};
use crate::device::ascend::pool::Room;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::SoftMax;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(Profile { function_ulp: FUNCTION_ULP, ..ELEMENTWISE })
}

pub fn compose(op: &SoftMax, call: &Call) -> Result<(), String> {
    let (queue, x, out) = (&call.engine.queue, call.input(0)?, call.output()?);
    let scores = call.room(Type::F32, &x.sizes)?;
    queue.muls(&x, Scalar::F32(op.scale), &scores)?;
    let mask = if call.inputs() > 1 { Some(call.input_f32(1)?) } else { None };
    weigh(call, &scores, mask.as_deref(), op.max_bias, &out)
}

/// Weights of scores `[batch, heads, tokens, positions]`, which are overwritten. A mask is repeated along the two outer
/// dimensions.
pub fn weigh(call: &Call, scores: &Array, mask: Option<&Array>, max_bias: f32, out: &Array) -> Result<(), String> {
    let queue = &call.engine.queue;
    let Some(mask) = mask else { return queue.softmax(scores, 3, out) };
    let biased = biased(call, mask, scores.sizes[1], max_bias)?;
    let [whole, mask] = broadcast([scores.clone(), biased.as_deref().unwrap_or(mask).clone()])?;
    queue.add_to(&whole, &mask, ONE)?;
    // A row of -inf has no largest: its weights become those of equal numbers, and then 0.
    let seen = call.room(Type::Bool, &scores.sizes)?;
    queue.greater(scores, Scalar::F32(f32::NEG_INFINITY), &seen)?;
    let finite = call.room(Type::F32, &scores.sizes)?;
    queue.clamp_min(scores, Scalar::F32(f32::MIN), &finite)?;
    queue.softmax(&finite, 3, out)?;
    queue.copy_to(&finite, &seen)?;
    queue.mul_by(out, &finite)
}

/// The mask times the slope of each head, where it has one.
fn biased(call: &Call, mask: &Array, heads: i64, max_bias: f32) -> Result<Option<Room>, String> {
    if max_bias == 0.0 {
        return Ok(None);
    }
    let count = heads.unsigned_abs() as usize;
    let key = format!("slopes {count} {max_bias}");
    let slopes = call.table(&key, &[1, heads, 1, 1], &[], Box::new(move |_| make::slopes(count, max_bias)))?;
    let sizes = [mask.sizes[0], heads, mask.sizes[2], mask.sizes[3]];
    let product = call.room(Type::F32, &sizes)?;
    let [out, slopes, mask] = broadcast([product.clone(), slopes, mask.clone()])?;
    call.engine.queue.mul(&mask, &slopes, &out)?;
    Ok(Some(product))
}
