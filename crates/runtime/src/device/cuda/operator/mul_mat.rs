//! A weight matrix applied to each token, and stacks of matrices to stacks of batches.

use super::matrix::{self, expect_multiplied};
use super::{BlasLibrary, Call, Means, Needed, WORKSPACE_BYTES, batches};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::MulMat;

pub fn profile(_: &MulMat, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_multiplied("x", &inputs[1])?;
    matrix::profile(inputs[0].dtype)
}

/// Decoded weights; activations in the form that the way takes; what the vendor's library computes in.
pub fn needed(inputs: &[TensorType], y: &TensorType, means: &Means, library: &BlasLibrary) -> Needed {
    let [w, x] = [&inputs[0], &inputs[1]];
    let way = means.way(&inputs[..1], x);
    Needed {
        operators: means.decoded_bytes(&inputs[..1], x),
        activations: means.taken_bytes(way, w, x),
        workspace: if matrix::takes_library(way, library.is_used(), w, y) { WORKSPACE_BYTES } else { 0 },
        ..Needed::default()
    }
}

pub fn launch(_: &MulMat, call: &mut Call) -> Result<(), String> {
    batches::launch_parts(call, launch_part)
}

fn launch_part(call: &mut Call) -> Result<(), String> {
    let (w, x, y) = (call.inputs[0], call.inputs[1], call.output);
    let way = call.means.way(&[w.ty], &x.ty);
    let room = call.scratch(call.means.decoded_bytes(&[w.ty], &x.ty))?;
    let taken = matrix::take(call, way, w.ty.dtype, &x)?;
    matrix::multiply(call, way, &w, &x, [taken, room], &y)
}
