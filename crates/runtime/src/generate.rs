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

use crate::error::{Error, Result};
use crate::sampler::{Sampler, Sampling};
use crate::session::{Entry, Logits, Session};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Instant;

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
}

/// What came behind one prompt.
#[derive(Clone, PartialEq, Debug)]
pub struct Generated {
    /// The tokens; the one that ended the generation is the last.
    pub ids: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
    /// Time until the prompt was computed, in milliseconds.
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
    /// One row for each token of the prompt: the logits behind it.
    pub prompt: Vec<f32>,
    /// One row for each generated token: the logits it was chosen by.
    pub generated: Vec<f32>,
}

/// Why a generation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// The model said so.
    EndOfGeneration,
    /// As many tokens as were asked for.
    Length,
    /// No room for another token.
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
    check(session, prompts)?;
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
        let entries: Vec<Entry> = active.iter().flat_map(|generation| generation.entries(options)).collect();
        let logits = session.compute(&entries, None)?;
        let mut row = 0;
        for generation in &mut active {
            let rows = generation.entries(options).filter(|entry| entry.wants_logits).count();
            generation.step(session, &logits, row..row + rows, options, on_token)?;
            row += rows;
        }
        for generation in active.extract_if(.., |generation| generation.finish.is_some()) {
            free.push_back(generation.sequence);
            let (prompt, result) = generation.result();
            finished[prompt] = Some(result);
        }
    }
    Ok(finished.into_iter().flatten().collect())
}

fn check(session: &Session, prompts: &[Vec<u32>]) -> Result<()> {
    for (number, prompt) in prompts.iter().enumerate() {
        let (len, context) = (prompt.len(), session.context());
        if len == 0 {
            return Err(Error::Request(format!("prompt {number} has no tokens; give some text or at least one id")));
        }
        if len > context {
            let problem = format!("prompt {number} has {len} tokens, more than the context of {context}");
            return Err(Error::Request(format!("{problem}; make the context larger or the prompt shorter")));
        }
    }
    Ok(())
}

/// A prompt in a sequence.
struct Generation {
    prompt: usize,
    sequence: usize,
    /// Tokens that are to be computed next.
    pending: Vec<u32>,
    sampler: Sampler,
    started: Instant,
    prompt_ms: Option<f64>,
    ids: Vec<u32>,
    finish: Option<Finish>,
    logits: Option<KeptLogits>,
}

impl Generation {
    fn start(
        session: &mut Session,
        prompt: usize,
        sequence: usize,
        ids: &[u32],
        options: &GenerateOptions,
    ) -> Result<Generation> {
        let sampler = Sampler::new(options.sampling, ids)?;
        let known = if options.reuse && !options.keep_logits { common(session.tokens(sequence), ids) } else { 0 };
        session.truncate(sequence, known);
        let vocabulary = session.model().model().hyper().vocabulary();
        let kept = || KeptLogits { vocabulary, prompt: Vec::new(), generated: Vec::new() };
        Ok(Generation {
            prompt,
            sequence,
            pending: ids[known..].to_vec(),
            sampler,
            started: Instant::now(),
            prompt_ms: None,
            ids: Vec::new(),
            finish: None,
            logits: options.keep_logits.then(kept),
        })
    }

    fn entries(&self, options: &GenerateOptions) -> impl Iterator<Item = Entry> {
        let last = self.pending.len() - 1;
        let entry = move |(index, token): (usize, &u32)| Entry {
            token: *token,
            sequence: self.sequence,
            wants_logits: index == last || options.keep_logits,
        };
        self.pending.iter().enumerate().map(entry)
    }

    /// Takes the logits of its rows and chooses the next token.
    fn step(
        &mut self,
        session: &Session,
        logits: &Logits,
        rows: std::ops::Range<usize>,
        options: &GenerateOptions,
        on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<()> {
        let narrow = |row: usize| logits.row(row).iter().map(|logit| *logit as f32);
        if self.prompt_ms.is_none() {
            self.prompt_ms = Some(milliseconds(self.started));
            if let Some(kept) = &mut self.logits {
                kept.prompt = rows.clone().flat_map(narrow).collect();
            }
        }
        if options.tokens_max == Some(0) {
            self.finish = Some(Finish::Length);
            return Ok(());
        }
        let last = rows.end - 1;
        let id = self.sampler.sample(logits.row(last))?;
        if let Some(kept) = &mut self.logits {
            kept.generated.extend(narrow(last));
        }
        self.ids.push(id);
        self.pending = vec![id];
        let stopped = on_token(self.prompt, id).is_break();
        self.finish = self.finish(session, id, stopped, options);
        Ok(())
    }

    /// Why there is no token behind `id`, if there is none.
    fn finish(&self, session: &Session, id: u32, stopped: bool, options: &GenerateOptions) -> Option<Finish> {
        let is_end = || session.model().tokenizer().is_ok_and(|tokenizer| tokenizer.is_end_of_generation(id));
        if !options.ignore_eos && is_end() {
            Some(Finish::EndOfGeneration)
        } else if stopped {
            Some(Finish::Stopped)
        } else if options.tokens_max.is_some_and(|most| self.ids.len() >= most) {
            Some(Finish::Length)
        } else if session.len(self.sequence) == session.context() {
            Some(Finish::ContextFull)
        } else {
            None
        }
    }

    fn result(self) -> (usize, Generated) {
        let prompt_ms = self.prompt_ms.unwrap_or_default();
        let generated = Generated {
            ids: self.ids,
            finish: self.finish.unwrap_or(Finish::Stopped),
            prompt_ms,
            decode_ms: milliseconds(self.started) - prompt_ms,
            logits: self.logits,
        };
        (self.prompt, generated)
    }
}

/// How many tokens of a prompt a sequence holds at its beginning; never all of them, since the last one's logits are wanted.
fn common(held: &[u32], prompt: &[u32]) -> usize {
    let same = held.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    same.min(prompt.len() - 1)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
