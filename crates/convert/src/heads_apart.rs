//! Rows of queries, keys and values that a checkpoint keeps head by head, and GGUF kind by kind.
//!
//! ```text
//! checkpoint   q0 k0 v0 | q1 k1 v1 | ...      each of them the rows of one head
//! GGUF         q0 q1 ... | k0 k1 ... | v0 v1 ...
//! ```

use std::ops::Range;

/// Kinds of rows: queries, keys, values.
const KINDS: u64 = 3;

/// The sizes of such a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeadsApart {
    /// How many heads.
    pub heads: u64,
    /// Rows of one kind in a head.
    pub head_rows: u64,
}

impl HeadsApart {
    /// The rows of the checkpoint that stand in these rows of the file, run by run.
    pub fn in_checkpoint(&self, rows: Range<u64>) -> Vec<Range<u64>> {
        runs(rows, self.head_rows, |piece| {
            let (kind, head) = (piece / self.heads, piece % self.heads);
            head * KINDS + kind
        })
    }

    /// The rows of the file that stand in these rows of the checkpoint, run by run.
    pub fn in_file(&self, rows: Range<u64>) -> Vec<Range<u64>> {
        runs(rows, self.head_rows, |piece| {
            let (head, kind) = (piece / KINDS, piece % KINDS);
            kind * self.heads + head
        })
    }
}

/// Where rows stand whose pieces of `size` rows each are elsewhere.
fn runs(rows: Range<u64>, size: u64, elsewhere: impl Fn(u64) -> u64) -> Vec<Range<u64>> {
    let (mut runs, mut at) = (Vec::new(), rows.start);
    while at < rows.end {
        let piece = at / size;
        let end = rows.end.min((piece + 1) * size);
        let start = elsewhere(piece) * size + at % size;
        runs.push(start..start + (end - at));
        at = end;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(runs: &[Range<u64>]) -> Vec<u64> {
        runs.iter().cloned().flatten().collect()
    }

    /// `numpy.arange(12).reshape(2, 3, 2).swapaxes(0, 1).ravel()`: two heads of two rows of each kind.
    #[test]
    fn two_heads_as_numpy_moves_them() {
        let apart = HeadsApart { heads: 2, head_rows: 2 };
        assert_eq!(rows(&apart.in_checkpoint(0..12)), [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        assert_eq!(rows(&apart.in_checkpoint(3..6)), [7, 2, 3]);
    }

    #[test]
    fn one_way_undoes_the_other() {
        for (heads, head_rows) in [(1, 1), (2, 3), (5, 4), (7, 1)] {
            let apart = HeadsApart { heads, head_rows };
            let total = KINDS * heads * head_rows;
            let there = rows(&apart.in_checkpoint(0..total));
            for row in 0..total {
                assert_eq!(rows(&apart.in_file(there[row as usize]..there[row as usize] + 1)), [row]);
            }
        }
    }
}
