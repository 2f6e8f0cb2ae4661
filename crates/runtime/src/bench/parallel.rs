//! Several sequences that are decoded together: how much faster all of them are than one, and what each is left with.

use super::demand::{Demand, in_window};
use super::spread::Spread;
use super::{BenchOptions, ids, prompt_entries};
use crate::error::Result;
use crate::roof::Roof;
use crate::session::{Entry, Session, SessionOptions};
use crate::weights::Weights;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use trueup_formats::counted;

/// Most tokens of a prompt: sequences hold from half of them on, each another number.
const PROMPT_MAX: usize = 32;

/// So many sequences at once.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ParallelReport {
    /// Sequences that were decoded together.
    pub sequences: usize,
    /// Tokens that each was given before, at most.
    pub prompt: usize,
    /// Tokens a second of all sequences together, by the median of the times.
    pub tokens_per_s: f64,
    /// Tokens a second of each.
    pub tokens_per_s_each: f64,
    /// How many times as fast all together are as one sequence alone.
    pub ratio_to_one: f64,
    /// Seconds for all tokens of all sequences.
    pub seconds: Spread,
    /// The least time that the roof allows, as a share of the median; null where there is no roof.
    pub roof_share: Option<f64>,
    /// Memory of the KV cache.
    pub kv_bytes: u64,
}

/// Each number of sequences by itself, one alone before all others.
pub(super) fn measure(
    weights: &Arc<Weights>,
    session: &SessionOptions,
    options: &BenchOptions,
    roof: Option<&Roof>,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<ParallelReport>> {
    let mut counts = options.parallel.clone();
    counts.push(1);
    counts.sort_unstable();
    counts.dedup();
    let mut reports: Vec<ParallelReport> = Vec::with_capacity(counts.len());
    for count in counts {
        tell(&format!("decoding {} at once", counted(count, "sequence")));
        let mut report = together(weights, session, options, count, roof)?;
        let one = reports.first().map_or(report.tokens_per_s, |one| one.tokens_per_s);
        report.ratio_to_one = report.tokens_per_s / one;
        reports.push(report);
    }
    Ok(reports)
}

fn together(
    weights: &Arc<Weights>,
    session: &SessionOptions,
    options: &BenchOptions,
    sequences: usize,
    roof: Option<&Roof>,
) -> Result<ParallelReport> {
    let longest = options.prompt.min(PROMPT_MAX);
    let lengths: Vec<usize> = (0..sequences).map(|sequence| longest - sequence % longest.div_ceil(2)).collect();
    let context = longest + options.generate;
    let session_options = SessionOptions { context: Some(context), sequences, ..*session };
    let plan = Session::plan(weights, &session_options, sequences, sequences, context)?;
    let held: usize = lengths.iter().sum();
    let least = roof.map(|roof| {
        let step = |token: usize| {
            let in_window = lengths.iter().map(|length| in_window(weights, length + token, 1)).sum();
            Demand::of_batch(&plan, (held + token * sequences) as u64, in_window).seconds(roof)
        };
        (1..=options.generate).map(step).sum::<f64>()
    });
    let mut session = Session::new(weights.clone(), &session_options)?;
    let prompt = ids(weights, longest);
    let prompts = lengths.iter().enumerate();
    let prompts: Vec<Entry> = prompts.flat_map(|(sequence, len)| prompt_entries(sequence, &prompt[..*len])).collect();
    session.compute(&prompts, None)?;
    let following = ids(weights, options.generate);
    let times = (0..=options.repetitions).map(|_| {
        for (sequence, len) in lengths.iter().enumerate() {
            session.truncate(sequence, *len);
            session.expect_length(sequence, len + options.generate);
        }
        session.catch_up()?;
        decode(&mut session, &following)
    });
    // The first one makes plans and takes memory.
    let times = times.collect::<Result<Vec<f64>>>()?.split_off(1);
    let seconds = Spread::of(&times);
    let tokens_per_s = (sequences * options.generate) as f64 / seconds.median.max(f64::MIN_POSITIVE);
    Ok(ParallelReport {
        sequences,
        prompt: longest,
        tokens_per_s,
        tokens_per_s_each: tokens_per_s / sequences as f64,
        ratio_to_one: 1.0,
        roof_share: least.map(|least| least / seconds.median.max(f64::MIN_POSITIVE)),
        seconds,
        kv_bytes: plan.report().devices.iter().map(|device| device.kv_bytes as u64).sum(),
    })
}

/// One token of each sequence after the other, and the seconds that all took.
fn decode(session: &mut Session, following: &[u32]) -> Result<f64> {
    let start = Instant::now();
    for token in following {
        let entry = |sequence| Entry { token: *token, sequence, wants_logits: true };
        let entries: Vec<Entry> = (0..session.sequences()).map(entry).collect();
        session.compute(&entries, None)?;
    }
    Ok(start.elapsed().as_secs_f64())
}
