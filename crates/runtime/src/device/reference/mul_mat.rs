//! `y[m, n, i, j] = sum_k w[k, m, ...] x[k, n, i, j]`, each matrix of `w` for neighbouring batches of `x`.
//!
//! ```text
//!   rows of w ──decoded once──▶ [k][row]    each k: [row 0 ... row 7] * x[k], for four tokens at a time
//! ```
//!
//! Eight rows of `w` lie side by side, for one sum alone waits for each of its additions. Each element is one sum in
//! the order of `k`, a product rounded and then an addition: its bits depend on no instruction set and no number of
//! tokens or threads.

use super::side_by_side::{ROWS, side_by_side};
use crate::host_tensor::HostTensor;
use multiversion::multiversion;
use rayon::prelude::*;
use trueup_graph::TensorType;

/// Elements of a row that are decoded at a time: few enough for the L1 cache, and a multiple of every block length.
const DECODED: usize = 256;

/// Tokens that they are summed for at once.
const TOKENS: usize = 4;

/// About how many results lie in groups before they are moved to their places.
const GROUPED: usize = 1 << 21;

pub(super) fn evaluate(inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let (w, x) = (inputs[0], inputs[1].values());
    let [len, tokens, n2, n3] = inputs[1].ty().shape.sizes();
    let [_, rows, b2, b3] = w.ty().shape.sizes();
    if n2 * n3 == 1 {
        return product(w, 0..rows, &x, tokens);
    }
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
    if tokens == 1 {
        let count = rows.len();
        let mut y = grouped(w, rows, x, tokens).into_flattened();
        y.truncate(count);
        return y;
    }
    let (start, rows) = (rows.start, rows.len());
    let mut y = vec![0.0; rows * tokens];
    let piece = (GROUPED / (ROWS * tokens.max(1))).max(1) * ROWS;
    for first in (0..rows).step_by(piece) {
        let last = rows.min(first + piece);
        let results = grouped(w, start + first..start + last, x, tokens);
        y.par_chunks_mut(rows).enumerate().for_each(|(token, y)| {
            for (group, y) in y[first..last].chunks_mut(ROWS).enumerate() {
                y.copy_from_slice(&results[group * tokens + token][..y.len()]);
            }
        });
    }
    y
}

/// `(row of a group, tokens, groups)`, innermost first: the same with all results of a group of rows together; what the
/// last group holds for rows beyond is of no meaning.
fn grouped(w: &HostTensor, rows: std::ops::Range<usize>, x: &[f64], tokens: usize) -> Vec<[f64; ROWS]> {
    let len = w.ty().shape[0];
    let (start, rows) = (rows.start, rows.len());
    let mut grouped = vec![[0.0; ROWS]; rows.div_ceil(ROWS) * tokens];
    let buffers = || (vec![0.0; ROWS * DECODED], vec![[0.0; ROWS]; len]);
    grouped.par_chunks_mut(tokens.max(1)).enumerate().for_each_init(buffers, |(decoded, columns), (group, results)| {
        let count = ROWS.min(rows - group * ROWS);
        for (part, columns) in columns.chunks_mut(DECODED).enumerate() {
            let mut parts = decoded.chunks_mut(DECODED).map(|part| &mut part[..columns.len()]);
            let rows: [&[f64]; ROWS] = std::array::from_fn(|row| {
                let decoded = parts.next().unwrap_or_default();
                if row < count {
                    w.read((start + group * ROWS + row) * len + part * DECODED, decoded);
                }
                &*decoded
            });
            side_by_side(&rows[..count], columns);
        }
        dots(columns, x, results);
    });
    grouped
}

/// The sums of all rows for each row of `x`.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn dots(columns: &[[f64; ROWS]], x: &[f64], results: &mut [[f64; ROWS]]) {
    let len = columns.len();
    let row = |token: usize| &x[token * len..(token + 1) * len];
    let (several, single) = results.as_chunks_mut::<TOKENS>();
    for (group, results) in several.iter_mut().enumerate() {
        *results = sums(columns, std::array::from_fn(|t| row(group * TOKENS + t)));
    }
    for (t, result) in single.iter_mut().enumerate() {
        [*result] = sums(columns, [row(several.len() * TOKENS + t)]);
    }
}

#[inline(always)]
fn sums<const COUNT: usize>(columns: &[[f64; ROWS]], x: [&[f64]; COUNT]) -> [[f64; ROWS]; COUNT] {
    let x = x.map(|x| &x[..columns.len()]);
    let mut sums = [[0.0; ROWS]; COUNT];
    for (k, column) in columns.iter().enumerate() {
        for (sums, x) in sums.iter_mut().zip(x) {
            for (sum, weight) in sums.iter_mut().zip(column) {
                *sum += weight * x[k];
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_blocks::DType;

    /// Numbers of both signs and many magnitudes, the same for one seed.
    fn numbers(len: usize, seed: u64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..len).map(|_| (next() - 0.5) * (next() * 20.0 - 10.0).exp2()).collect()
    }

    #[test]
    fn every_element_is_one_sum_in_the_order_of_k_bit_for_bit() {
        for (len, rows, tokens) in
            [(1, 1, 1), (33, 8, 1), (64, 19, 4), (7, 16, 9), (300, 5, 6), (2, 20_000, 2), (1, 40_003, 60)]
        {
            let (w, x) = (numbers(len * rows, 3), numbers(len * tokens, 4));
            let types = [[len, rows], [len, tokens], [rows, tokens]].map(|sizes| TensorType::new(DType::F64, &sizes));
            let inputs = [HostTensor::real(types[0], w.clone()), HostTensor::real(types[1], x.clone())];
            let y = evaluate(&inputs.each_ref(), &types[2]);
            for (index, y) in y.iter().enumerate() {
                let pairs = w[index % rows * len..].iter().zip(&x[index / rows * len..][..len]);
                let sum = pairs.fold(0.0, |sum, (w, x)| sum + w * x);
                assert_eq!(y.to_bits(), f64::to_bits(sum), "element {index} of {len} by {rows} by {tokens}");
            }
        }
    }
}
