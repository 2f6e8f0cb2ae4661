//! Measures the speed of a model on a device, and the share of the hardware limit that was reached.
//!
//! ```text
//! open, upload ─ first token ─ prompt and one token, untimed ─ peak memory
//!     ─ limit ─ (prompt, decode), repeated ─ limit ─ operators one by one ─ several sequences at once
//! ```
//!
//! Prompts and following tokens are random ids, which does not affect speed. Peak memory is read before the limit is
//! measured, because that measurement allocates large arrays. The minimal time of a phase follows from the bytes that
//! its plan must read (weights, and the KV cache of the current positions) and the products that it must compute, at
//! the limits of the same run.

mod demand;
mod operators;
mod parallel;
mod spread;

pub use operators::{OperatorTime, PhaseOperators};
pub use parallel::ParallelReport;
pub use spread::Spread;

use crate::error::{Error, Result};
use crate::model_file::ModelFile;
use crate::peak_memory::peak_memory_bytes;
use crate::roof::Roof;
use crate::session::{Entry, Session, SessionOptions};
use crate::weights::{HeldWeights, Weights};
use demand::Demand;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use trueup_formats::counted;

/// Bytes that caches may hold.
const CACHED_BYTES: u64 = 64 << 20;

/// What is measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BenchOptions {
    /// Tokens of the prompt; at least 1.
    pub prompt: usize,
    /// Tokens decoded after the prompt, one by one; at least 1.
    pub generate: usize,
    /// How often both are measured; at least 1. The median counts.
    pub repetitions: usize,
    /// Whether operators are timed one by one, too.
    pub per_operator: bool,
    /// Numbers of sequences that are decoded together, each measured by itself.
    pub parallel: Vec<usize>,
}

impl Default for BenchOptions {
    fn default() -> BenchOptions {
        BenchOptions { prompt: 512, generate: 128, repetitions: 3, per_operator: false, parallel: Vec::new() }
    }
}

/// All that was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BenchReport {
    /// The device's name.
    pub device: String,
    /// What the device is.
    pub description: String,
    /// The model.
    pub model: ModelFacts,
    /// The type of the KV cache.
    pub kv: &'static str,
    /// From the beginning of the command until the model lies on the device.
    pub load_seconds: f64,
    /// Time from the start of the command until the logits after one token are available.
    pub first_token_seconds: f64,
    /// How the weights are held.
    pub weights: HeldWeights,
    /// The largest resident size of the process until a prompt and a token were computed, pages of the mapped file
    /// included; null where the system does not say.
    pub peak_memory_bytes: Option<u64>,
    /// The prompt phase.
    pub prompt: PhaseReport,
    /// The decode phase.
    pub decode: PhaseReport,
    /// The roof of the first device; null where it has none.
    pub roof: Option<Roof>,
    /// Operators of both phases, where they were asked for.
    pub per_op: Option<Vec<PhaseOperators>>,
    /// Sequences that were decoded together, where they were asked for.
    pub parallel: Option<Vec<ParallelReport>>,
}

/// The size of a model.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ModelFacts {
    /// The file, or the name of a model that is in none.
    pub name: String,
    /// Its architecture.
    pub architecture: &'static str,
    /// Bytes of the tensors of each type.
    pub types: BTreeMap<String, u64>,
    /// Numbers in all tensors.
    pub parameters: u64,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Bytes of weights that are read for a token.
    pub token_bytes: u64,
    /// Whether these are so few that caches may hold them; then more is possible than the roof.
    pub cached: bool,
}

/// One phase.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PhaseReport {
    /// Tokens of one repetition.
    pub tokens: usize,
    /// Tokens a second, by the median of the times.
    pub tokens_per_s: f64,
    /// Seconds of one repetition.
    pub seconds: Spread,
    /// Bytes of weights and KV cache that must be read, in 10^9 a second.
    pub gb_per_s: f64,
    /// Multiplications with weights and their additions, in 10^9 a second.
    pub gop_per_s: f64,
    /// The least time that the roof allows, as a share of the median; null where there is no roof.
    pub roof_share: Option<f64>,
}

impl PhaseReport {
    fn new(tokens: usize, times: &[f64], demand: &Demand, roof: Option<&Roof>) -> PhaseReport {
        let seconds = Spread::of(times);
        let median = seconds.median.max(f64::MIN_POSITIVE);
        PhaseReport {
            tokens,
            tokens_per_s: tokens as f64 / median,
            gb_per_s: demand.bytes() as f64 / median / 1e9,
            gop_per_s: demand.operations.count() as f64 / median / 1e9,
            roof_share: roof.map(|roof| demand.seconds(roof) / median),
            seconds,
        }
    }
}

/// Measures a model whose weights are not on their device yet, and whose opening began at `started`. `session` says how
/// it computes; without a context it gets room for what is measured. `tell` hears what is done.
///
/// Fails where nothing is asked for, where the model's context is too short for it, and where the device fails.
pub fn bench(
    weights: &Arc<Weights>,
    session: &SessionOptions,
    options: &BenchOptions,
    started: Instant,
    tell: &mut dyn FnMut(&str),
) -> Result<BenchReport> {
    let options_of_session = expect(weights, session, options)?;
    let mut session = Session::new(weights.clone(), &options_of_session)?;
    let load_seconds = started.elapsed().as_secs_f64();
    let first = ids(weights, 1);
    run(&mut session, &first, &[])?;
    let first_token_seconds = started.elapsed().as_secs_f64();
    let (prompt, following) = (ids(weights, options.prompt), ids(weights, options.generate));
    run(&mut session, &prompt, &following[..1])?;
    let peak_memory_bytes = peak_memory_bytes();
    tell("measuring the hardware limits");
    let before = weights.devices()[0].roof()?;
    let times = (0..options.repetitions).map(|repetition| {
        tell(&format!("prompt and decode, run {} of {}", repetition + 1, options.repetitions));
        run(&mut session, &prompt, &following)
    });
    let (prompt_times, decode_times): (Vec<f64>, Vec<f64>) = times.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    // Other programs may have slowed down one of the two.
    let roof = before.zip(weights.devices()[0].roof()?).map(|(before, after)| before.best_of(after));
    let prompt_demand = Demand::of_prompt(weights, &options_of_session, options.prompt)?;
    let decode_demand = Demand::of_decode(weights, &options_of_session, options.prompt, options.generate)?;
    let prompt_report = PhaseReport::new(options.prompt, &prompt_times, &prompt_demand, roof.as_ref());
    let decode_report = PhaseReport::new(options.generate, &decode_times, &decode_demand, roof.as_ref());
    let per_op = options.per_operator.then(|| {
        tell("timing each operator");
        operators::measure(&mut session, &prompt, &following, [&prompt_report, &decode_report])
    });
    drop(session);
    let parallel = (!options.parallel.is_empty())
        .then(|| parallel::measure(weights, &options_of_session, options, roof.as_ref(), tell));
    let about = weights.about();
    Ok(BenchReport {
        device: about.name,
        description: about.description,
        model: ModelFacts::new(weights.model(), decode_demand.weight_bytes / options.generate as u64),
        kv: decode_demand.kv,
        load_seconds,
        first_token_seconds,
        weights: weights.held(),
        peak_memory_bytes,
        prompt: prompt_report,
        decode: decode_report,
        roof,
        per_op: per_op.transpose()?,
        parallel: parallel.transpose()?,
    })
}

/// The session's options with the context that is needed, where none was asked for.
fn expect(weights: &Weights, session: &SessionOptions, options: &BenchOptions) -> Result<SessionOptions> {
    weights.model().expect_generation()?;
    if options.prompt == 0 || options.generate == 0 || options.repetitions == 0 || options.parallel.contains(&0) {
        let problem = "prompt, generated tokens, repetitions and sequences must each be at least 1";
        return Err(Error::Request(problem.to_owned()));
    }
    let needed = options.prompt.saturating_add(options.generate);
    let most = session.context.unwrap_or(weights.model().model().spec().context_length());
    if needed > most {
        let BenchOptions { prompt, generate, .. } = options;
        return Err(Error::Request(format!(
            "a prompt of {} and {} exceed the context of {most}; lower the prompt length (--prompt) or the number of \
             generated tokens (--generate)",
            counted(*prompt, "token"),
            counted(*generate, "generated token")
        )));
    }
    Ok(SessionOptions { context: session.context.or(Some(needed)), sequences: 1, ..*session })
}

/// Computes a prompt and, one by one, what follows it, and gives the seconds of both.
fn run(session: &mut Session, prompt: &[u32], following: &[u32]) -> Result<(f64, f64)> {
    session.truncate(0, 0);
    session.expect_length(0, prompt.len() + following.len());
    let start = Instant::now();
    session.compute(&prompt_entries(0, prompt), None)?;
    let prompt_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for token in following {
        session.compute(&[Entry { token: *token, sequence: 0, wants_logits: true }], None)?;
    }
    Ok((prompt_seconds, start.elapsed().as_secs_f64()))
}

/// A prompt with logits behind its end.
fn prompt_entries(sequence: usize, prompt: &[u32]) -> Vec<Entry> {
    let entry =
        |(place, token): (usize, &u32)| Entry { token: *token, sequence, wants_logits: place + 1 == prompt.len() };
    prompt.iter().enumerate().map(entry).collect()
}

/// Ids of the vocabulary, spread over it by Knuth's multiplicative hash.
fn ids(weights: &Weights, count: usize) -> Vec<u32> {
    let vocabulary = weights.model().model().spec().vocabulary_size() as u64;
    let hash = |place: u64| place.wrapping_mul(2_654_435_761) & 0xFFFF_FFFF;
    (1..=count as u64).map(|place| ((hash(place) * vocabulary) >> 32) as u32).collect()
}

impl ModelFacts {
    fn new(model: &ModelFile, token_bytes: u64) -> ModelFacts {
        let mut types: BTreeMap<String, u64> = BTreeMap::new();
        for tensor in model.tensors() {
            *types.entry(tensor.dtype.to_string()).or_default() += tensor.bytes;
        }
        ModelFacts {
            name: model.path().to_string_lossy().into_owned(),
            architecture: model.model().architecture().gguf_name,
            bytes: types.values().sum(),
            types,
            parameters: model.tensors().iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum(),
            token_bytes,
            cached: token_bytes < CACHED_BYTES,
        }
    }
}
