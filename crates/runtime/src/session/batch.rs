//! One batch: tokens with their places, and what the host fills in for them.
//!
//! ```text
//! entries              1 5 9 of sequence 0, then 7 of sequence 1, which holds 3 tokens already
//! positions            0 1 2   3
//! rows of the cache    0 1 2   context + 3
//! mask, token 1        0 0 -inf -inf ...          sees positions 0 and 1 of its own sequence
//! ```

use super::division::Division;
use trueup_graph::Input;
use trueup_models::Prefix;

/// A token to be computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its id.
    pub token: u32,
    /// The sequence it continues.
    pub sequence: usize,
    /// Whether the logits after it are requested.
    pub wants_logits: bool,
}

/// A token of a batch and its place in its sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenPlace {
    /// Its id.
    pub token: u32,
    /// The sequence it belongs to.
    pub sequence: usize,
    /// Its position there, from 0.
    pub position: usize,
}

/// Plans are made for multiples of this many positions.
pub const CAPACITY_UNIT: usize = 64;

/// One batch, placed.
pub(super) struct PlacedBatch {
    pub tokens: Vec<TokenPlace>,
    /// The text of each token, where texts have a beginning that sees itself.
    pub divisions: Vec<Division>,
    /// Which tokens' logits are computed; at least one.
    pub outputs: Vec<usize>,
    /// Positions of the cache that are looked at.
    pub capacity: usize,
    /// Sequences that have equally many of the tokens, which follow each other, if the model has recurrent states; else
    /// 1.
    pub streams: usize,
}

impl PlacedBatch {
    /// Places entries behind the tokens that each sequence holds. `prefix` says how texts are divided whose beginning
    /// sees itself.
    pub fn new(entries: &[Entry], held: &[Vec<u32>], prefix: Option<&Prefix>) -> PlacedBatch {
        let mut lengths: Vec<usize> = held.iter().map(Vec::len).collect();
        let mut tokens = Vec::with_capacity(entries.len());
        for entry in entries {
            let length = &mut lengths[entry.sequence];
            tokens.push(TokenPlace { token: entry.token, sequence: entry.sequence, position: *length });
            *length += 1;
        }
        let mut outputs: Vec<usize> = (0..entries.len()).filter(|index| entries[*index].wants_logits).collect();
        if outputs.is_empty() {
            outputs.push(entries.len() - 1);
        }
        let divisions = prefix.map_or_else(Vec::new, |prefix| divisions(entries, held, prefix));
        let longest = tokens.iter().map(|token| token.position + 1).max().unwrap_or(1);
        PlacedBatch { tokens, divisions, outputs, capacity: longest.next_multiple_of(CAPACITY_UNIT), streams: 1 }
    }

    /// The bytes of one input. `context` is the room of each sequence in the cache, `window` the size of the sliding
    /// window.
    pub fn input_bytes(&self, input: Input, context: usize, window: Option<usize>) -> Vec<u8> {
        let each = |value: fn(&TokenPlace) -> usize| integers(self.tokens.iter().map(value));
        match input {
            Input::Tokens => each(|token| token.token as usize),
            Input::Positions => each(|token| token.position),
            Input::PositionPairs => {
                let row = |which: usize| self.divided().map(move |(token, text)| text.positions(token.position)[which]);
                integers(row(0).chain(row(1)))
            }
            Input::Sequences => each(|token| token.sequence),
            Input::KvRows => integers(self.tokens.iter().map(|token| token.sequence * context + token.position)),
            Input::OutputRows => integers(self.outputs.iter().copied()),
            Input::StateSources => {
                let slot = |token: &TokenPlace| if token.position == 0 { 0 } else { token.sequence + 1 };
                integers(self.firsts().map(slot))
            }
            Input::StateTargets => integers(self.firsts().map(|token| token.sequence + 1)),
            Input::Mask => self.mask(usize::MAX, |_| 0.0),
            Input::MaskWindow => self.mask(window.unwrap_or(usize::MAX), |_| 0.0),
            Input::MaskPrefix => self.mask_prefix(),
            // Exact up to 2^24, far beyond what any score survives.
            Input::MaskDistance => self.mask(usize::MAX, |distance| -(distance as f32)),
        }
    }

    /// The first token of each sequence of the batch.
    fn firsts(&self) -> impl Iterator<Item = &TokenPlace> {
        self.tokens.iter().step_by((self.tokens.len() / self.streams).max(1))
    }

    /// Each token with its text.
    fn divided(&self) -> impl Iterator<Item = (&TokenPlace, &Division)> {
        self.tokens.iter().zip(&self.divisions)
    }

    /// f32 `[capacity, tokens]`: 0 for what a token sees, -10000 elsewhere, as the published model code has it.
    fn mask_prefix(&self) -> Vec<u8> {
        let value = |seen: bool| if seen { 0.0 } else { HIDDEN };
        let row = |(token, text): (&TokenPlace, &Division)| {
            let (place, text) = (token.position, *text);
            (0..self.capacity).flat_map(move |other| value(text.sees(place, other)).to_le_bytes())
        };
        self.divided().flat_map(row).collect()
    }

    /// f32 `[capacity, tokens]`: for the `window` positions up to the token's own what is said of their distance, else
    /// -inf.
    fn mask(&self, window: usize, shown: fn(usize) -> f32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.tokens.len() * self.capacity * size_of::<f32>());
        for token in &self.tokens {
            for position in 0..self.capacity {
                let distance = token.position.checked_sub(position).filter(|distance| *distance < window);
                bytes.extend(distance.map_or(f32::NEG_INFINITY, shown).to_le_bytes());
            }
        }
        bytes
    }
}

/// What is added to scores of positions that a token does not see, where texts have a beginning that sees itself.
const HIDDEN: f32 = -10_000.0;

/// The text of each entry: what its sequence holds and what this batch puts behind it.
fn divisions(entries: &[Entry], held: &[Vec<u32>], prefix: &Prefix) -> Vec<Division> {
    let of = |sequence: usize| {
        let new = entries.iter().filter(move |entry| entry.sequence == sequence).map(|entry| entry.token);
        Division::new(prefix, held[sequence].iter().copied().chain(new))
    };
    let mut known: Vec<Option<Division>> = vec![None; held.len()];
    entries.iter().map(|entry| *known[entry.sequence].get_or_insert_with(|| of(entry.sequence))).collect()
}

/// Numbers as i32; the session made sure that they fit.
fn integers(values: impl Iterator<Item = usize>) -> Vec<u8> {
    values.flat_map(|value| (value as i32).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    #[test]
    fn tokens_continue_their_sequences() {
        let entry = |token, sequence| Entry { token, sequence, wants_logits: false };
        let held = [vec![], vec![0; 63]];
        let batch = PlacedBatch::new(&[entry(1, 0), entry(7, 1), entry(5, 0), entry(8, 1)], &held, None);
        assert_eq!(batch.tokens.iter().map(|token| token.position).collect::<Vec<_>>(), [0, 63, 1, 64]);
        assert_eq!(batch.outputs, [3], "one row is computed even when none is wanted");
        assert_eq!(batch.capacity, 128);
        assert_eq!(batch.input_bytes(Input::KvRows, 200, None), integers([0, 263, 1, 264].into_iter()));
        assert_eq!(batch.input_bytes(Input::Sequences, 200, None), integers([0, 1, 0, 1].into_iter()));
    }

    #[test]
    fn masks_show_the_past_and_the_window_less_of_it() {
        let batch = PlacedBatch::new(&[Entry { token: 1, sequence: 0, wants_logits: true }], &[vec![0; 3]], None);
        let seen = |bytes: Vec<u8>| (0..64).filter(|j| floats(&bytes)[*j] == 0.0).collect::<Vec<_>>();
        assert_eq!(seen(batch.input_bytes(Input::Mask, 64, Some(2))), [0, 1, 2, 3]);
        assert_eq!(seen(batch.input_bytes(Input::MaskWindow, 64, Some(2))), [2, 3]);
        let distances = floats(&batch.input_bytes(Input::MaskDistance, 64, None));
        assert_eq!(distances[..5], [-3.0, -2.0, -1.0, 0.0, f32::NEG_INFINITY]);
        let masked = floats(&batch.input_bytes(Input::Mask, 64, None))[4];
        assert_eq!(masked, f32::NEG_INFINITY);
    }

    /// Two texts in one batch: the prompt of the first sees itself, the second goes on behind its end.
    #[test]
    fn beginnings_see_themselves() {
        let prefix = Prefix { end: 90, mark: 91, other_mark: 92 };
        let entry = |token, sequence| Entry { token, sequence, wants_logits: false };
        let held = [vec![], vec![7, 91, 90]];
        let entries = [entry(5, 0), entry(8, 1), entry(91, 0), entry(90, 0)];
        let batch = PlacedBatch::new(&entries, &held, Some(&prefix));
        let pairs = batch.input_bytes(Input::PositionPairs, 64, None);
        assert_eq!(pairs, integers([0, 1, 1, 1, 0, 2, 0, 1].into_iter()));
        let mask = floats(&batch.input_bytes(Input::MaskPrefix, 64, None));
        let seen = |row: usize| (0..64).filter(|j| mask[64 * row + j] == 0.0).collect::<Vec<_>>();
        assert_eq!([seen(0), seen(1), seen(2), seen(3)], [vec![0, 1], vec![0, 1, 2, 3], vec![0, 1], vec![0, 1, 2]]);
        assert!(mask.iter().all(|value| *value == 0.0 || *value == -10_000.0));
    }
}
