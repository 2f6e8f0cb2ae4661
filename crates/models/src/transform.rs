//! How a tensor of a GGUF file is computed from tensors of a checkpoint: gathering rows, interleaving heads,
//! transposing matrices, changing values.

use std::ops::Range;

/// How a tensor is computed from its sources: rows are gathered, then the rows of heads are interleaved, then values
/// are changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Transform {
    /// The rows of the tensor in order, as runs of rows of the sources. A bias has rows of one element.
    pub pieces: Vec<Piece>,
    /// In each head of this many rows, rows of rotated pairs `(i, i + n/2)` become adjacent: `(2 i, 2 i + 1)`.
    pub interleaved_heads: Option<usize>,
    /// The change of the values of each row.
    pub values: ValueChange,
    /// The layout of the sources if they store the transposed matrix: their columns are the rows of the pieces.
    pub transposed: Option<Transposed>,
    /// Whether a stack of matrices is gathered from the rows of one matrix.
    pub is_from_matrix: bool,
    /// The columns of the tensor in order, as runs of columns of the source; empty if they are the same.
    pub columns: Vec<Piece>,
}

/// A source that contains the transposed matrices of a tensor, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transposed {
    /// Rows of the source from one matrix to the next.
    pub stride: u64,
    /// The first row of the source that belongs to a matrix.
    pub offset: u64,
    /// Rows of one matrix of the tensor: columns of the source.
    pub rows: u64,
}

impl Transposed {
    /// The row and the column of an element of the tensor in the source.
    pub fn place(&self, row: u64, column: u64) -> (u64, u64) {
        let matrix = row.checked_div(self.rows).unwrap_or(0);
        let first = matrix.saturating_mul(self.stride).saturating_add(self.offset);
        (first.saturating_add(column), row.saturating_sub(matrix.saturating_mul(self.rows)))
    }
}

/// Selects `rows` rows, starting at `offset`, from each of `groups` groups of `stride` rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Number of the source.
    pub source: usize,
    /// Number of groups.
    pub groups: u64,
    /// Rows of a group.
    pub stride: u64,
    /// First selected row of each group.
    pub offset: u64,
    /// Number of selected rows of each group.
    pub rows: u64,
}

/// A change of the values of each row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ValueChange {
    /// Nothing.
    None,
    /// Each row is divided by its length.
    NormalizeRows,
    /// `-exp x`.
    NegatedExponential,
    /// `scale x + offset`.
    Affine {
        /// Multiplier.
        scale: f32,
        /// Added after multiplication.
        offset: f32,
    },
    /// Each matrix becomes ternary: with `m` the mean magnitude of its elements, `m clamp(round(x / m), -1, 1)`. The
    /// first element depends on the whole matrix.
    Ternary,
    /// Unpacks four ternary values from each byte of the first source. Each 2-bit code is the value plus 1. The four
    /// values belong to rows that are a quarter of the matrix apart. The second source is the scale.
    PackedTernary {
        /// Whether values are divided by the scale; otherwise they are multiplied by it.
        is_divided: bool,
    },
}

impl Piece {
    /// A whole source.
    pub fn whole(source: usize, rows: u64) -> Piece {
        Piece { source, groups: 1, stride: rows, offset: 0, rows }
    }

    /// Number of selected rows.
    pub fn len(&self) -> u64 {
        self.groups.saturating_mul(self.rows)
    }

    /// Whether no row is selected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds the runs of source rows that these selected rows come from.
    fn runs(&self, rows: Range<u64>, out: &mut Vec<(usize, Range<u64>)>) {
        let mut at = rows.start;
        while at < rows.end {
            let group = at.checked_div(self.rows).unwrap_or(0);
            let within = at.saturating_sub(group.saturating_mul(self.rows));
            let count = self.rows.saturating_sub(within).min(rows.end.saturating_sub(at)).max(1);
            let start = group.saturating_mul(self.stride).saturating_add(self.offset).saturating_add(within);
            match out.last_mut() {
                Some((source, run)) if *source == self.source && run.end == start => {
                    run.end = start.saturating_add(count);
                }
                _ => out.push((self.source, start..start.saturating_add(count))),
            }
            at = at.saturating_add(count);
        }
    }
}

impl Transform {
    /// Concatenates the rows of the sources, each of `rows` rows.
    pub fn same(sources: usize, rows: u64) -> Transform {
        let pieces = (0..sources).map(|source| Piece::whole(source, rows)).collect();
        Transform {
            pieces,
            interleaved_heads: None,
            values: ValueChange::None,
            transposed: None,
            is_from_matrix: false,
            columns: Vec::new(),
        }
    }

    /// Whether rows are gathered in a different order than in the source.
    pub fn gathers(&self) -> bool {
        !matches!(self.pieces[..], [] | [Piece { groups: 1, offset: 0, source: 0, .. }])
    }

    /// The runs of source rows that these rows of the tensor come from, before heads are interleaved: the number of the
    /// source and its rows.
    pub fn source_rows(&self, rows: Range<u64>) -> Vec<(usize, Range<u64>)> {
        let (mut runs, mut first) = (Vec::new(), 0u64);
        for piece in &self.pieces {
            let end = first.saturating_add(piece.len());
            let (low, high) = (rows.start.max(first), rows.end.min(end));
            if low < high {
                piece.runs(low.saturating_sub(first)..high.saturating_sub(first), &mut runs);
            }
            first = end;
        }
        runs
    }

    /// The runs of source columns that the columns of the tensor come from; empty if they are the same.
    pub fn source_columns(&self) -> Vec<Range<u64>> {
        let mut runs = Vec::new();
        for piece in &self.columns {
            piece.runs(0..piece.len(), &mut runs);
        }
        runs.into_iter().map(|(_, run)| run).collect()
    }

    /// The pieces that restore the source, one for each run; `None` unless the tensor has one source with the same
    /// rows.
    pub fn inverse(&self) -> Option<Vec<Piece>> {
        let mut runs: Vec<(u64, u64, u64)> = Vec::new();
        let mut first = 0u64;
        for piece in &self.pieces {
            if piece.source != 0 {
                return None;
            }
            for group in 0..piece.groups {
                let source = group.saturating_mul(piece.stride).saturating_add(piece.offset);
                runs.push((source, first, piece.rows));
                first = first.saturating_add(piece.rows);
            }
        }
        runs.sort_unstable();
        let mut next = 0;
        let mut pieces = Vec::with_capacity(runs.len());
        for (source, offset, rows) in runs {
            if source != next {
                return None;
            }
            pieces.push(Piece { source: 0, groups: 1, stride: first, offset, rows });
            next = source.saturating_add(rows);
        }
        (next == first).then_some(pieces)
    }
}
