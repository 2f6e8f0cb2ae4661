//! `y[m, n, i, j] = sum_k w[k, m, ...] x[k, n, i, j]`, each matrix of `w` for neighbouring batches of `x`.
//!
//! Rows of `w` are decoded once and used for all tokens. Four of them are summed side by side, each in its own order of `k`, because one
//! sum alone waits for each of its additions.

use crate::host_tensor::HostTensor;
use rayon::prelude::*;
use trueup_graph::TensorType;

/// Rows of `w` that are summed side by side.
const ROWS: usize = 4;

pub(super) fn evaluate(inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let (w, x) = (inputs[0], inputs[1].values());
    let [len, tokens, n2, n3] = inputs[1].ty().shape.sizes();
    let [_, rows, b2, b3] = w.ty().shape.sizes();
    let mut y = Vec::with_capacity(output.shape.elements());
    for batch in 0..n2 * n3 {
        let matrix = batch % n2 / (n2 / b2) + b2 * (batch / n2 / (n3 / b3));
        let x = &x[len * tokens * batch..len * tokens * (batch + 1)];
        y.extend(product(w, matrix * rows..(matrix + 1) * rows, x, tokens));
    }
    y
}

/// `(rows, tokens)`, innermost first: some rows of `w` by each of the `tokens` of `x`.
pub(super) fn product(w: &HostTensor, rows: std::ops::Range<usize>, x: &[f64], tokens: usize) -> Vec<f64> {
    let len = w.ty().shape[0];
    let (start, rows) = (rows.start, rows.len());
    // (tokens, rows), innermost first: all results of a row of w lie together.
    let mut by_row = vec![0.0; rows * tokens];
    by_row.par_chunks_mut((ROWS * tokens).max(1)).enumerate().for_each(|(group, results)| {
        let count = results.len() / tokens;
        let mut weights = vec![0.0; ROWS * len];
        w.read((start + group * ROWS) * len, &mut weights[..count * len]);
        let (first, rest) = weights.split_at(len);
        let (second, rest) = rest.split_at(len);
        let (third, fourth) = rest.split_at(len);
        for t in 0..tokens {
            let sums = dot([first, second, third, fourth], &x[len * t..len * (t + 1)]);
            for (row, sum) in sums.iter().take(count).enumerate() {
                results[row * tokens + t] = *sum;
            }
        }
    });
    (0..rows * tokens).map(|index| by_row[index % rows * tokens + index / rows]).collect()
}

fn dot(w: [&[f64]; ROWS], x: &[f64]) -> [f64; ROWS] {
    let [a, b, c, d] = w;
    let mut sums = [0.0; ROWS];
    for ((((x, a), b), c), d) in x.iter().zip(a).zip(b).zip(c).zip(d) {
        sums[0] += a * x;
        sums[1] += b * x;
        sums[2] += c * x;
        sums[3] += d * x;
    }
    sums
}
