//! Indices of a row's elements by rank: a block of threads for each largest one, a merge sort of pairs for all others.

use super::{Argument, Call, ELEMENTWISE, Grid, expect_f32};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Rank, RankRule};

/// Bytes of a pair of a number's key and its place.
const PAIR_BYTES: usize = 8;

pub fn profile(_: &Rank, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(ELEMENTWISE)
}

pub fn launch(op: &Rank, call: &mut Call) -> Result<(), String> {
    match op.rule {
        RankRule::ArgMax => {
            let grid = Grid::blocks(call.output.ty.shape.elements(), 32 * PAIR_BYTES as u32)?;
            let views = [call.inputs[0], call.output].map(|operand| Argument::View(operand.view));
            call.launch("argmax_f32", grid, &views)
        }
        RankRule::Ascending => sort(call, false),
        RankRule::Descending | RankRule::TopK { .. } => sort(call, true),
    }
}

/// Pairs of all elements, twice.
pub fn scratch_bytes(op: &Rank, x: &TensorType) -> usize {
    if op.rule == RankRule::ArgMax { 0 } else { 2 * PAIR_BYTES * x.shape.elements() }
}

/// Sorts all rows, and writes as many places of each as the result has.
fn sort(call: &mut Call, descending: bool) -> Result<(), String> {
    let shape = call.inputs[0].ty.shape;
    let (len, rows, bytes) = (shape[0], shape.rows(), PAIR_BYTES * shape.elements());
    let all = Grid::elements(shape.elements())?;
    let room = call.scratch(2 * bytes)?;
    let (mut from, mut to) = (Argument::Address(room), Argument::Address(room + bytes as u64));
    let [x, y] = [call.inputs[0], call.output].map(|operand| Argument::View(operand.view));
    let index = |number: usize| Argument::Index(number as i64);
    call.launch("rank_pairs_f32", all, &[x, from, Argument::Int(descending.into())])?;
    let mut run = 1;
    while run < len {
        call.launch("rank_merge", all, &[from, to, index(len), index(rows), index(run)])?;
        (from, to) = (to, from);
        run *= 2;
    }
    let wanted = call.output.ty.shape;
    let grid = Grid::elements(wanted.elements())?;
    call.launch("rank_places", grid, &[from, y, index(len), index(wanted[0])])
}
