//! De-interleaves queries, keys and values that a checkpoint stores in groups.
//!
//! ```text
//! checkpoint   q0 k0 v0 | q1 k1 v1 | ...      by head: the rows of one head each
//!              q0 v0 k0 | q1 v1 k1 | ...      by quarter: the rows of a quarter of all heads each
//! GGUF         q0 q1 ... | k0 k1 ... | v0 v1 ...
//! ```

use std::ops::Range;
use trueup_models::{Grouped, Hyper};

/// Kinds of rows: queries, keys, values.
const KINDS: u64 = 3;
/// Groups of a tensor that was cut for so many computers.
const QUARTERS: u64 = 4;

/// The sizes of such a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KindsApart {
    /// How many groups.
    groups: u64,
    /// Rows of one kind in a group.
    rows: u64,
    /// Where queries, keys and values stand in a group.
    places: [u64; 3],
}

impl KindsApart {
    /// Of a model with such groups; `None` where its rows cannot be split into groups of equal size.
    pub fn new(grouped: Grouped, hyper: &Hyper) -> Option<KindsApart> {
        let (heads, size) = (hyper.heads() as u64, hyper.head_size() as u64);
        let (groups, places) = match grouped {
            Grouped::ByHead => (heads, [0, 1, 2]),
            Grouped::ByQuarter => (QUARTERS, [0, 2, 1]),
        };
        let is_whole = heads.is_multiple_of(groups) && hyper.kv_heads() == hyper.heads();
        is_whole.then_some(KindsApart { groups, rows: heads / groups * size, places })
    }

    /// The rows of the checkpoint that stand in these rows of the file, run by run.
    pub fn in_checkpoint(&self, rows: Range<u64>) -> Vec<Range<u64>> {
        runs(rows, self.rows, |piece| {
            let (kind, group) = (piece / self.groups, piece % self.groups);
            group * KINDS + self.places[kind as usize]
        })
    }

    /// The rows of the file that stand in these rows of the checkpoint, run by run.
    pub fn in_file(&self, rows: Range<u64>) -> Vec<Range<u64>> {
        runs(rows, self.rows, |piece| {
            let (group, place) = (piece / KINDS, piece % KINDS);
            // Places are their own inverse: two of them change, or none.
            self.places[place as usize] * self.groups + group
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

    impl KindsApart {
        pub fn plain(groups: u64, rows: u64) -> KindsApart {
            KindsApart { groups, rows, places: [0, 1, 2] }
        }
    }

    fn rows(runs: &[Range<u64>]) -> Vec<u64> {
        runs.iter().cloned().flatten().collect()
    }

    /// `numpy.arange(12).reshape(2, 3, 2).swapaxes(0, 1).ravel()`: two heads of two rows of each kind.
    #[test]
    fn two_heads_as_numpy_moves_them() {
        let apart = KindsApart { groups: 2, rows: 2, places: [0, 1, 2] };
        assert_eq!(rows(&apart.in_checkpoint(0..12)), [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        assert_eq!(rows(&apart.in_checkpoint(3..6)), [7, 2, 3]);
        // Values before keys: the same with `[:, [0, 2, 1]]` before.
        let apart = KindsApart { places: [0, 2, 1], ..apart };
        assert_eq!(rows(&apart.in_checkpoint(0..12)), [0, 1, 6, 7, 4, 5, 10, 11, 2, 3, 8, 9]);
    }

    #[test]
    fn one_way_undoes_the_other() {
        for (groups, size) in [(1, 1), (2, 3), (5, 4), (7, 1)] {
            let apart = KindsApart { groups, rows: size, places: if size == 1 { [0, 1, 2] } else { [0, 2, 1] } };
            let total = KINDS * groups * size;
            let there = rows(&apart.in_checkpoint(0..total));
            for row in 0..total {
                assert_eq!(rows(&apart.in_file(there[row as usize]..there[row as usize] + 1)), [row]);
            }
        }
    }
}
