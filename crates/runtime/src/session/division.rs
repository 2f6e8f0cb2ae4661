//! Prefix language models: the prefix of a text attends to itself in both directions. Finds its end and the two
//! positions of each token.
//!
//! ```text
//! ids              w  w  w  mark | end  a  a          w: prompt, a: answer
//! position         0  1  2  3    | 3    3  3          that of the mark from the end token on
//! block position   0  0  0  0    | 1    2  3
//! attends to       all of these  |  the tokens before it
//! ```
//!
//! Positions and mask are inputs that follow from the ids. A prefix is computed in one batch, and no part of it is
//! reused for another text. The verifier has a second implementation (`verify/src/running.rs`).
//!
//! Source: Du et al. 2022, section 2.2, and the model code published with ChatGLM-6B.

use trueup_models::Prefix;

/// What is known of the text that a token belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Division {
    /// Where the first token behind the beginning stands; `None` in a text without one, of which every token sees what
    /// is before it.
    end: Option<usize>,
    /// Where the mark stands that positions from the end on are those of; 0 where there is no end.
    mark: usize,
}

impl Division {
    /// Of a text with these ids: all that are there when a token is computed. Marks behind the end count too, as in the
    /// published program.
    pub fn new(prefix: &Prefix, ids: impl Iterator<Item = u32> + Clone) -> Division {
        let place = |id: u32| ids.clone().position(|other| other == id);
        let end = prefix.end_in(ids.clone());
        // A text without a mark ends its beginning where the mark would stand.
        let mark_of =
            |end: usize| place(prefix.mark).or_else(|| place(prefix.other_mark)).unwrap_or(end.saturating_sub(1));
        Division { end, mark: end.map_or(0, mark_of) }
    }

    /// How many of `same` tokens that two texts of this division have in common are computed in both alike, one of them
    /// only as far as it is held: a beginning that sees itself is the same as a whole or not at all.
    pub fn common(&self, same: usize) -> usize {
        if self.end.is_none_or(|end| end < same) { same } else { 0 }
    }

    /// Position and block position of the token at a place of the text.
    pub fn positions(&self, place: usize) -> [usize; 2] {
        match self.end.and_then(|end| place.checked_sub(end)) {
            Some(behind) => [self.mark, behind + 1],
            None => [place, 0],
        }
    }

    /// Whether the token at a place sees another one.
    pub fn sees(&self, place: usize, other: usize) -> bool {
        other <= place || self.end.is_some_and(|end| other < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: Prefix = Prefix { end: 90, mark: 91, other_mark: 92 };

    /// Positions by `get_position_ids` of the model code published with ChatGLM-6B, for the text of this page.
    #[test]
    fn positions_and_sight_of_a_prompt_with_its_answer() {
        let division = Division::new(&PREFIX, [5, 6, 92, 91, 90, 91, 8].into_iter());
        let positions: Vec<[usize; 2]> = (0..7).map(|place| division.positions(place)).collect();
        assert_eq!(positions, [[0, 0], [1, 0], [2, 0], [3, 0], [3, 1], [3, 2], [3, 3]]);
        let seen = |place| (0..7).filter(|other| division.sees(place, *other)).collect::<Vec<_>>();
        assert_eq!(seen(0), [0, 1, 2, 3]);
        assert_eq!(seen(3), [0, 1, 2, 3]);
        assert_eq!(seen(4), [0, 1, 2, 3, 4]);
        assert_eq!(seen(6), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn the_other_mark_and_texts_without_any() {
        assert_eq!(Division::new(&PREFIX, [92, 5, 90].into_iter()).positions(2), [0, 1]);
        assert_eq!(Division::new(&PREFIX, [4, 5, 90].into_iter()).positions(2), [1, 1]);
        let none = Division::new(&PREFIX, [4, 5, 91].into_iter());
        assert_eq!((none.positions(2), none.sees(0, 1)), ([2, 0], false));
        assert_eq!(Division::new(&PREFIX, [90].into_iter()).positions(0), [0, 1]);
    }
}
