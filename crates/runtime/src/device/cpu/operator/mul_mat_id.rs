//! For each token the matrices of the experts that it uses. The tokens of one expert are gathered, multiplied together
//! and scattered, so each matrix is read once. All experts are one list of work for the threads.

use super::matrix::{self, Group, Matrix};
use super::{Call, expect_multiplied, pieces_min};
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
    let pairs = by_expert(&ids, experts);
    let order: Vec<usize> = pairs.iter().flat_map(|(_, pairs)| pairs).copied().collect();
    let mut end = 0;
    let mut groups: Vec<Group> = Vec::with_capacity(pairs.len());
    for (index, pairs) in &pairs {
        groups.push(Group { index: *index, first: end, tokens: pairs.len() });
        end += pairs.len();
    }
    if ids.len() == used && groups.len() == used {
        // One token, whose activations need not be moved.
        groups.iter_mut().filter(|_| seen == 1).for_each(|group| group.first = 0);
        return Matrix::apply_each(&w, &groups, means, &x, y);
    }
    let mut gathered = means.spares.gathered.lend(len * ids.len());
    let column = |pair: usize| &x[len * (pair % used % seen + seen * (pair / used))..][..len];
    let rows_of_x = gathered.chunks_exact_mut(len.max(1)).zip(&order);
    means.team.each(rows_of_x, pieces_min(len), |(target, pair)| target.copy_from_slice(column(*pair)));
    let mut results = means.spares.results.lend(y.len());
    Matrix::apply_each(&w, &groups, means, &gathered, &mut results)?;
    let mut place_of = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, pair)| place_of[*pair] = place);
    let rows_of_y = y.chunks_exact_mut(rows).zip(&place_of);
    means.team.each(rows_of_y, pieces_min(rows), |(y, place)| y.copy_from_slice(&results[rows * place..][..rows]));
    Ok(())
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
