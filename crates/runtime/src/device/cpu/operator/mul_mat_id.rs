//! For each token the matrices of the experts that it uses. The tokens of one expert are gathered, multiplied together
//! and scattered: each matrix is read once.

use super::matrix::{self, Matrix};
use super::{Call, expect_multiplied};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::MulMatId;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_multiplied("x", &inputs[1])?;
    matrix::profile(inputs[0].dtype)
}

pub fn compute(_: &MulMatId, call: Call) -> Result<(), String> {
    let (w, x) = (call.inputs[0], call.inputs[1].widened()?);
    let [_, rows, experts, _] = w.ty.shape.sizes();
    let [len, seen, ..] = call.inputs[1].ty.shape.sizes();
    let used = call.output_type.shape[1];
    let ids = call.inputs[2].indices("expert", experts)?;
    let means = call.means();
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    let mut pairs_of: Vec<Vec<usize>> = vec![Vec::new(); experts];
    for (pair, expert) in ids.iter().enumerate() {
        pairs_of[*expert].push(pair);
    }
    for (expert, pairs) in pairs_of.iter().enumerate().filter(|(_, pairs)| !pairs.is_empty()) {
        let column = |pair: usize| pair % used % seen + seen * (pair / used);
        let gathered: Vec<f32> = pairs.iter().flat_map(|pair| &x[len * column(*pair)..][..len]).copied().collect();
        let mut results = vec![0.0; rows * pairs.len()];
        Matrix::of(&w, expert).apply(means, &gathered, pairs.len(), &mut results)?;
        for (pair, results) in pairs.iter().zip(results.chunks_exact(rows)) {
            y[rows * pair..][..rows].copy_from_slice(results);
        }
    }
    Ok(())
}
