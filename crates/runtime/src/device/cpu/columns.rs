//! A result `[rows, tokens]` split along its rows, so that threads write different rows of the same tokens.
//!
//! ```text
//!            rows 0 ... 15   16 ... 31
//! token 0    │ part 0       │ part 1      │ ...      a part: short slices at equal distances
//! token 1    │ part 0       │ part 1      │ ...
//! ```

use std::marker::PhantomData;
use std::ops::Range;

/// The pieces, first rows first.
pub(super) struct Columns<'a> {
    cells: *mut f32,
    rows: Range<usize>,
    stride: usize,
    tokens: usize,
    width: usize,
    of: PhantomData<&'a mut [f32]>,
}

/// Some rows of all tokens.
pub(super) struct Piece<'a> {
    cells: *mut f32,
    first: usize,
    count: usize,
    stride: usize,
    tokens: usize,
    of: PhantomData<&'a mut [f32]>,
}

// SAFETY: as a `&mut [f32]`, which may go to another thread: the rows of a piece are no other's.
unsafe impl Send for Piece<'_> {}

impl<'a> Columns<'a> {
    /// Pieces of `width` rows, the last perhaps of fewer, of cells that are `rows` for each token. Panics where a token
    /// is not whole.
    pub fn new(cells: &'a mut [f32], rows: usize, width: usize) -> Columns<'a> {
        assert!(rows > 0 && width > 0 && cells.len().is_multiple_of(rows), "whole tokens of at least one row");
        let tokens = cells.len() / rows;
        Columns { cells: cells.as_mut_ptr(), rows: 0..rows, stride: rows, tokens, width, of: PhantomData }
    }
}

impl<'a> Iterator for Columns<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let first = self.rows.start;
        let count = self.width.min(self.rows.len());
        self.rows.start += count;
        let Columns { cells, stride, tokens, of, .. } = *self;
        (count > 0).then_some(Piece { cells, first, count, stride, tokens, of })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let pieces = self.rows.len().div_ceil(self.width);
        (pieces, Some(pieces))
    }
}

impl ExactSizeIterator for Columns<'_> {}

impl Piece<'_> {
    /// The first of its rows.
    pub fn first(&self) -> usize {
        self.first
    }

    /// How many rows it has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many tokens there are.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Its rows of one token.
    pub fn token(&mut self, token: usize) -> &mut [f32] {
        assert!(token < self.tokens, "token {token} of {}", self.tokens);
        // SAFETY: `Columns::new` found `tokens` times `stride` cells, `first + count` is at most `stride`, and no other
        // piece has these rows; two slices of this piece cannot live at once, for it is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.cells.add(token * self.stride + self.first), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_in_one_piece_and_threads_may_write_them_at_once() {
        for (rows, tokens, width) in [(1, 1, 1), (16, 3, 16), (17, 2, 16), (40, 5, 16), (5, 1, 2), (3, 0, 2)] {
            let mut cells = vec![-1.0; rows * tokens];
            let columns = Columns::new(&mut cells, rows, width);
            assert_eq!(columns.len(), rows.div_ceil(width));
            std::thread::scope(|scope| {
                for mut piece in columns {
                    scope.spawn(move || {
                        for token in 0..tokens {
                            let first = piece.first() + rows * token;
                            piece.token(token).iter_mut().enumerate().for_each(|(i, cell)| *cell = (first + i) as f32);
                        }
                    });
                }
            });
            assert!(cells.iter().enumerate().all(|(i, cell)| *cell == i as f32), "{rows} rows, {tokens} tokens");
        }
    }
}
