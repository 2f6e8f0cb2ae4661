//! One prompt in a sequence, and what comes behind it.

use super::requests::Asked;
use super::shift::shift;
use super::{Finish, GenerateOptions, Generated, KeptLogits, Watch};
use crate::error::{Error, Result};
use crate::sampler::Sampler;
use crate::session::{Entry, Logits, Session};
use std::time::Instant;

/// A prompt in a sequence.
pub(super) struct Generation {
    pub prompt: usize,
    pub sequence: usize,
    pub finish: Option<Finish>,
    options: GenerateOptions,
    /// Tokens that are to be computed next.
    to_compute: Vec<u32>,
    /// How many of them are computed.
    done: usize,
    /// The logits behind the last of them.
    last: Vec<f64>,
    sampler: Sampler,
    /// How many tokens stay when the context shifts.
    kept: Option<usize>,
    shifts: usize,
    /// Before the encoder reads the prompt, if there is one.
    started: Instant,
    prompt_ms: Option<f64>,
    ids: Vec<u32>,
    logits: Option<KeptLogits>,
}

impl Generation {
    pub fn start(session: &mut Session, prompt: usize, sequence: usize, asked: Asked) -> Result<Generation> {
        let started = Instant::now();
        let Asked { prompt: ids, source, options, sampler, kept } = asked;
        if let Some(source) = source {
            session.encode(sequence, &source, None)?;
        }
        let vocabulary = session.model().model().spec().vocabulary_size();
        let mut logits = KeptLogits { vocabulary, prompt: Vec::new(), generated: Vec::new() };
        if options.keep_logits {
            reserve(&mut logits.prompt, ids.len(), vocabulary)?;
        }
        let known = if options.reuse && !options.keep_logits {
            session.reuse(sequence, &ids)?
        } else {
            session.truncate(sequence, 0);
            0
        };
        session.expect_length(sequence, ids.len());
        let logits = options.keep_logits.then_some(logits);
        Ok(Generation {
            prompt,
            sequence,
            finish: None,
            options,
            to_compute: ids[known..].to_vec(),
            done: 0,
            last: Vec::new(),
            sampler,
            kept,
            shifts: 0,
            started,
            prompt_ms: None,
            ids: Vec::new(),
            logits,
        })
    }

    /// How many tokens are to be computed before the next can be chosen.
    pub fn pending(&self) -> usize {
        self.to_compute.len() - self.done
    }

    /// The next pending tokens, up to a maximum.
    pub fn entries(&self, most: usize) -> impl Iterator<Item = Entry> {
        let (last, is_kept) = (self.to_compute.len() - 1, self.keeps_prompt());
        let end = self.to_compute.len().min(self.done.saturating_add(most));
        (self.done..end).map(move |index| Entry {
            token: self.to_compute[index],
            sequence: self.sequence,
            wants_logits: index == last || is_kept,
        })
    }

    /// Whether the logits behind each pending token are kept.
    fn keeps_prompt(&self) -> bool {
        self.logits.is_some() && self.prompt_ms.is_none()
    }

    /// Takes the logits of `count` entries, in `rows`.
    pub fn take(&mut self, count: usize, logits: &Logits, rows: std::ops::Range<usize>) {
        self.done += count;
        if let Some(kept) = self.logits.as_mut().filter(|_| self.prompt_ms.is_none()) {
            kept.prompt.extend(rows.clone().flat_map(|row| logits.row(row)).map(|logit| *logit as f32));
        }
        if self.done == self.to_compute.len() && !rows.is_empty() {
            self.last = logits.row(rows.end - 1).to_vec();
        }
    }

    /// Chooses the next token from the logits after the last one.
    pub fn choose(&mut self, session: &mut Session, watch: &mut dyn Watch) -> Result<()> {
        if self.prompt_ms.is_none() {
            self.prompt_ms = Some(milliseconds(self.started));
        }
        if self.options.tokens_max == Some(0) {
            self.finish = Some(Finish::Length);
            return Ok(());
        }
        let id = self.sampler.sample(&self.last)?;
        if let Some(kept) = &mut self.logits {
            reserve(&mut kept.generated, 1, kept.vocabulary)?;
            kept.generated.extend(self.last.iter().map(|logit| *logit as f32));
        }
        self.ids.push(id);
        let stopped = watch.saw_token(self.prompt, id).is_break();
        self.finish = self.finish(session, id, stopped);
        if self.finish.is_none() {
            self.follow(session, id);
        }
        Ok(())
    }

    /// Why there is no token behind `id`, if there is none.
    fn finish(&self, session: &Session, id: u32, stopped: bool) -> Option<Finish> {
        let is_end = || session.model().tokenizer().is_ok_and(|tokenizer| tokenizer.is_end_of_generation(id));
        if !self.options.ignore_eos && is_end() {
            Some(Finish::EndOfGeneration)
        } else if stopped {
            Some(Finish::Stopped)
        } else if self.options.tokens_max.is_some_and(|most| self.ids.len() >= most) {
            Some(Finish::Length)
        } else if self.kept.is_none() && session.len(self.sequence) == session.context() {
            Some(Finish::ContextFull)
        } else {
            None
        }
    }

    /// Puts `id` behind the sequence, which makes room where it is full.
    fn follow(&mut self, session: &mut Session, id: u32) {
        self.done = 0;
        match self.kept.filter(|_| session.len(self.sequence) == session.context()) {
            Some(kept) => {
                self.to_compute = shift(session, self.sequence, kept, id);
                self.shifts += 1;
            }
            None => self.to_compute = vec![id],
        }
    }

    pub fn result(self) -> Generated {
        let prompt_ms = self.prompt_ms.unwrap_or_default();
        let decode_ms = self.prompt_ms.map_or(0.0, |prompt_ms| milliseconds(self.started) - prompt_ms);
        Generated {
            ids: self.ids,
            finish: self.finish.unwrap_or(Finish::Stopped),
            shifts: self.shifts,
            prompt_ms,
            decode_ms,
            logits: self.logits,
        }
    }
}

/// Makes room for so many further rows of logits.
fn reserve(values: &mut Vec<f32>, rows: usize, vocabulary: usize) -> Result<()> {
    let reserved = values.try_reserve(rows.saturating_mul(vocabulary));
    let held = values.len() / vocabulary.max(1);
    reserved.map_err(|_| {
        Error::Request(format!("not enough memory for the logits of {} tokens; request fewer", held + rows))
    })
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
