//! Neighbouring steps that one launch computes: a token of a large model has some hundred short steps, each of which would cost a launch.
//!
//! ```text
//!  norm, products of it         whoever computes a norm, a gated product or attention writes the 8-bit blocks that products behind it take, beside its
//!  gated, attention: the same   result
//!  products of the same x       one grid goes through the rows of up to three matrices
//!  product, sum with it         one kernel writes both; and behind them the norm of the sum, if there is one, with the blocks that products take of it
//!  queries, keys rotated        one kernel
//!  keys, values stored          one kernel
//! ```
//!
//! Each tensor is written that the steps would write one by one, with the same bits, so that looking at them one by one changes nothing; verify holds
//! the device to that. A group runs at once: a step may not write what another one reads or writes, which is looked at each time. Plans keep the
//! memory of small results for some nodes longer, so that neighbours lie apart.

use super::launches::{Recorder, call, operand};
use super::operator::{self, Call, NormBehind, Operand, Way};
use crate::device::{Step, Tensor};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::op::Arithmetic;
use trueup_graph::{Op, TensorType};

/// Finds a group at the beginning of some steps and records its launch: how many steps it takes, none where there is no such group.
type Group = fn(&Recorder, &[Step]) -> Result<usize, String>;

/// All groups.
const GROUPS: [Group; 7] = [norm, gated, attention, products, sum, ropes, stores];

/// Records the launch of as many of the first steps as are computed together; how many these are, 0 where they are not.
pub fn record(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    if !recorder.means().repack {
        return Ok(0);
    }
    for group in GROUPS {
        let taken = group(recorder, steps)?;
        if taken > 0 {
            return Ok(taken);
        }
    }
    Ok(0)
}

/// A norm whose rows products take in 8 bits.
fn norm(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    let [step, rest @ ..] = steps else { return Ok(0) };
    let (Op::RmsNorm(op), Some(weights)) = (&step.op, product_behind(recorder, step, rest)) else { return Ok(0) };
    Ok(operator::norm_for_products(op, &mut call(recorder, step)?, weights)?.into())
}

/// Two products with the function between them, of which products take the result in 8 bits.
fn gated(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    let [step, rest @ ..] = steps else { return Ok(0) };
    let (Op::MulMatGated(op), Some(_)) = (&step.op, product_behind(recorder, step, rest)) else { return Ok(0) };
    Ok(operator::gated_for_products(op, &call(recorder, step)?)?.into())
}

/// Attention, of which products take the result in 8 bits.
fn attention(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    let [step, rest @ ..] = steps else { return Ok(0) };
    let (Op::KvAttention(op), Some(_)) = (&step.op, product_behind(recorder, step, rest)) else { return Ok(0) };
    Ok(operator::attention_for_products(op, &mut call(recorder, step)?)?.into())
}

/// The type of the weights that the next step, but for views, multiplies with the result of a step in 8 bits; `None` where it does not.
fn product_behind(recorder: &Recorder, step: &Step, rest: &[Step]) -> Option<DType> {
    let next = rest.iter().find(|step| !step.op.is_view())?;
    let takes = next.inputs.len() > 1 && next.inputs.last().is_some_and(|x| is_same(x, &step.output));
    let codes = takes && way(recorder, next).is_some_and(|(_, codes)| codes);
    codes.then(|| next.inputs[0].ty.dtype)
}

/// Two or three products of the same tokens.
fn products(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
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
    let mut calls = steps[..count].iter().map(|step| call(recorder, step)).collect::<Result<Vec<Call>, String>>()?;
    let parts: Vec<[Operand; 2]> = calls.iter().map(|call| [call.inputs[0], call.output]).collect();
    let done = operator::multiply_three(&mut calls[0], &parts)?;
    Ok(if done { count } else { 0 })
}

/// A product and what is added to it, and the norm of the sum.
fn sum(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    let [product, sum, rest @ ..] = steps else { return Ok(0) };
    let (Op::MulMat(_), Op::Arithmetic(Arithmetic::Add)) = (&product.op, &sum.op) else { return Ok(0) };
    let ([w, x], [a, b]) = (product.inputs.as_slice(), sum.inputs.as_slice()) else { return Ok(0) };
    let is_group = by_rows(recorder, product) && is_matrix(&w.ty) && sum.output.ty == product.output.ty;
    let addend = if is_same(a, &product.output) { b } else { a };
    let fits = |addend: &TensorType, y: &TensorType| {
        let [rows, tokens, n2, n3] = addend.shape.sizes();
        addend.dtype == y.dtype && rows == y.shape[0] && (tokens == y.shape[1] || tokens == 1) && n2 * n3 == 1
    };
    let reads_it = is_same(a, &product.output) != is_same(b, &product.output);
    // The product is read by the sum as it is written; all else that is read is older.
    let read = [x, addend, &product.output];
    let apart = !read.iter().any(|tensor| overlap(&sum.output, tensor)) && !overlap(&product.output, addend);
    if !is_group || !reads_it || !fits(&addend.ty, &product.output.ty) || !apart {
        return Ok(0);
    }
    let norm = norm_behind(recorder, sum, rest, &[x, addend, &product.output])?;
    let taken = if norm.is_some() { 3 } else { 2 };
    let (addend, total) = (operand(addend)?, call(recorder, sum)?.output);
    Ok(if operator::multiply_add(&mut call(recorder, product)?, addend, total, norm)? { taken } else { 0 })
}

/// The norm of what a step writes, which is the next one and writes none of what is read meanwhile.
fn norm_behind(recorder: &Recorder, sum: &Step, rest: &[Step], read: &[&Tensor]) -> Result<Option<NormBehind>, String> {
    let [norm, rest @ ..] = rest else { return Ok(None) };
    let Op::RmsNorm(op) = &norm.op else { return Ok(None) };
    let apart = !read.iter().chain(&[&sum.output]).any(|tensor| overlap(&norm.output, tensor));
    if !is_same(&norm.inputs[0], &sum.output) || !apart {
        return Ok(None);
    }
    Ok(NormBehind::of(op, &call(recorder, norm)?, product_behind(recorder, norm, rest)))
}

/// Queries and keys, rotated alike.
fn ropes(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
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
fn stores(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
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

/// How a product is computed, and whether its activations are taken in 8 bits; `None` of other operators.
fn way(recorder: &Recorder, step: &Step) -> Option<(Way, bool)> {
    let weights: Vec<TensorType> = step.inputs.iter().take(step.inputs.len().saturating_sub(1)).map(|w| w.ty).collect();
    let product = matches!(step.op, Op::MulMat(_) | Op::MulMatGated(_));
    let way = |x: &Tensor| recorder.means().way(&weights, &x.ty);
    let codes = weights.first().is_some_and(|w| recorder.means().takes_codes(w.dtype));
    step.inputs.last().filter(|_| product).map(|x| (way(x), codes))
}

fn by_rows(recorder: &Recorder, step: &Step) -> bool {
    way(recorder, step).is_some_and(|(way, _)| way == Way::Rows)
}

fn is_matrix(ty: &TensorType) -> bool {
    ty.shape[2] == 1 && ty.shape[3] == 1
}

fn is_same(a: &Tensor, b: &Tensor) -> bool {
    Arc::ptr_eq(&a.buffer.0, &b.buffer.0) && a.offset_bytes == b.offset_bytes && a.ty == b.ty
}

/// Whether no step writes what another one of them reads or writes.
fn are_apart(steps: &[Step]) -> bool {
    steps.iter().enumerate().all(|(place, step)| {
        let others = steps.iter().enumerate().filter(|(other, _)| *other != place);
        others
            .flat_map(|(_, other)| other.inputs.iter().chain([&other.output]))
            .all(|tensor| !overlap(&step.output, tensor))
    })
}

fn overlap(a: &Tensor, b: &Tensor) -> bool {
    let range = |tensor: &Tensor| (tensor.offset_bytes, tensor.offset_bytes + tensor.ty.held().bytes());
    let ((a_first, a_end), (b_first, b_end)) = (range(a), range(b));
    Arc::ptr_eq(&a.buffer.0, &b.buffer.0) && a_first < b_end && b_first < a_end
}
