//! Whether the device says the same thing twice, and whether looking changes it (NUMERICS 2.7).
//!
//! ```text
//!   three plain runs ──bits equal?──▶ deterministic      run with taps ──bits equal to a plain one?──▶ taps are neutral
//! ```

use crate::tokens::top;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use trueup_runtime::{Entry, Logits, Observer, Result, Session, SessionOptions, Weights};

/// How often the device runs before it is looked at.
pub(crate) const RUNS: usize = 3;

/// What plain runs said.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RepeatReport {
    /// Plain runs of each prompt.
    pub runs: usize,
    /// Whether all plain runs gave the same bits.
    pub deterministic: bool,
    /// Largest difference of a logit between plain runs; null where one is no number.
    pub spread: Option<f64>,
    /// Whether the observed run gave the bits of a plain one.
    pub taps_neutral: bool,
    /// sha256 of the first plain run's logits, as little-endian f64.
    pub logits_sha256: String,
}

impl RepeatReport {
    /// Whether the device says the same with and without taps, or the difference is its own spread.
    pub fn passes(&self) -> bool {
        self.taps_neutral || !self.deterministic
    }
}

/// Logits of a run, one row for each id.
#[derive(Clone, Default, Debug)]
pub(crate) struct Run {
    rows: Vec<Vec<f64>>,
}

impl Run {
    /// Adds the rows of one step.
    pub fn add(&mut self, logits: &Logits) {
        self.rows.extend((0..logits.rows()).map(|row| logits.row(row).to_vec()));
    }

    /// Bit for bit equal; NaN are equal to themselves.
    pub fn same(&self, other: &Run) -> bool {
        let bits = |run: &Run| -> Vec<u64> { run.rows.iter().flatten().map(|logit| logit.to_bits()).collect() };
        bits(self) == bits(other)
    }

    /// Largest difference of a logit.
    fn distance(&self, other: &Run) -> f64 {
        let pairs = self.rows.iter().flatten().zip(other.rows.iter().flatten());
        pairs
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, |largest, distance| if distance <= largest { largest } else { distance })
    }

    /// The most likely token behind the last id.
    pub fn next(&self) -> u32 {
        self.rows.last().map_or(0, |row| top(row) as u32)
    }
}

/// All that one prompt's plain runs said.
#[derive(Clone, Debug)]
pub(crate) struct Repeats {
    pub deterministic: bool,
    pub spread: f64,
    pub first: Run,
    /// The ids that the device chose behind the prompt.
    pub chosen: Vec<u32>,
}

/// Runs `prompt` and `steps` more tokens several times without looking; the later runs are given the first one's choices.
pub(crate) fn repeat(
    weights: &Arc<Weights>,
    options: &SessionOptions,
    prompt: &[u32],
    steps: usize,
) -> Result<Repeats> {
    let (first, chosen) = plain(weights, options, prompt, steps, None)?;
    let mut repeats = Repeats { deterministic: true, spread: 0.0, first, chosen };
    for _ in 1..RUNS {
        let (run, _) = plain(weights, options, prompt, steps, Some(&repeats.chosen))?;
        repeats.deterministic &= run.same(&repeats.first);
        repeats.spread = repeats.spread.max(run.distance(&repeats.first));
    }
    Ok(repeats)
}

/// One run without looking, behind the prompt on the ids `given` or on its own choices; gives the logits and the ids.
pub(crate) fn plain(
    weights: &Arc<Weights>,
    options: &SessionOptions,
    prompt: &[u32],
    steps: usize,
    given: Option<&[u32]>,
) -> Result<(Run, Vec<u32>)> {
    let mut session = Session::new(weights.clone(), options)?;
    let mut run = Run::default();
    run.add(&compute(&mut session, prompt, None)?);
    let mut ids = Vec::with_capacity(steps);
    for step in 0..steps {
        let id = given.and_then(|given| given.get(step).copied()).unwrap_or_else(|| run.next());
        run.add(&compute(&mut session, &[id], None)?);
        ids.push(id);
    }
    Ok((run, ids))
}

/// Computes ids of the one sequence, with logits behind each.
pub(crate) fn compute(session: &mut Session, ids: &[u32], observer: Option<&mut dyn Observer>) -> Result<Logits> {
    let entries: Vec<Entry> =
        ids.iter().map(|token| Entry { token: *token, sequence: 0, wants_logits: true }).collect();
    session.compute(&entries, observer)
}

/// sha256 of the logits of runs, as little-endian f64, in hexadecimal.
pub(crate) fn hash<'a>(runs: impl Iterator<Item = &'a Run>) -> String {
    let mut hash = Sha256::new();
    for logit in runs.flat_map(|run| run.rows.iter().flatten()) {
        hash.update(logit.to_le_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(row: &[f64]) -> Run {
        Run { rows: vec![row.to_vec()] }
    }

    #[test]
    fn runs_are_compared_bit_for_bit() {
        assert!(run(&[1.0, f64::NAN]).same(&run(&[1.0, f64::NAN])));
        assert!(!run(&[0.0]).same(&run(&[-0.0])));
        assert_eq!(run(&[1.0, 5.0]).distance(&run(&[1.5, 4.0])), 1.0);
        assert!(run(&[1.0, f64::NAN]).distance(&run(&[1.0, 2.0])).is_nan());
    }

    #[test]
    fn the_hash_is_that_of_the_bytes() {
        // printf '' | sha256sum; printf '\0\0\0\0\0\0\0\0' | sha256sum
        assert!(hash([].iter()).starts_with("e3b0c44298fc1c14"));
        assert!(hash([run(&[0.0])].iter()).starts_with("af5570f5a1810b7a"));
    }
}
