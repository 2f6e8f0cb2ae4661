//! Addition, with repetition of the second input.

use super::{Call, ELEMENTWISE, expect_f32, expect_plain, pieces_min};
use crate::profile::Profile;
use rayon::prelude::*;
use trueup_graph::TensorType;
use trueup_graph::op::Add;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("a", &inputs[0])?;
    expect_plain("b", &inputs[1])?;
    Ok(ELEMENTWISE)
}

pub fn compute(_: &Add, call: Call) -> Result<(), String> {
    let (a, b) = (call.inputs[0].floats()?, call.inputs[1].widened()?);
    let y = Call::output_floats(call.output)?;
    let [len, n1, n2, _] = call.inputs[0].ty.shape.sizes();
    let [b_len, b1, b2, b3] = call.inputs[1].ty.shape.sizes();
    if y.is_empty() {
        return Ok(());
    }
    let rows = y.par_chunks_mut(len).zip(a.par_chunks(len)).enumerate().with_min_len(pieces_min(len));
    rows.for_each(|(row, (y, a))| {
        let b_row = row % n1 % b1 + b1 * (row / n1 % n2 % b2 + b2 * (row / (n1 * n2) % b3));
        let b = &b[b_row * b_len..][..b_len];
        for (y, a) in y.chunks_exact_mut(b_len).zip(a.chunks_exact(b_len)) {
            for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
                *y = a + b;
            }
        }
    });
    Ok(())
}
