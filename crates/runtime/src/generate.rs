//! Texts behind several prompts at once.
//!
//! ```text
//! prompts ─┬─ waiting
//!          └─ active, one sequence each ─ one batch: whole prompts of those that join, one token of the others ─ sample ─┐
//!                ▲                                                                                                       │
//!                └───────────── not finished ◀─ end of generation? enough tokens? context full? ◀────────────────────────┘
//! ```
//!
//! What a prompt gives does not depend on the others: batches change no bit, and each prompt has a sampler of its own with the same seed.
//! A context that is full ends a text or shifts (shift.rs); whoever watches can end any text at any time, its prompt too (watch.rs).

mod generation;
mod shift;
mod watch;

use crate::error::{Error, Result};
use crate::sampler::Sampling;
use crate::session::{Entry, Session};
use generation::Generation;
pub use shift::ContextShift;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use watch::Tokens;
pub use watch::Watch;

/// How texts are generated.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct GenerateOptions {
    /// At most so many tokens for each prompt; `None` goes on to the end of generation or of the context. 0 computes the prompts alone.
    pub tokens_max: Option<usize>,
    /// Whether to go on behind an end of generation.
    pub ignore_eos: bool,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Whether logits are kept: of all positions of the prompts, and those that each token was chosen by.
    pub keep_logits: bool,
    /// Whether the beginning of a prompt that its sequence holds already is not computed again. Changes no bit. Without effect
    /// where logits are kept.
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
    /// One row for each token of the prompt: the logits behind it. Fewer where the prompt was cancelled.
    pub prompt: Vec<f32>,
    /// One row for each generated token: the logits it was chosen by. Behind a shift these are those of the remaining tokens alone.
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

/// Generates behind each prompt. `on_token` sees each token with the number of its prompt as soon as it is chosen, and can end that
/// generation. With more prompts than the session has sequences, the others wait.
pub fn generate(
    session: &mut Session,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<()>,
) -> Result<Vec<Generated>> {
    generate_watched(session, prompts, options, &mut Tokens(on_token))
}

/// Generates as [`generate`] does, for someone who can also cancel a prompt that waits or is being computed. What was cancelled is
/// [`Finish::Stopped`]; the session can be used again as if it had never been.
pub fn generate_watched(
    session: &mut Session,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    watch: &mut dyn Watch,
) -> Result<Vec<Generated>> {
    check(session, prompts, options)?;
    let mut waiting: VecDeque<usize> = (0..prompts.len()).collect();
    let mut free: VecDeque<usize> = (0..session.sequences()).collect();
    let mut active: Vec<Generation> = Vec::new();
    let mut finished: Vec<Option<Generated>> = vec![None; prompts.len()];
    while !(waiting.is_empty() && active.is_empty()) {
        while let (Some(sequence), Some(prompt)) = (free.front().copied(), waiting.front().copied()) {
            active.push(Generation::start(session, prompt, sequence, &prompts[prompt], options)?);
            free.pop_front();
            waiting.pop_front();
        }
        compute_pending(session, &mut active, watch)?;
        for generation in active.iter_mut().filter(|generation| generation.finish.is_none()) {
            generation.choose(session, options, watch)?;
        }
        for generation in active.extract_if(.., |generation| generation.finish.is_some()) {
            free.push_back(generation.sequence);
            let prompt = generation.prompt;
            finished[prompt] = Some(generation.result());
        }
    }
    if session.weights().held().mapped_bytes > 0 {
        // What is read while it computes may have been written to meanwhile.
        session.model().unwritten()?;
    }
    Ok(finished.into_iter().flatten().collect())
}

/// Computes all that is pending in as few batches as the session takes. Before each of them, what is cancelled drops out.
fn compute_pending(session: &mut Session, active: &mut [Generation], watch: &mut dyn Watch) -> Result<()> {
    loop {
        let mut entries: Vec<Entry> = Vec::new();
        let mut shares: Vec<(&mut Generation, usize, usize)> = Vec::new();
        for generation in active.iter_mut().filter(|generation| generation.finish.is_none()) {
            if watch.is_cancelled(generation.prompt) {
                generation.finish = Some(Finish::Stopped);
                continue;
            }
            let begin = entries.len();
            entries.extend(generation.entries(session.prompt_chunk() - begin));
            let rows = entries[begin..].iter().filter(|entry| entry.wants_logits).count();
            shares.push((generation, entries.len() - begin, rows));
        }
        if entries.is_empty() {
            return Ok(());
        }
        let logits = session.compute(&entries, None)?;
        let mut row = 0;
        for (generation, count, rows) in shares {
            generation.take(count, &logits, row..row + rows);
            row += rows;
        }
    }
}

fn check(session: &Session, prompts: &[Vec<u32>], options: &GenerateOptions) -> Result<()> {
    for (number, prompt) in prompts.iter().enumerate() {
        let (len, context) = (prompt.len(), session.context());
        if len == 0 {
            return Err(Error::Request(format!("prompt {number} has no tokens; give some text or at least one id")));
        }
        if len > context {
            let problem = format!("prompt {number} has {len} tokens, more than the context of {context}");
            return Err(Error::Request(format!("{problem}; make the context larger or the prompt shorter")));
        }
        prompt.iter().try_for_each(|token| session.expect_token(*token))?;
        if let Some(shift) = &options.context_shift {
            shift.kept(session, number, prompt)?;
        }
    }
    Ok(())
}
