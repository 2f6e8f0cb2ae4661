//! Sums and means, in f64 but for the result.

use super::{Call, IN_F64, expect_f32, pieces_min};
use crate::device::cpu::kernel;
use crate::profile::Profile;
use rayon::prelude::*;
use trueup_graph::TensorType;
use trueup_graph::op::{Reduce, Reduction};

/// Elements of a sum of everything that a thread takes at a time; its place in the order of summation does not depend on threads.
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
        let pieces: Vec<f64> = x.par_chunks(CHUNK).map(kernel::sum_of).collect();
        y[0] = pieces.iter().fold(0.0, |sum, piece| sum + piece) as f32;
        return Ok(());
    }
    if x.is_empty() {
        y.fill(0.0);
        return Ok(());
    }
    let rows = x.par_chunks(len).with_min_len(pieces_min(len));
    match op.rule {
        Reduction::Sum => {}
        Reduction::SumRows => rows.zip(y).for_each(|(x, y)| *y = kernel::sum_of(x) as f32),
        Reduction::Mean => rows.zip(y).for_each(|(x, y)| *y = (kernel::sum_of(x) / len as f64) as f32),
        Reduction::CumSum => rows.zip(y.par_chunks_mut(len)).for_each(|(x, y)| {
            let mut sum = 0.0;
            for (x, y) in x.iter().zip(y) {
                sum += f64::from(*x);
                *y = sum as f32;
            }
        }),
    }
    Ok(())
}
