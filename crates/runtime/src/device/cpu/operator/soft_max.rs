//! Softmax of scaled and masked scores.

use super::{Call, expect_f32, pieces_min};
use crate::device::cpu::kernel;
use crate::profile::Profile;
use rayon::prelude::*;
use trueup_graph::TensorType;
use trueup_graph::op::SoftMax;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(Profile { lanes: kernel::LANES, function_ulp: kernel::EXPONENTIAL_ULP, ..Profile::F32 })
}

pub fn compute(op: &SoftMax, call: Call) -> Result<(), String> {
    let (x, mask) = (call.inputs[0].floats()?, call.inputs[1].floats()?);
    let y = Call::output_floats(call.output)?;
    // y[j, t, h]
    let [capacity, tokens, ..] = call.output_type.shape.sizes();
    if y.is_empty() {
        return Ok(());
    }
    let rows = y.par_chunks_mut(capacity).zip(x.par_chunks(capacity)).enumerate();
    rows.with_min_len(pieces_min(8 * capacity)).for_each(|(row, (y, x))| {
        let mask = &mask[row % tokens * capacity..][..capacity];
        kernel::soft_max(call.instructions, x, mask, op.scale, y);
    });
    Ok(())
}
