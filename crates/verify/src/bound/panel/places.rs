//! Which rows of weights and which tokens belong together, and where their products lie in the result.

use super::ROWS;
use crate::bound::Case;
use crate::statistics::{Expected, Tally};
use std::ops::Range;
use trueup_graph::Shape;

/// The rows of a result of a product, in stacks of matrices, each for neighbouring batches of activations.
pub(in crate::bound) struct Places {
    /// Rows of a matrix.
    rows: usize,
    /// Tokens of a batch.
    tokens: usize,
    weights: [usize; 2],
    batches: [usize; 2],
}

/// Up to [`ROWS`] neighbouring rows of one matrix, and the tokens they are multiplied with.
pub(in crate::bound) struct Group {
    /// The first row, in all of the weights.
    pub first: usize,
    /// How many there are.
    pub count: usize,
    /// The tokens, in all of the activations.
    pub columns: Range<usize>,
    /// The first row, in its matrix.
    row: usize,
    rows: usize,
}

impl Places {
    /// Those of weights and activations of these shapes.
    pub fn new(weights: &Shape, x: &Shape) -> Places {
        let [_, rows, b2, b3] = weights.sizes();
        let [_, tokens, n2, n3] = x.sizes();
        Places { rows, tokens, weights: [b2, b3], batches: [n2, n3] }
    }

    /// Rows of all batches.
    pub fn strips(&self) -> usize {
        self.rows * self.batches[0] * self.batches[1]
    }

    /// The strips of a piece, as many at once as lie in one matrix and one panel.
    pub fn groups(&self, piece: Range<usize>) -> impl Iterator<Item = Group> {
        let mut strip = piece.start;
        std::iter::from_fn(move || {
            let (row, batch) = (strip.checked_rem(self.rows)?, strip / self.rows);
            let count = ROWS.min(piece.end.checked_sub(strip)?).min(self.rows - row);
            strip += count;
            (count > 0).then(|| self.group(row, batch, count))
        })
    }

    fn group(&self, row: usize, batch: usize, count: usize) -> Group {
        let ([b2, b3], [n2, n3]) = (self.weights, self.batches);
        let matrix = batch % n2 / (n2 / b2) + b2 * (batch / n2 / (n3 / b3));
        let columns = batch * self.tokens..(batch + 1) * self.tokens;
        Group { first: matrix * self.rows + row, count, columns, row, rows: self.rows }
    }
}

impl Group {
    /// Judges all of it; `expected` tells by row and token, both counted from the first of the group.
    pub fn add(&self, case: &Case, tally: &mut Tally, expected: impl Fn(usize, usize) -> Expected) {
        for row in 0..self.count {
            for (token, column) in self.columns.clone().enumerate() {
                let (index, expected) = (column * self.rows + self.row + row, expected(row, token));
                if case.copies.get(column).copied().unwrap_or(false) {
                    tally.add_copy(index, &expected);
                } else {
                    tally.add(index, &expected);
                }
            }
        }
    }
}
