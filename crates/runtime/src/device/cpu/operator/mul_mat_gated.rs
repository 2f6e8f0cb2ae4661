//! Two weight matrices applied to each token and the gated activation of both results, row by row: neither product is
//! stored.
//!
//! The kernels stand in `matrix.rs`.

use super::matrix::{self, Matrix};
use super::{Call, expect_multiplied, unary};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::MulMatGated;

pub fn profile(op: &MulMatGated, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_multiplied("x", &inputs[2])?;
    let (gate, up) = (matrix::profile(inputs[0].dtype)?, matrix::profile(inputs[1].dtype)?);
    if gate != up {
        let (gate, up) = (inputs[0].dtype, inputs[1].dtype);
        return Err(format!("{gate} and {up} weights need different kernels; compute them separately"));
    }
    Ok(Profile { function_ulp: unary::declared(&op.gated.function()).function_ulp, ..gate })
}

pub fn compute(op: &MulMatGated, call: Call) -> Result<(), String> {
    let (gate, up, x) = (call.inputs[0], call.inputs[1], call.inputs[2].widened()?);
    let [len, tokens, n2, n3] = call.inputs[2].ty.shape.sizes();
    let [_, rows, b2, b3] = gate.ty.shape.sizes();
    let means = call.means();
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    for (batch, y) in y.chunks_exact_mut(rows * tokens).enumerate() {
        let index = batch % n2 / (n2 / b2) + b2 * (batch / n2 / (n3 / b3));
        let x = &x[batch * len * tokens..][..len * tokens];
        let matrices = [Matrix::of(&gate, index), Matrix::of(&up, index)];
        Matrix::apply_gated(matrices, op.gated, means, x, tokens, y)?;
    }
    Ok(())
}
