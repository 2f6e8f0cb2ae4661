//! A product, what is added to it, and the norm of the sum: one kernel writes all three, and the 8-bit blocks that
//! products take of the norm.

use super::memory::{is_same, overlap};
use super::{by_rows, is_matrix, product_behind};
use crate::device::cuda::launches::{Recorder, call, operand};
use crate::device::cuda::operator::{self, NormBehind};
use crate::device::{Step, Tensor};
use trueup_graph::op::Arithmetic;
use trueup_graph::{Op, TensorType};

/// A product and what is added to it, and the norm of the sum.
pub fn sum(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
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
