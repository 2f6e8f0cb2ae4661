//! Of many tokens: queries and keys rotated alike, keys and values stored alike, one kernel for both. What few tokens
//! have is in heads.rs.

use super::memory::{are_apart, is_same, overlap};
use crate::device::Step;
use crate::device::cuda::launches::{Recorder, call};
use crate::device::cuda::operator;
use trueup_graph::Op;

/// Queries and keys, rotated alike.
pub fn ropes(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    let Some((first, second, taken)) = pair(steps, |op| matches!(op, Op::Rope(_))) else { return Ok(0) };
    let Op::Rope(op) = &first.op else { return Ok(0) };
    let same_turns = first.op == second.op
        && first.inputs.len() == second.inputs.len()
        && first.inputs.iter().zip(&second.inputs).skip(1).all(|(a, b)| is_same(a, b))
        && first.inputs[0].ty.shape.sizes()[2..] == second.inputs[0].ty.shape.sizes()[2..];
    if !same_turns || !are_apart(&[first.clone(), second.clone()]) {
        return Ok(0);
    }
    let (call, other) = (call(recorder, first)?, call(recorder, second)?);
    operator::rotate_pair(op, &call, &other)?;
    Ok(taken)
}

/// Keys and values of the same tokens.
pub fn stores(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    let Some((first, second, taken)) = pair(steps, |op| matches!(op, Op::KvStore(_))) else { return Ok(0) };
    let same_rows =
        is_same(&first.inputs[2], &second.inputs[2]) && first.inputs[1].ty.shape[1] == second.inputs[1].ty.shape[1];
    let others = [&second.output, &second.inputs[1]];
    let apart =
        !others.iter().any(|tensor| overlap(&first.output, tensor)) && !overlap(&second.output, &first.inputs[1]);
    if !same_rows || !apart {
        return Ok(0);
    }
    let other = call(recorder, second)?;
    operator::store_pair(&mut call(recorder, first)?, &other)?;
    Ok(taken)
}

/// Two steps of a kind with nothing but views between them, and how many steps all these are.
fn pair(steps: &[Step], is_of_kind: fn(&Op) -> bool) -> Option<(&Step, &Step, usize)> {
    let [first, rest @ ..] = steps else { return None };
    let between = rest.iter().take_while(|step| step.op.is_view()).count();
    let second = rest.get(between)?;
    (is_of_kind(&first.op) && is_of_kind(&second.op)).then_some((first, second, between + 2))
}
