//! Sums and means, in f64 but for the result.

use super::{Call, IN_F64, expect_f32, pieces_min};
use crate::profile::Profile;
use trueup_blocks::DType;
use trueup_graph::op::{Reduce, Reduction};
use trueup_graph::{Strides, TensorType};
use trueup_kernels as kernel;

/// Elements of a sum of everything that a thread takes at a time; its place in the order of summation does not depend
/// on threads.
const CHUNK: usize = 1 << 14;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(IN_F64)
}

pub fn compute(op: &Reduce, call: Call) -> Result<(), String> {
    if !call.inputs[0].ty.shape.is_dense() {
        return sum_view(call);
    }
    let x = call.inputs[0].floats()?;
    let len = call.inputs[0].ty.shape[0];
    let y = Call::output_floats(call.output)?;
    if op.rule == Reduction::Sum {
        let mut pieces = vec![0.0; x.len().div_ceil(CHUNK)];
        let chunks = pieces.iter_mut().zip(x.chunks(CHUNK));
        call.team.each(chunks, 1, |(piece, x)| *piece = kernel::sum_of(x));
        y[0] = pieces.iter().fold(0.0, |sum, piece| sum + piece) as f32;
        return Ok(());
    }
    if x.is_empty() {
        y.fill(0.0);
        return Ok(());
    }
    let (rows, grain) = (x.chunks(len), pieces_min(len));
    match op.rule {
        Reduction::Sum => {}
        Reduction::SumRows => call.team.each(rows.zip(y), grain, |(x, y)| *y = kernel::sum_of(x) as f32),
        Reduction::Mean => call.team.each(rows.zip(y), grain, |(x, y)| *y = (kernel::sum_of(x) / len as f64) as f32),
        Reduction::CumSum => call.team.each(rows.zip(y.chunks_mut(len)), grain, |(x, y)| {
            let mut sum = 0.0;
            for (x, y) in x.iter().zip(y) {
                sum += f64::from(*x);
                *y = sum as f32;
            }
        }),
    }
    Ok(())
}

/// Whether the input may be a view, whose elements stay where they are: sums of columns, which are neighbours.
pub fn takes_view(op: &Reduce, input: &TensorType) -> bool {
    op.rule == Reduction::SumRows && input.dtype == DType::F32 && input.shape.strides().steps[1] == 1
}

/// Sums of the columns of a source, in the order that rows are summed in.
fn sum_view(call: Call) -> Result<(), String> {
    let (x, shape) = (call.inputs[0].floats()?, call.inputs[0].ty.shape);
    let y = Call::output_floats(call.output)?;
    let Strides { offset, steps } = shape.strides();
    let [len, columns, n2, _] = shape.sizes();
    if y.is_empty() || len == 0 {
        y.fill(0.0);
        return Ok(());
    }
    let pieces = y.chunks_mut(columns).enumerate().flat_map(|(outer, y)| {
        let start = offset + outer % n2 * steps[2] + outer / n2 * steps[3];
        y.chunks_mut(kernel::SUMMED_COLUMNS).enumerate().map(move |(i, y)| (start + i * kernel::SUMMED_COLUMNS, y))
    });
    let pieces: Vec<(usize, &mut [f32])> = pieces.collect();
    let grain = pieces_min(len * kernel::SUMMED_COLUMNS);
    call.team.each(pieces.into_iter(), grain, |(start, y)| kernel::sum_columns(&x[start..], len, steps[0], y));
    Ok(())
}
