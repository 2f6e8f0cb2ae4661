//! All prompts in one batch: finds kernels that mix up sequences, cache rows or output rows.
//!
//! ```text
//!   prompt 0   a b c d e f g              alone: logits after each token
//!   prompt 1   p q r
//!   batch      p q r a b c d e f g        sequences 1 and 0, logits after the last tokens r and g only
//!   step 1     s h                        one token of each, at positions 3 and 7
//! ```
//!
//! The sequences are prefixes of the prompts with different lengths, in reverse order. The further tokens are those of
//! the separate runs. So each row of logits has a counterpart there, and a device that declares the same bits in any
//! batch (docs/numerics.md#repetition-and-batches) must reproduce it. A single prompt is combined with its own first
//! half. If all rows match runs that were compared with the reference, it does not run freely on the batch.

use crate::repeat::Run;
use crate::report::Outcome;
use crate::running::divided;
use serde::Serialize;
use std::sync::Arc;
use trueup_models::{ModelResult, ModelSpec, Prefix};
use trueup_runtime::{Entry, Result, Session, SessionOptions, Weights};

/// Prompts that are computed together at most.
const SEQUENCES_MAX: usize = 16;

/// Tokens of all prompts together at most: enough for every index to matter, and few enough for the oracle.
const TOKENS_MAX: usize = 128;

/// Steps of all sequences together at most.
const STEPS_MAX: usize = 2;

/// What was computed together, and whether it made a difference.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BatchReport {
    /// The sequences, in the order of their numbers.
    pub sequences: Vec<SequenceReport>,
    /// The numbers of the sequences in the order of their tokens in the batch.
    pub order: Vec<usize>,
    /// Decode steps after the prompts, with one token per sequence.
    pub steps: usize,
    /// Whether all logits have the bits that they have with each sequence alone; null on a device that does not repeat
    /// itself.
    pub invariant: Option<bool>,
    /// Whether the device promises that.
    pub promised: bool,
    /// The first logits with other bits.
    pub first_difference: Option<BatchDifference>,
}

/// A sequence of the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SequenceReport {
    /// The prompt whose beginning it is, counted from 0.
    pub prompt: usize,
    /// Tokens of it that were computed at once.
    pub tokens: usize,
}

/// Logits that are others in a batch than alone.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct BatchDifference {
    /// The sequence.
    pub sequence: usize,
    /// The position of the token that they follow.
    pub position: usize,
    /// The largest difference of a logit; null where one is no number.
    pub largest: Option<f64>,
}

impl BatchReport {
    /// What the batch says by itself: bits that depend on it are a fault of a device that promises otherwise.
    pub fn outcome(&self) -> Outcome {
        if self.promised && self.invariant == Some(false) { Outcome::Fail } else { Outcome::Pass }
    }
}

/// One sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sequence {
    /// The prompt whose beginning it is.
    pub prompt: usize,
    /// Tokens that are computed at once, and those of the steps.
    pub ids: Vec<u32>,
    /// How many are computed at once.
    pub length: usize,
    /// What the encoder reads before; empty in a model without one.
    pub source: Vec<u32>,
}

/// What is computed together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PromptBatch {
    pub sequences: Vec<Sequence>,
    pub steps: usize,
    /// Whether each sequence has one row, which is number 0 of its run alone.
    is_pooled: bool,
}

/// What a model needs to know about the texts of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchRules<'a> {
    prefix: Option<&'a Prefix>,
    /// Whether tokens may follow what was computed.
    continues: bool,
    is_pooled: bool,
}

impl<'a> BatchRules<'a> {
    /// The rules of a model.
    pub fn of(spec: &'a ModelSpec) -> BatchRules<'a> {
        let is_pooled = matches!(spec.result(), ModelResult::Pooled(_));
        BatchRules { prefix: spec.prefix(), continues: !spec.is_bidirectional(), is_pooled }
    }
}

impl PromptBatch {
    /// The batch of prompts, each of which goes on as its continuation says; no sequence grows beyond `room` tokens.
    /// Texts whose beginning sees itself are cut where the prompt's division is that of the part too: any other part
    /// would be another text.
    pub fn new(prompts: &[Vec<u32>], continuations: &[Vec<u32>], room: usize, rules: BatchRules) -> PromptBatch {
        let BatchRules { prefix, continues, is_pooled } = rules;
        let sources: Vec<usize> = if prompts.len() == 1 { vec![0, 0] } else { (0..prompts.len()).collect() };
        let sources = &sources[..sources.len().min(SEQUENCES_MAX)];
        let most = TOKENS_MAX / sources.len().max(1);
        let mut sequences: Vec<Sequence> = Vec::with_capacity(sources.len());
        for (number, prompt) in sources.iter().copied().enumerate() {
            let mut ids = prompts[prompt].clone();
            ids.extend(continuations.get(prompt).into_iter().flatten());
            let halved = prompts.len() == 1 && number == 1;
            if halved && ids.len() == 1 && room > 1 {
                ids.push(ids[0]);
            }
            let whole = prompts[prompt].len().min(most);
            let (least, most_at_once) = at_once(&ids, prompts[prompt].len(), prefix);
            let wanted = if halved { whole.div_ceil(2) } else { whole }.max(least);
            let free = |length: &usize| sequences.iter().all(|other| other.length != *length);
            let length = (least..=wanted).rev().chain(wanted + 1..=most_at_once).find(free).unwrap_or(wanted);
            sequences.push(Sequence { prompt, ids, length, source: Vec::new() });
        }
        let steps = sequences.iter().map(|sequence| sequence.ids.len() - sequence.length).min().unwrap_or(0);
        let steps = if continues { steps.min(STEPS_MAX) } else { 0 };
        sequences.iter_mut().for_each(|sequence| sequence.ids.truncate(sequence.length + steps));
        PromptBatch { sequences, steps, is_pooled }
    }

    /// The same batch in a model whose encoder reads the text of each prompt first; of the only prompt, the second
    /// sequence has the first half.
    pub fn with_sources(mut self, sources: &[Vec<u32>]) -> PromptBatch {
        for (number, sequence) in self.sequences.iter_mut().enumerate() {
            let Some(source) = sources.get(sequence.prompt) else { continue };
            let is_halved = sources.len() == 1 && number == 1;
            let length = if is_halved { source.len().div_ceil(2) } else { source.len() };
            sequence.source = source[..length].to_vec();
        }
        self
    }

    /// A session with room for the batch and no more.
    pub fn session_options(&self, options: &SessionOptions) -> SessionOptions {
        let context = self.sequences.iter().map(|sequence| sequence.ids.len().max(sequence.source.len())).max();
        SessionOptions { context, sequences: self.sequences.len(), ..*options }
    }

    /// What the encoder reads for each sequence, by its number; nothing in a model without one.
    pub fn sources(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let sources = self.sequences.iter().map(|sequence| sequence.source.as_slice()).enumerate();
        sources.filter(|(_, source)| !source.is_empty())
    }

    /// Numbers of the sequences in the order of their tokens.
    pub fn order(&self) -> impl Iterator<Item = usize> {
        (0..self.sequences.len()).rev()
    }

    /// The tokens of a step; step 0 is the prompts. Logits are wanted behind the last of each sequence.
    pub fn entries(&self, step: usize) -> Vec<Entry> {
        let of_sequence = |number: usize| {
            let Sequence { ids, length, .. } = &self.sequences[number];
            let range = if step == 0 { 0..*length } else { length + step - 1..length + step };
            let last = range.end - 1;
            range.map(move |place| Entry { token: ids[place], sequence: number, wants_logits: place == last })
        };
        self.order().flat_map(of_sequence).collect()
    }

    /// For each row of logits of a step, its sequence and the position of the token that it is behind.
    pub fn rows(&self, step: usize) -> impl Iterator<Item = (usize, usize)> {
        let position = |number: usize| if self.is_pooled { 0 } else { self.sequences[number].length - 1 };
        self.order().map(move |number| (number, position(number) + step))
    }

    /// The length of each sequence after the last step.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        self.sequences.iter().map(|sequence| sequence.ids.len())
    }

    /// A session for the batch.
    pub fn session(&self, weights: &Arc<Weights>, options: &SessionOptions) -> Result<Session> {
        let mut session = Session::new(weights.clone(), options)?;
        self.lengths().enumerate().for_each(|(sequence, length)| session.expect_length(sequence, length));
        Ok(session)
    }

    /// One run without looking.
    pub fn plain(&self, weights: &Arc<Weights>, options: &SessionOptions) -> Result<Run> {
        let mut session = self.session(weights, options)?;
        for (number, source) in self.sources() {
            session.encode(number, source, None)?;
        }
        let mut run = Run::default();
        for step in 0..=self.steps {
            run.add(&session.compute(&self.entries(step), None)?);
        }
        Ok(run)
    }

    /// The first row of `together` that has other bits than its twin in the runs of the sequences alone.
    pub fn first_difference(&self, together: &Run, alone: &[Arc<Run>]) -> Option<BatchDifference> {
        let rows = (0..=self.steps).flat_map(|step| self.rows(step));
        let differs = |(row, (sequence, position)): (usize, (usize, usize))| {
            let difference = |largest| Some(BatchDifference { sequence, position, largest });
            let (Some(found), Some(expected)) = (together.row(row), alone[sequence].row(position)) else {
                return difference(None);
            };
            let (found, expected) = (Run::of(found), Run::of(expected));
            let largest = found.distance(&expected);
            if found.same(&expected) { None } else { difference(largest.is_finite().then_some(largest)) }
        };
        rows.enumerate().find_map(differs)
    }

    /// What was computed, and the finding.
    pub fn report(&self, difference: Option<Option<BatchDifference>>, promised: bool) -> BatchReport {
        let sequence = |sequence: &Sequence| SequenceReport { prompt: sequence.prompt, tokens: sequence.length };
        BatchReport {
            sequences: self.sequences.iter().map(sequence).collect(),
            order: self.order().collect(),
            steps: self.steps,
            invariant: difference.map(|difference| difference.is_none()),
            promised,
            first_difference: difference.flatten(),
        }
    }
}

/// The least and the most tokens of a text that can be computed at once as they are in the run alone, which computes
/// its prompt of `prompt` tokens at once and the others one by one. A division changes with the tokens that decide it,
/// and never back.
fn at_once(ids: &[u32], prompt: usize, prefix: Option<&Prefix>) -> (usize, usize) {
    let Some(prefix) = prefix else { return (1, ids.len()) };
    let alone = divided(prefix, &ids[..prompt]);
    let is_as_alone = |length: &usize| divided(prefix, &ids[..*length]) == alone;
    let least = (1..=prompt).rev().take_while(is_as_alone).last().unwrap_or(prompt);
    (least, (prompt..=ids.len()).take_while(is_as_alone).last().unwrap_or(prompt))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: BatchRules = BatchRules { prefix: None, continues: true, is_pooled: false };

    fn with(prefix: &Prefix) -> BatchRules<'_> {
        BatchRules { prefix: Some(prefix), ..PLAIN }
    }

    /// Whole texts, of which nothing follows; the second is half of the only prompt.
    #[test]
    fn texts_of_an_encoder_are_not_continued() {
        let rules = BatchRules { continues: false, is_pooled: true, ..PLAIN };
        let batch = PromptBatch::new(&[vec![1, 2, 3, 4, 5]], &[vec![]], 64, rules);
        assert_eq!((lengths(&batch), batch.steps), (vec![5, 3], 0));
        assert!(batch.sequences.iter().all(|sequence| sequence.ids.len() == sequence.length));
        assert_eq!(batch.rows(0).collect::<Vec<_>>(), [(1, 0), (0, 0)]);
    }

    fn lengths(batch: &PromptBatch) -> Vec<usize> {
        batch.sequences.iter().map(|sequence| sequence.length).collect()
    }

    #[test]
    fn prompts_stand_in_reverse_with_logits_behind_their_ends() {
        let batch = PromptBatch::new(&[vec![1, 2, 3], vec![4]], &[vec![7, 8, 9], vec![5, 6, 7]], 64, PLAIN);
        let plain = |step| -> Vec<(u32, usize, bool)> {
            batch.entries(step).iter().map(|entry| (entry.token, entry.sequence, entry.wants_logits)).collect()
        };
        assert_eq!(plain(0), [(4, 1, true), (1, 0, false), (2, 0, false), (3, 0, true)]);
        assert_eq!(plain(1), [(5, 1, true), (7, 0, true)]);
        assert_eq!(plain(2), [(6, 1, true), (8, 0, true)]);
        assert_eq!(batch.steps, STEPS_MAX);
        assert_eq!(batch.rows(1).collect::<Vec<_>>(), [(1, 1), (0, 3)]);
    }

    #[test]
    fn sequences_have_different_lengths_where_that_can_be() {
        let cases = [
            (vec![vec![1; 9]], 3, vec![9, 5], 2),
            (vec![vec![1; 500]], 0, vec![64, 32], 2),
            (vec![vec![1]], 3, vec![1, 2], 2),
            (vec![vec![1]], 0, vec![1, 2], 0),
            (vec![vec![1; 4], vec![2; 4]], 2, vec![4, 3], 2),
            (vec![vec![1], vec![2]], 2, vec![1, 2], 1),
            (vec![vec![1; 3], vec![2; 9]], 1, vec![3, 9], 1),
        ];
        for (prompts, steps, expected, joint) in cases {
            let batch = PromptBatch::new(&prompts, &vec![vec![3; steps]; prompts.len()], 500, PLAIN);
            assert_eq!(lengths(&batch), expected);
            let known = |sequence: &Sequence| sequence.ids.len() == sequence.length + batch.steps;
            assert!(batch.sequences.iter().all(known) && batch.steps == joint, "{batch:?}");
        }
    }

    #[test]
    fn many_prompts_are_cut_and_a_context_of_one_token_is_kept() {
        let many = PromptBatch::new(&vec![vec![1; 100]; 40], &vec![vec![]; 40], 200, PLAIN);
        assert_eq!(many.sequences.len(), SEQUENCES_MAX);
        assert!(lengths(&many).iter().sum::<usize>() <= TOKENS_MAX + SEQUENCES_MAX * SEQUENCES_MAX);
        let narrow = PromptBatch::new(&[vec![1]], &[vec![]], 1, PLAIN);
        assert_eq!(lengths(&narrow), [1, 1]);
    }

    #[test]
    fn other_bits_fail_only_where_they_were_promised() {
        let batch = PromptBatch::new(&[vec![1, 2], vec![3]], &[vec![], vec![]], 64, PLAIN);
        let (a, b) = (Run::of(&[1.0, 2.0]), Run::of(&[3.0, 4.0]));
        let together = Run::of_rows(&[&[3.0, 4.0], &[1.0, 2.5]]);
        let alone = [Arc::new(Run::of_rows(&[&[0.0, 0.0], &[1.0, 2.0]])), Arc::new(b.clone())];
        assert!(!a.same(&b));
        let difference = batch.first_difference(&together, &alone);
        assert_eq!(difference, Some(BatchDifference { sequence: 0, position: 1, largest: Some(0.5) }));
        for (found, promised, outcome) in [
            (Some(difference), true, Outcome::Fail),
            (Some(difference), false, Outcome::Pass),
            (Some(None), true, Outcome::Pass),
            (None, true, Outcome::Pass),
        ] {
            assert_eq!(batch.report(found, promised).outcome(), outcome);
        }
    }

    #[test]
    fn beginnings_that_see_themselves_stay_whole() {
        let prefix = Prefix { end: 9, mark: 8, other_mark: 7 };
        let batch = PromptBatch::new(&[vec![1, 2, 8, 9]], &[vec![5, 6, 7]], 64, with(&prefix));
        assert_eq!(lengths(&batch), [4, 5]);
        assert_eq!(batch.steps, 2);
        let batch = PromptBatch::new(&[vec![8, 9, 3, 4, 5, 6], vec![4; 90]], &[vec![], vec![]], 99, with(&prefix));
        assert_eq!(lengths(&batch), [6, 64]);
    }

    #[test]
    fn texts_are_cut_where_their_division_is_that_of_the_prompt() {
        let prefix = Prefix { end: 9, mark: 8, other_mark: 7 };
        for (prompt, continuation, expected) in [
            // Without an end, and then as far as the run's own choices have none.
            (vec![1, 2, 3], vec![4, 5], (1, 5)),
            (vec![1, 2, 3], vec![4, 9, 5], (1, 4)),
            (vec![8, 2, 3], vec![9, 5], (1, 3)),
            // The end, and what is told of the mark before it.
            (vec![1, 9, 3, 4], vec![5], (2, 5)),
            (vec![8, 1, 9, 3], vec![8, 9], (3, 6)),
            // A mark behind the end moves the other one's place, or that of none.
            (vec![7, 1, 9, 8, 2], vec![3], (4, 6)),
            (vec![1, 9, 2, 7, 3], vec![8, 4], (4, 5)),
            (vec![7, 9, 2], vec![3, 8, 8], (2, 4)),
            // No mark at all.
            (vec![1, 9, 2], vec![3], (2, 4)),
        ] {
            let ids = [&prompt[..], &continuation].concat();
            assert_eq!(at_once(&ids, prompt.len(), Some(&prefix)), expected, "{prompt:?} {continuation:?}");
            assert_eq!(at_once(&ids, prompt.len(), None), (1, ids.len()));
        }
        let batch = PromptBatch::new(&[vec![7, 9, 2]], &[vec![3, 8, 8]], 64, with(&prefix));
        assert_eq!((lengths(&batch), batch.steps), (vec![3, 2], 2));
    }
}
