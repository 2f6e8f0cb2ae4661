//! Products of more batches or tokens than a grid takes: some at a time, each part a product by itself.

use super::Call;
use std::ops::Range;
use trueup_graph::TensorType;

/// Batches that a grid takes at once.
pub(super) const BATCHES_MAX: usize = 65_535;

/// Tokens that it takes at once, at four of them a block at least.
pub(super) const TOKENS_MAX: usize = 4 * 65_535;

/// Launches a product of matrices, the inputs but the last, with batches of tokens, the last one: at once, or in parts.
pub fn launch_parts(call: &mut Call, launch: impl Fn(&mut Call) -> Result<(), String>) -> Result<(), String> {
    if fits(&call.output.ty) { launch(call) } else { parts(call).iter_mut().try_for_each(launch) }
}

/// Whether a grid takes all batches and tokens of a result at once.
pub fn fits(y: &TensorType) -> bool {
    let [_, tokens, n2, n3] = y.shape.sizes();
    n2 * n3 <= BATCHES_MAX && tokens <= TOKENS_MAX
}

/// Calls of fewer batches, which compute all of them.
fn parts<'a>(call: &Call<'a>) -> Vec<Call<'a>> {
    let [_, tokens, n2, n3] = call.output.ty.shape.sizes();
    if tokens > TOKENS_MAX && n2 * n3 == 1 {
        return (0..tokens).step_by(TOKENS_MAX).map(|first| some_tokens(call, first, tokens)).collect();
    }
    let at_once = if tokens > TOKENS_MAX { 1 } else { BATCHES_MAX };
    let (dimension, size, most) = if n3 > 1 { (3, n3, at_once / n2) } else { (2, n2, at_once) };
    let matrices = call.inputs[0].ty.shape[dimension];
    let calls = runs(size, matrices, most.max(1)).into_iter().map(|run| part(call, dimension, size / matrices, &run));
    calls.flat_map(|call| if fits(&call.output.ty) { vec![call] } else { parts(&call) }).collect()
}

/// The part of a call of one batch that computes tokens from `first` on.
fn some_tokens<'a>(call: &Call<'a>, first: usize, tokens: usize) -> Call<'a> {
    let (x, count) = (call.inputs.len() - 1, TOKENS_MAX.min(tokens - first));
    let mut inputs = call.inputs.clone();
    if let Some(x) = inputs.get_mut(x) {
        *x = x.part(1, first, count);
    }
    Call { inputs, output: call.output.part(1, first, count), ..*call }
}

/// The part of a call that computes some batches along a dimension, of which `shared` neighbours have a matrix
/// together.
fn part<'a>(call: &Call<'a>, dimension: usize, shared: usize, run: &Range<usize>) -> Call<'a> {
    let (x, weights) = (call.inputs.len() - 1, run.start / shared..run.end.div_ceil(shared));
    let part = |(place, operand): (usize, &super::Operand)| {
        let run = if place == x { run } else { &weights };
        operand.part(dimension, run.start, run.len())
    };
    let inputs = call.inputs.iter().enumerate().map(part).collect();
    Call { inputs, output: call.output.part(dimension, run.start, run.len()), ..*call }
}

/// Runs of at most `most` batches, each of whole matrices or within one.
fn runs(batches: usize, matrices: usize, most: usize) -> Vec<Range<usize>> {
    let shared = batches / matrices;
    let (whole, step) = if shared > most { (shared, most) } else { (batches, most / shared * shared) };
    let wholes = (0..batches).step_by(whole);
    wholes
        .flat_map(|from| (from..from + whole).step_by(step).map(move |first| first..(first + step).min(from + whole)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_of_whole_matrices_or_within_one() {
        assert_eq!(runs(10, 10, 4), [0..4, 4..8, 8..10]);
        assert_eq!(runs(10, 5, 5), [0..4, 4..8, 8..10]);
        assert_eq!(runs(10, 1, 4), [0..4, 4..8, 8..10]);
        assert_eq!(runs(10, 2, 3), [0..3, 3..5, 5..8, 8..10]);
    }
}
