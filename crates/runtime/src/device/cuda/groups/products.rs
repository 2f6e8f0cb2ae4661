//! Products of the same tokens: one grid goes through the rows of up to three matrices, and does what comes behind
//! queries, keys and values.

use super::memory::{are_apart, is_same};
use super::{by_rows, heads, is_matrix, way};
use crate::device::Step;
use crate::device::cuda::launches::{Recorder, call};
use crate::device::cuda::operator::{self, Call, Operand};
use trueup_graph::Op;

/// Two or three products of the same tokens.
pub fn products(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    let Some(first) = steps.first() else { return Ok(0) };
    let alike = |step: &&Step| {
        matches!(step.op, Op::MulMat(_))
            && way(recorder, step) == way(recorder, first)
            && is_same(&step.inputs[1], &first.inputs[1])
            && step.inputs[0].ty.dtype == first.inputs[0].ty.dtype
            && is_matrix(&step.inputs[0].ty)
    };
    let count = steps.iter().take(3).take_while(alike).count();
    if count < 2 || !by_rows(recorder, first) || !are_apart(&steps[..count]) {
        return Ok(0);
    }
    let (products, behind) = steps.split_at(count);
    let tail = heads::behind(recorder, products, behind)?;
    let mut calls = products.iter().map(|step| call(recorder, step)).collect::<Result<Vec<Call>, String>>()?;
    let parts: Vec<[Operand; 2]> = calls.iter().map(|call| [call.inputs[0], call.output]).collect();
    let done = operator::multiply_three(&mut calls[0], &parts, tail.as_ref().map(|(tail, _)| tail))?;
    Ok(if done { count + tail.map_or(0, |(_, taken)| taken) } else { 0 })
}
