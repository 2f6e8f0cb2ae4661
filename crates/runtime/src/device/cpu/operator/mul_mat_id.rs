//! For each token the matrices of the experts that it uses. The tokens of one expert are multiplied together, so
//! each matrix is read once. All experts are one list of work for the threads.

use super::groups::{Group, Inputs};
use super::matrix::{self, Matrix};
use super::{Call, expect_multiplied};
use crate::device::cpu::columns::Outputs;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::MulMatId;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_multiplied("x", &inputs[1])?;
    matrix::profile(inputs[0].dtype)
}

pub fn compute(_: &MulMatId, call: Call) -> Result<(), String> {
    let (w, x) = (call.inputs[0], call.inputs[1].widened()?);
    let experts = w.ty.shape[2];
    let [_, seen, ..] = call.inputs[1].ty.shape.sizes();
    let used = call.output_type.shape[1];
    let ids = call.inputs[2].indices("expert", experts)?;
    let means = call.means();
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    let pairs = by_expert(&ids, experts);
    let order: Vec<usize> = pairs.iter().flat_map(|(_, pairs)| pairs).copied().collect();
    let mut end = 0;
    let mut groups: Vec<Group> = Vec::with_capacity(pairs.len());
    for (index, pairs) in &pairs {
        groups.push(Group { index: *index, first: end, tokens: pairs.len() });
        end += pairs.len();
    }
    if ids.len() == used && groups.len() == used && seen == 1 {
        // One token, whose activations all experts share.
        groups.iter_mut().for_each(|group| group.first = 0);
        return Matrix::apply_each(&w, &groups, means, Inputs { cells: &x, rows: None }, Outputs::in_order(y));
    }
    let sources: Vec<usize> = order.iter().map(|pair| pair % used % seen + seen * (pair / used)).collect();
    let inputs = Inputs { cells: &x, rows: Some(&sources) };
    Matrix::apply_each(&w, &groups, means, inputs, Outputs::in_places(y, &order))
}

/// The experts that are used, in the order of their first use, each with its pairs of a token and a use.
fn by_expert(ids: &[usize], experts: usize) -> Vec<(usize, Vec<usize>)> {
    let mut place_of = vec![None; experts];
    let mut pairs: Vec<(usize, Vec<usize>)> = Vec::new();
    for (pair, expert) in ids.iter().enumerate() {
        let place = *place_of[*expert].get_or_insert(pairs.len());
        if place == pairs.len() {
            pairs.push((*expert, Vec::new()));
        }
        pairs[place].1.push(pair);
    }
    pairs
}
