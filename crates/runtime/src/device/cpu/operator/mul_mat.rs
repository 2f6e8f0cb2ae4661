//! A weight matrix applied to each token, and stacks of matrices to stacks of batches.
//!
//! The kernels stand in `matrix.rs`.

use super::matrix::{self, Matrix};
use super::{Call, expect_multiplied};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::MulMat;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_multiplied("x", &inputs[1])?;
    matrix::profile(inputs[0].dtype)
}

pub fn compute(_: &MulMat, call: Call) -> Result<(), String> {
    let (w, x) = (call.inputs[0], call.inputs[1].widened()?);
    let [len, tokens, n2, n3] = call.inputs[1].ty.shape.sizes();
    let [_, rows, b2, b3] = w.ty.shape.sizes();
    let means = call.means();
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    for (batch, y) in y.chunks_exact_mut(rows * tokens).enumerate() {
        let index = batch % n2 / (n2 / b2) + b2 * (batch / n2 / (n3 / b3));
        let x = &x[batch * len * tokens..][..len * tokens];
        Matrix::of(&w, index).apply(means, x, tokens, y)?;
    }
    Ok(())
}
