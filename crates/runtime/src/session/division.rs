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
//! Positions and mask are inputs that follow from the ids. A prefix is computed in one batch. Another text reuses it
//! completely or not at all. The verifier has a second implementation (`verify/src/running.rs`).
//!
//! Source: Du et al. 2022, section 2.2, and the model code published with ChatGLM-6B.

use trueup_models::Prefix;

/// The prefix of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Division {
    /// Index of the first token after the prefix; `None` if the text has no prefix and attention is causal.
    end: Option<usize>,
    /// Index of the mark token, which is the position of all tokens after the prefix; 0 without a prefix.
    mark: usize,
}

impl Division {
    /// Finds the prefix in `ids`, the tokens of the text so far. A mark after the end also counts, as in the published
    /// program.
    pub fn new(prefix: &Prefix, ids: impl Iterator<Item = u32> + Clone) -> Division {
        let place = |id: u32| ids.clone().position(|other| other == id);
        let end = prefix.end_in(ids.clone());
        // Without a mark, the last token of the prefix takes its place.
        let mark_of =
            |end: usize| place(prefix.mark).or_else(|| place(prefix.other_mark)).unwrap_or(end.saturating_sub(1));
        Division { end, mark: end.map_or(0, mark_of) }
    }

    /// How many of the first `same` tokens, which are common to two texts with this prefix, have the same results in
    /// both. A prefix is reused completely or not at all, because its tokens attend to each other.
    pub fn common(&self, same: usize) -> usize {
        if self.end.is_none_or(|end| end < same) { same } else { 0 }
    }

    /// Position and block position of the token at an index of the text.
    pub fn positions(&self, place: usize) -> [usize; 2] {
        match self.end.and_then(|end| place.checked_sub(end)) {
            Some(behind) => [self.mark, behind + 1],
            None => [place, 0],
        }
    }

    /// Whether the token at index `place` attends to the token at index `other`.
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
