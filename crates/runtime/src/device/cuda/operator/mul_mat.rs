//! A weight matrix applied to each token, and stacks of matrices to stacks of batches.

use super::Call;
use super::matrix::{self, expect_multiplied};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::MulMat;

pub fn profile(_: &MulMat, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_multiplied("x", &inputs[1])?;
    matrix::profile(inputs[0].dtype)
}

pub fn launch(_: &MulMat, call: &mut Call) -> Result<(), String> {
    let (w, x, y) = (call.inputs[0], call.inputs[1], call.output);
    let way = call.means.way(&[w.ty], &x.ty);
    let taken = call.scratch(matrix::taken_bytes(way, w.ty.dtype, &x.ty))?;
    matrix::take(call, way, w.ty.dtype, &x, taken)?;
    matrix::multiply(call, way, &w, &x, taken, &y)
}
