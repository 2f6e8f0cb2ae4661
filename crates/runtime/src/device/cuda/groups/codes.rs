//! A norm, attention, or two products with the function between them: whoever computes it writes the 8-bit blocks that
//! the products behind it take, beside its result.

use super::product_behind;
use crate::device::Step;
use crate::device::cuda::launches::{Recorder, call};
use crate::device::cuda::operator;
use trueup_graph::Op;

/// A norm whose rows products take in 8 bits.
pub fn norm(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    let [step, rest @ ..] = steps else { return Ok(0) };
    let (Op::RmsNorm(op), Some(weights)) = (&step.op, product_behind(recorder, step, rest)) else { return Ok(0) };
    Ok(operator::norm_for_products(op, &mut call(recorder, step)?, weights)?.into())
}

/// Two products with the function between them, of which products take the result in 8 bits.
pub fn gated(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    let [step, rest @ ..] = steps else { return Ok(0) };
    let (Op::MulMatGated(op), Some(_)) = (&step.op, product_behind(recorder, step, rest)) else { return Ok(0) };
    Ok(operator::gated_for_products(op, &call(recorder, step)?)?.into())
}

/// Attention, of which products take the result in 8 bits.
pub fn attention(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    let [step, rest @ ..] = steps else { return Ok(0) };
    let (Op::KvAttention(op), Some(_)) = (&step.op, product_behind(recorder, step, rest)) else { return Ok(0) };
    Ok(operator::attention_for_products(op, &mut call(recorder, step)?)?.into())
}
