//! A weight matrix applied to each token, and stacks of matrices to stacks of batches.

use super::matrix::{self, Way, expect_multiplied};
use super::{BlasLibrary, Call, Means, Needed, Operand, WORKSPACE_BYTES};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::MulMat;

pub fn profile(_: &MulMat, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_multiplied("x", &inputs[1])?;
    matrix::profile(inputs[0].dtype)
}

/// Activations in the form that the way takes, and what the vendor's library computes in.
pub fn needed(inputs: &[TensorType], y: &TensorType, means: &Means, library: &BlasLibrary) -> Needed {
    let [w, x] = [&inputs[0], &inputs[1]];
    let way = means.way(&inputs[..1], x);
    let [matrix, result] = [w, y].map(Operand::unplaced);
    let by_library = way == Way::Halves && matrix::by_library(library, &matrix, &result);
    let workspace = if by_library { WORKSPACE_BYTES } else { 0 };
    Needed { activations: means.taken_bytes(way, w, x), workspace, ..Needed::default() }
}

pub fn launch(_: &MulMat, call: &mut Call) -> Result<(), String> {
    let (w, x, y) = (call.inputs[0], call.inputs[1], call.output);
    let way = call.means.way(&[w.ty], &x.ty);
    let taken = matrix::take(call, way, w.ty.dtype, &x)?;
    matrix::multiply(call, way, &w, &x, taken, &y)
}
