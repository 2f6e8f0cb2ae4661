//! Generates text for several prompts at once.
//!
//! ```text
//! requests ─┬─ waiting
//!           └─ running, one sequence each ─ one batch: prompts of new requests, one token of the others ─ sample ─┐
//!                 ▲                                                                                               │
//!                 └────────── not finished ◀─ end of generation? enough tokens? context full? ◀───────────────────┘
//! ```
//!
//! A list of prompts is a list of requests that are all submitted before the first batch (`requests.rs`, `runner.rs`).
//! Every caller uses this one engine.
//!
//! Each prompt has its own sampler, and batches change no bit on a batch-invariant device, so a result does not depend
//! on the other prompts. A full context ends a text or shifts (`shift.rs`). A watcher can end any text at any time
//! (`watch.rs`).

mod generation;
mod requests;
mod runner;
mod shift;
mod watch;

use crate::error::Result;
use crate::sampler::Sampling;
use crate::session::Session;
pub use requests::{RequestId, Requests};
pub use runner::Runner;
pub use shift::ContextShift;
use std::ops::ControlFlow;
use watch::Tokens;
pub use watch::Watch;

/// How texts are generated.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct GenerateOptions {
    /// Maximum number of tokens per prompt; `None` continues to the end of generation or of the context. 0 computes
    /// only the prompts.
    pub tokens_max: Option<usize>,
    /// Whether to continue after an end-of-generation token.
    pub ignore_eos: bool,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Whether logits are kept: of all positions of the prompts, and those that each token was chosen by.
    pub keep_logits: bool,
    /// Whether to reuse a prompt prefix that a sequence has already computed. A prefix of another sequence is copied.
    /// The results are bit-identical. Has no effect if logits are kept.
    pub reuse: bool,
    /// How a text goes on when its sequence is full; `None` ends it there.
    pub context_shift: Option<ContextShift>,
}

/// What came behind one prompt.
#[derive(Clone, PartialEq, Debug)]
pub struct Generated {
    /// The tokens; the one that ended the generation is the last.
    pub ids: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
    /// How often the context was full and shifted.
    pub shifts: usize,
    /// Time until the prompt was computed, in milliseconds; 0 where it was cancelled before.
    pub prompt_ms: f64,
    /// Time from there to the last token, in milliseconds.
    pub decode_ms: f64,
    /// What was asked to be kept.
    pub logits: Option<KeptLogits>,
}

/// Logits of one prompt and of what came behind it, row after row of `vocabulary` numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct KeptLogits {
    /// Numbers in a row.
    pub vocabulary: usize,
    /// One row per token of the prompt: the logits after it. Fewer rows if the prompt was cancelled.
    pub prompt: Vec<f32>,
    /// One row for each generated token: the logits it was chosen by. Behind a shift these are those of the remaining
    /// tokens alone.
    pub generated: Vec<f32>,
}

/// Why a generation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// The model said so.
    EndOfGeneration,
    /// As many tokens as were asked for.
    Length,
    /// No room for another token, and no shift was asked for.
    ContextFull,
    /// The caller said so.
    Stopped,
}

/// Generates text after each prompt. `on_token` sees each token with the number of its prompt as soon as it is chosen,
/// and can end that generation. With more prompts than the session has sequences, the others wait.
pub fn generate(
    session: &mut Session,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<()>,
) -> Result<Vec<Generated>> {
    generate_watched(session, prompts, options, &mut Tokens(on_token))
}

/// Generates as [`generate`] does, for someone who can also cancel a prompt that waits or is being computed. What was
/// cancelled is [`Finish::Stopped`]; the session can be used again as if it had never been. Fails as the first prompt
/// that failed, when all have ended.
pub fn generate_watched(
    session: &mut Session,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    watch: &mut dyn Watch,
) -> Result<Vec<Generated>> {
    generate_each(session, prompts, options, watch)?.into_iter().collect()
}

/// Generates as [`generate_watched`] does, and gives what came of each prompt: one for which there is no memory, or
/// with which the device failed, takes along nothing of those that have ended. Fails only where nothing was computed,
/// for a prompt or its options cannot be.
pub fn generate_each(
    session: &mut Session,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    watch: &mut dyn Watch,
) -> Result<Vec<Result<Generated>>> {
    let requests = Requests::new(session, prompts.len());
    let submit = |prompt: &Vec<u32>| requests.submit(prompt.clone(), options.clone());
    let ids = prompts.iter().map(submit).collect::<Result<Vec<RequestId>>>()?;
    let mut runner = Runner::new(&requests, session);
    // Where a step fails, so has each request that had not ended, by the same sentence.
    while runner.step(watch).unwrap_or(false) {}
    Ok(ids.into_iter().filter_map(|id| requests.poll(id).transpose()).collect())
}
