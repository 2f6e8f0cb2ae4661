//! Whether the device repeats its results, and whether observing it changes them
//! (docs/numerics.md#repetition-and-batches).
//!
//! ```text
//!   three plain runs ──bits equal?──▶ deterministic      run with taps ──bits equal to a plain one?──▶ taps are neutral
//! ```

use crate::operand;
use crate::report::Outcome;
use crate::tokens::{TokenReport, top};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use trueup_formats::hexadecimal;
use trueup_runtime::{Entry, HostTensor, Logits, Observer, Result, Seen, Session, SessionOptions, Weights};

/// How often the device runs before it is looked at.
pub(crate) const RUNS: usize = 3;

/// What plain runs said.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RepeatReport {
    /// Plain runs of each prompt, and of the batch of all.
    pub runs: usize,
    /// Whether all plain runs gave the same bits.
    pub deterministic: bool,
    /// Largest difference of a logit between runs on the same tokens; null where one is no number.
    pub spread: Option<f64>,
    /// Plain runs with logits that are no numbers.
    pub not_finite: usize,
    /// Whether the observed runs gave the bits of plain ones; true where a device does not repeat itself, whose
    /// observed runs count in `spread` instead.
    pub taps_neutral: bool,
    /// sha256 of the first plain run's logits, as little-endian f64.
    pub logits_sha256: String,
}

impl RepeatReport {
    /// What the repetitions say by themselves. A device that does not repeat itself is no worse for that while two of
    /// its runs are no further apart than its error of logits explains; beyond, or with NaN in some runs, it is wrong.
    /// So is one that repeats itself but for being observed.
    pub fn outcome(&self, tokens: &TokenReport) -> Outcome {
        if self.deterministic {
            return if self.taps_neutral { Outcome::Pass } else { Outcome::Fail };
        }
        let apart = tokens.tie_limit;
        let wild = self.spread.is_none_or(|spread| spread > apart);
        match (self.not_finite > 0 || wild, tokens.reference_not_finite) {
            (false, _) => Outcome::Pass,
            (true, 0) => Outcome::Fail,
            (true, _) => Outcome::Inconclusive,
        }
    }
}

/// Logits of a run, one row for each id.
#[derive(Clone, Default, Debug)]
pub(crate) struct Run {
    rows: Vec<Vec<f64>>,
}

impl Run {
    /// A run of one row.
    pub fn of(row: &[f64]) -> Run {
        Run::of_rows(&[row])
    }

    /// A run of these rows.
    pub fn of_rows(rows: &[&[f64]]) -> Run {
        Run { rows: rows.iter().map(|row| row.to_vec()).collect() }
    }

    /// Adds the rows of one step.
    pub fn add(&mut self, logits: &Logits) {
        self.rows.extend((0..logits.rows()).map(|row| logits.row(row).to_vec()));
    }

    /// The row after the token at `position`.
    pub fn row(&self, position: usize) -> Option<&[f64]> {
        self.rows.get(position).map(Vec::as_slice)
    }

    /// Bit for bit equal; NaN are equal to themselves.
    pub fn same(&self, other: &Run) -> bool {
        let bits = |run: &Run| -> Vec<u64> { run.rows.iter().flatten().map(|logit| logit.to_bits()).collect() };
        bits(self) == bits(other)
    }

    /// Largest difference of a logit; NaN where one run has no number and the other has another.
    pub fn distance(&self, other: &Run) -> f64 {
        let pairs = self.rows.iter().flatten().zip(other.rows.iter().flatten());
        let distance = |(a, b): (&f64, &f64)| if a.to_bits() == b.to_bits() { 0.0 } else { (a - b).abs() };
        pairs.map(distance).fold(0.0, larger)
    }

    /// Whether all logits are numbers.
    pub fn is_finite(&self) -> bool {
        self.rows.iter().flatten().all(|logit| logit.is_finite())
    }

    /// The most likely token after the last id.
    pub fn next(&self) -> u32 {
        self.rows.last().map_or(0, |row| top(row) as u32)
    }
}

/// The larger of two; NaN if either is.
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b <= a { a } else { b }
}

/// A node's result, and how it differs in computations on the same inputs.
pub(crate) struct Repeated {
    /// What the device has now.
    pub output: HostTensor,
    /// Standard deviation of each element; empty where all computations gave the same bits.
    pub spread: Vec<f64>,
    /// What it gave when it was computed first, where not all computations gave the same bits.
    pub first: Option<Vec<f64>>,
}

/// What a node gave, and what it gives when it is computed `more` times again where it lies: its inputs are untouched,
/// so all differences are its own.
pub(crate) fn computed_again(seen: &Seen, more: usize) -> Result<Vec<HostTensor>> {
    let mut results = vec![seen.output()?];
    for _ in 0..more {
        if !seen.step.op.is_alias() {
            seen.device.upload(&vec![0xFF; seen.step.output.ty.bytes()], &seen.step.output)?;
        }
        seen.device.execute(std::slice::from_ref(seen.step))?;
        seen.device.sync()?;
        results.push(seen.output()?);
    }
    Ok(results)
}

/// The result of a node, which is computed `more` times again.
pub(crate) fn repeated(seen: &Seen, more: usize) -> Result<Repeated> {
    let mut results = computed_again(seen, more)?;
    let same = results.windows(2).all(|pair| pair[0].to_bytes() == pair[1].to_bytes());
    let numbers = |result: &HostTensor| operand::decode(result.ty(), &result.to_bytes());
    let (spread, first) = if same {
        (Vec::new(), None)
    } else {
        (spread(&results.iter().map(numbers).collect::<Vec<_>>()), results.first().map(numbers))
    };
    // The last one: it is what the nodes behind will read.
    let output = results.pop().map_or_else(|| seen.output(), Ok)?;
    Ok(Repeated { output, spread, first })
}

/// The standard deviation of each element over the results, 0 where all bits are the same.
fn spread(results: &[Vec<f64>]) -> Vec<f64> {
    let Some(first) = results.first() else { return Vec::new() };
    let deviation = |element: usize| {
        if results.iter().all(|result| result[element].to_bits() == first[element].to_bits()) {
            return 0.0;
        }
        let mean = results.iter().fold(0.0, |sum, result| sum + result[element]) / results.len() as f64;
        let squares = results.iter().fold(0.0, |sum, result| sum + (result[element] - mean).powi(2));
        (squares / (results.len() - 1) as f64).sqrt()
    };
    (0..first.len()).map(deviation).collect()
}

/// All that one prompt's plain runs said.
#[derive(Clone, Debug)]
pub(crate) struct Repeats {
    pub deterministic: bool,
    pub spread: f64,
    /// Runs with logits that are no numbers.
    pub not_finite: usize,
    pub first: Run,
    /// The ids that the device chose after the prompt.
    pub chosen: Vec<u32>,
}

/// A text of a model: what its encoder reads, which is empty if it has none, and the tokens that are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    pub source: &'a [u32],
    pub ids: &'a [u32],
}

/// Runs a prompt and `steps` more tokens several times without looking; the later runs are given the first one's
/// choices.
pub(crate) fn repeat(weights: &Arc<Weights>, options: &SessionOptions, prompt: Text, steps: usize) -> Result<Repeats> {
    let (first, chosen) = plain(weights, options, prompt, steps, None)?;
    let not_finite = usize::from(!first.is_finite());
    let mut repeats = Repeats { deterministic: true, spread: 0.0, not_finite, first, chosen };
    for _ in 1..RUNS {
        let (run, _) = plain(weights, options, prompt, steps, Some(&repeats.chosen))?;
        repeats.deterministic &= run.same(&repeats.first);
        repeats.spread = larger(repeats.spread, run.distance(&repeats.first));
        repeats.not_finite += usize::from(!run.is_finite());
    }
    Ok(repeats)
}

/// One run without looking, behind the prompt on the ids `given` or on its own choices; gives the logits and the ids.
pub(crate) fn plain(
    weights: &Arc<Weights>,
    options: &SessionOptions,
    prompt: Text,
    steps: usize,
    given: Option<&[u32]>,
) -> Result<(Run, Vec<u32>)> {
    let mut session = Session::new(weights.clone(), options)?;
    session.expect_length(0, prompt.ids.len() + steps);
    let mut run = Run::default();
    if !prompt.source.is_empty() {
        session.encode(0, prompt.source, None)?;
    }
    run.add(&compute(&mut session, prompt.ids, None)?);
    let mut ids = Vec::with_capacity(steps);
    for step in 0..steps {
        let id = given.and_then(|given| given.get(step).copied()).unwrap_or_else(|| run.next());
        run.add(&compute(&mut session, &[id], None)?);
        ids.push(id);
    }
    Ok((run, ids))
}

/// Computes ids of the one sequence, with logits after each.
pub(crate) fn compute(session: &mut Session, ids: &[u32], observer: Option<&mut dyn Observer>) -> Result<Logits> {
    session.compute(&entries(ids), observer)
}

/// Ids of the one sequence, with logits after each.
pub(crate) fn entries(ids: &[u32]) -> Vec<Entry> {
    ids.iter().map(|token| Entry { token: *token, sequence: 0, wants_logits: true }).collect()
}

/// sha256 of the logits of runs, as little-endian f64, in hexadecimal.
pub(crate) fn hash<'a>(runs: impl Iterator<Item = &'a Run>) -> String {
    let mut hash = Sha256::new();
    for logit in runs.flat_map(|run| run.rows.iter().flatten()) {
        hash.update(logit.to_le_bytes());
    }
    hexadecimal(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(row: &[f64]) -> Run {
        Run::of(row)
    }

    #[test]
    fn runs_are_compared_bit_for_bit() {
        assert!(run(&[1.0, f64::NAN]).same(&run(&[1.0, f64::NAN])));
        assert!(!run(&[0.0]).same(&run(&[-0.0])));
        assert_eq!(run(&[1.0, 5.0]).distance(&run(&[1.5, 4.0])), 1.0);
        assert_eq!(run(&[1.0, f64::INFINITY]).distance(&run(&[1.5, f64::INFINITY])), 0.5);
    }

    #[test]
    fn a_spread_that_is_no_number_stays_none_whatever_follows() {
        for rows in [[f64::NAN, 1.0], [1.0, f64::NAN]] {
            assert!(run(&rows).distance(&run(&[2.0, 2.0])).is_nan());
        }
        assert!(larger(f64::NAN, 1.0).is_nan() && larger(1.0, f64::NAN).is_nan());
        assert_eq!((larger(1.0, 2.0), larger(2.0, 1.0)), (2.0, 2.0));
    }

    #[test]
    fn one_table_of_outcomes() {
        let mut tokens = crate::tokens::Tokens::default();
        tokens.add(0, 0, &[], &[1.0, 3.0], &[1.5, 2.5]);
        let sound = tokens.report();
        assert_eq!(sound.logit_sigma, Some(0.5));
        tokens.add(0, 1, &[], &[f64::NAN, 3.0], &[1.5, 2.5]);
        let unsound = tokens.report();
        let cases = [
            (true, true, Some(0.0), 0, &sound, Outcome::Pass),
            (true, false, Some(0.0), 0, &sound, Outcome::Fail),
            (false, true, Some(1.0), 0, &sound, Outcome::Pass),
            (false, false, Some(5.5), 0, &sound, Outcome::Pass),
            (false, true, Some(5.7), 0, &sound, Outcome::Fail),
            (false, true, None, 1, &sound, Outcome::Fail),
            (false, true, Some(0.0), 3, &sound, Outcome::Fail),
            (false, true, None, 3, &unsound, Outcome::Inconclusive),
        ];
        for (deterministic, taps_neutral, spread, not_finite, tokens, outcome) in cases {
            let (runs, logits_sha256) = (RUNS, String::new());
            let report = RepeatReport { runs, deterministic, spread, not_finite, taps_neutral, logits_sha256 };
            assert_eq!(report.outcome(tokens), outcome, "{report:?}");
        }
    }

    #[test]
    fn spread_is_the_deviation_of_a_sample() {
        // numpy.std([[1, 2, 3], [1, 1, 4]], axis=1, ddof=1) is [1.0, 1.7320508075688772].
        let found = spread(&[vec![1.0, 1.0, 7.0], vec![2.0, 1.0, 7.0], vec![3.0, 4.0, 7.0]]);
        assert_eq!(found, [1.0, 3f64.sqrt(), 0.0]);
        assert!(spread(&[vec![f64::NAN], vec![1.0]])[0].is_nan());
    }

    #[test]
    fn the_hash_is_that_of_the_bytes() {
        // printf '' | sha256sum; printf '\0\0\0\0\0\0\0\0' | sha256sum
        assert!(hash([].iter()).starts_with("e3b0c44298fc1c14"));
        assert!(hash([run(&[0.0])].iter()).starts_with("af5570f5a1810b7a"));
    }
}
