//! Normalisation of runs of elements, in f64 but for the result.

use super::{Call, IN_F64, expect_f32, pieces_min};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Norm, NormRule};
use trueup_kernels as kernel;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(IN_F64)
}

pub fn compute(op: &Norm, call: Call) -> Result<(), String> {
    let x = call.inputs[0].floats()?;
    let y = Call::output_floats(call.output)?;
    let len = op.run(&call.output_type.shape);
    if y.is_empty() {
        return Ok(());
    }
    let runs = y.chunks_mut(len).zip(x.chunks(len));
    call.team.each(runs, pieces_min(len), |(y, x)| {
        let (shift, divisor) = shift_and_divisor(op, x);
        for (y, x) in y.iter_mut().zip(x) {
            *y = ((f64::from(*x) - shift) / divisor) as f32;
        }
    });
    Ok(())
}

/// What is subtracted from each element, and what the difference is divided by.
fn shift_and_divisor(op: &Norm, x: &[f32]) -> (f64, f64) {
    let (len, epsilon) = (x.len() as f64, f64::from(op.epsilon));
    match op.rule {
        NormRule::Layer | NormRule::Group { .. } => {
            let mean = kernel::sum_of(x) / len;
            (mean, (kernel::squares(x, mean) / len + epsilon).sqrt())
        }
        NormRule::L2 => (0.0, kernel::squares(x, 0.0).sqrt().max(epsilon)),
    }
}
