//! Which rows of weights and which tokens belong together, and where their products lie in the result.

use super::ROWS;
use crate::bound::{Case, Repetition};
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
    /// The columns of activations that are judged, in rising order.
    columns: Vec<usize>,
}

/// Up to [`ROWS`] neighbouring rows of one matrix, and the tokens they are multiplied with.
pub(in crate::bound) struct Group {
    /// The first row, in all of the weights.
    pub first: usize,
    /// How many there are.
    pub count: usize,
    /// The tokens, in [`Places::columns`].
    pub columns: Range<usize>,
    /// The first row, in its matrix.
    row: usize,
    rows: usize,
}

impl Places {
    /// The places for weights and activations of these shapes, without the columns with [`Repetition::Result`].
    pub fn new(weights: &Shape, x: &Shape, copies: &[Repetition]) -> Places {
        let [_, rows, b2, b3] = weights.sizes();
        let [_, tokens, n2, n3] = x.sizes();
        let is_judged = |column: &usize| copies.get(*column) != Some(&Repetition::Result);
        let columns = (0..x.rows()).filter(is_judged).collect();
        Places { rows, tokens, weights: [b2, b3], batches: [n2, n3], columns }
    }

    /// The columns of activations that are judged, in rising order.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Rows of all batches.
    pub fn strips(&self) -> usize {
        self.rows * self.batches[0] * self.batches[1]
    }

    /// Groups of strips of a piece, each within one matrix and one panel; groups without columns to judge are left out.
    pub fn groups(&self, piece: Range<usize>) -> impl Iterator<Item = Group> {
        let mut strip = piece.start;
        let groups = std::iter::from_fn(move || {
            let (row, batch) = (strip.checked_rem(self.rows)?, strip / self.rows);
            let count = ROWS.min(piece.end.checked_sub(strip)?).min(self.rows - row);
            strip += count;
            (count > 0).then(|| self.group(row, batch, count))
        });
        groups.filter(|group| !group.columns.is_empty())
    }

    fn group(&self, row: usize, batch: usize, count: usize) -> Group {
        let ([b2, b3], [n2, n3]) = (self.weights, self.batches);
        let matrix = batch % n2 / (n2 / b2) + b2 * (batch / n2 / (n3 / b3));
        let place = |column: usize| self.columns.partition_point(|judged| *judged < column);
        let columns = place(batch * self.tokens)..place((batch + 1) * self.tokens);
        Group { first: matrix * self.rows + row, count, columns, row, rows: self.rows }
    }
}

impl Group {
    /// Judges all of it; `expected` tells by row and token, both counted from the first of the group.
    pub fn add(&self, places: &Places, case: &Case, tally: &mut Tally, expected: impl Fn(usize, usize) -> Expected) {
        for row in 0..self.count {
            for (token, column) in places.columns[self.columns.clone()].iter().enumerate() {
                let (index, expected) = (column * self.rows + self.row + row, expected(row, token));
                if case.copies.get(*column) == Some(&Repetition::Activations) {
                    tally.add_copy(index, &expected);
                } else {
                    tally.add(index, &expected);
                }
            }
        }
    }
}
