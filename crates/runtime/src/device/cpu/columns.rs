//! A result `[rows, tokens]` split along its rows, so that threads write different rows of the same tokens.
//!
//! ```text
//!            rows 0 ... 15   16 ... 31
//! token 0    │ part 0       │ part 1      │ ...      a part: short slices at equal distances
//! token 1    │ part 0       │ part 1      │ ...
//! ```

use std::marker::PhantomData;
use std::ops::Range;

/// A result whose tokens are given out some at a time, each once.
pub(super) struct Outputs<'a> {
    cells: *mut f32,
    len: usize,
    given_cells: usize,
    places: Option<&'a [usize]>,
    of: PhantomData<&'a mut [f32]>,
}

/// Pieces of some tokens, first rows first.
pub(super) struct Columns<'a> {
    tokens: Tokens<'a>,
    rows: Range<usize>,
    width: usize,
}

/// Some rows of some tokens.
pub(super) struct Piece<'a> {
    tokens: Tokens<'a>,
    first: usize,
    count: usize,
}

/// Some tokens of a result.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    /// The first token, or, with places, the first token of the result.
    cells: *mut f32,
    places: Option<&'a [usize]>,
    stride: usize,
    count: usize,
    of: PhantomData<&'a mut [f32]>,
}

// SAFETY: as a `&mut [f32]`, which may go to another thread: the rows of a piece are no other's.
unsafe impl Send for Piece<'_> {}

impl<'a> Outputs<'a> {
    /// Tokens in the order of the result.
    pub fn in_order(cells: &'a mut [f32]) -> Outputs<'a> {
        Outputs { cells: cells.as_mut_ptr(), len: cells.len(), given_cells: 0, places: None, of: PhantomData }
    }

    /// Tokens in another order: token `i` is token `places[i]` of the result. Panics unless each place from 0 on occurs
    /// exactly once.
    pub fn in_places(cells: &'a mut [f32], places: &'a [usize]) -> Outputs<'a> {
        let mut is_known = vec![false; places.len()];
        for place in places {
            assert!(!std::mem::replace(&mut is_known[*place], true), "token {place} occurs twice");
        }
        Outputs { places: Some(places), ..Outputs::in_order(cells) }
    }

    /// The next tokens, of `rows` rows each, in pieces of `width` rows, the last perhaps of fewer. Panics if the result
    /// has fewer tokens.
    pub fn take(&mut self, tokens: usize, rows: usize, width: usize) -> Columns<'a> {
        assert!(rows > 0 && width > 0, "pieces of at least one row");
        let first = self.given_cells;
        let end = tokens.checked_mul(rows).and_then(|cells| first.checked_add(cells)).filter(|end| *end <= self.len);
        let whole = self.places.is_none_or(|places| places.len() * rows == self.len);
        let (Some(end), true) = (end, whole) else {
            panic!("{tokens} tokens of {rows} rows from cell {first} on, but the result has {} cells", self.len);
        };
        self.given_cells = end;
        let places = self.places.map(|places| &places[first / rows..end / rows]);
        // SAFETY: `first` is at most `len`.
        let cells = if places.is_none() { unsafe { self.cells.add(first) } } else { self.cells };
        Columns { tokens: Tokens { cells, places, stride: rows, count: tokens, of: PhantomData }, rows: 0..rows, width }
    }
}

impl<'a> Iterator for Columns<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let first = self.rows.start;
        let count = self.width.min(self.rows.len());
        self.rows.start += count;
        (count > 0).then_some(Piece { tokens: self.tokens, first, count })
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
        self.tokens.count
    }

    /// Its rows of one token.
    pub fn token(&mut self, token: usize) -> &mut [f32] {
        let Tokens { cells, places, stride, count, .. } = self.tokens;
        assert!(token < count, "token {token} of {count}");
        let place = places.map_or(token, |places| places[token]);
        // SAFETY: `Outputs::take` found that the result has these cells: without places, `count` tokens from `cells`
        // on; with them, `places` is part of a permutation of all tokens of the result. `first + count` is at most
        // `stride`. No other piece has these cells, because each token is given out once and each of its rows is in one
        // piece. Two slices of this piece cannot live at once, because it is borrowed.
        unsafe { std::slice::from_raw_parts_mut(cells.add(place * stride + self.first), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_in_one_piece_and_threads_may_write_them_at_once() {
        for (rows, tokens, width) in [(1, 1, 1), (16, 3, 16), (17, 2, 16), (40, 5, 16), (5, 1, 2), (3, 0, 2)] {
            let backwards: Vec<usize> = (0..tokens).rev().collect();
            for places in [None, Some(&backwards)] {
                let mut cells = vec![-1.0; rows * tokens];
                let mut outputs = match places {
                    None => Outputs::in_order(&mut cells),
                    Some(places) => Outputs::in_places(&mut cells, places),
                };
                let parts = [(0, tokens / 2), (tokens / 2, tokens - tokens / 2)];
                let parts = parts.map(|(start, count)| (start, outputs.take(count, rows, width)));
                std::thread::scope(|scope| {
                    for (start, columns) in parts {
                        assert_eq!(columns.len(), rows.div_ceil(width));
                        for mut piece in columns {
                            scope.spawn(move || {
                                for token in 0..piece.tokens() {
                                    let place = places.map_or(start + token, |places| places[start + token]);
                                    let first = piece.first() + rows * place;
                                    let cells = piece.token(token).iter_mut().enumerate();
                                    cells.for_each(|(i, cell)| *cell = (first + i) as f32);
                                }
                            });
                        }
                    }
                });
                assert!(cells.iter().enumerate().all(|(i, cell)| *cell == i as f32), "{rows} rows, {tokens} tokens");
            }
        }
    }

    #[test]
    #[should_panic(expected = "token 1 occurs twice")]
    fn a_token_cannot_be_given_out_twice() {
        Outputs::in_places(&mut [0.0; 9], &[1, 0, 1]);
    }

    #[test]
    #[should_panic(expected = "3 tokens of 4 rows from cell 0 on, but the result has 9 cells")]
    fn tokens_outside_the_result_are_refused() {
        Outputs::in_order(&mut [0.0; 9]).take(3, 4, 2);
    }
}
