//! Sums and means, in f64 but for the result.

use super::{Call, IN_F64, expect_f32, pieces_min};
use crate::device::cpu::kernel;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Reduce, Reduction};

/// Elements of a sum of everything that a thread takes at a time; its place in the order of summation does not depend
/// on threads.
const CHUNK: usize = 1 << 14;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(IN_F64)
}

pub fn compute(op: &Reduce, call: Call) -> Result<(), String> {
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
