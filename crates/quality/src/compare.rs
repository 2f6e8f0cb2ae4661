//! Computes a corpus with a model and a reference, position by position.

use crate::corpus::Corpus;
use crate::drift::{Drift, LayerDrift, LayerResults, first_drift};
use crate::score::{Position, Score, exp};
use crate::totals::{ChunkFigures, Figures, Totals};
use rayon::prelude::*;
use serde::Serialize;
use trueup_formats::{LogitsFile, LogitsRecord, LogitsWriter};
use trueup_runtime::{Entry, Error, Logits, Observer, Result, Session};
use trueup_tokenizer::Tokenizer;

/// Number of positions whose logits are computed at the same time, which limits memory.
const PIECE: usize = 64;

/// Number of context tokens that are shown for a position.
const CONTEXT_SHOWN: usize = 24;

/// The reference of a comparison.
pub enum Reference<'r> {
    /// Nothing: only the perplexity is measured.
    Nothing,
    /// Another model, or the same one with other settings.
    Model(&'r mut Session),
    /// Stored logits.
    File(&'r LogitsFile),
}

/// Options of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompareOptions {
    /// Number of positions with the largest KL divergence that are reported.
    pub worst: usize,
    /// Number of chunks in which the hidden states of both models are compared.
    pub layer_chunks: usize,
}

impl Default for CompareOptions {
    fn default() -> CompareOptions {
        CompareOptions { worst: 5, layer_chunks: 2 }
    }
}

/// The result of a comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// Tokens of a chunk.
    pub context: usize,
    /// Chunks of the corpus.
    pub chunks: usize,
    /// Figures of all positions.
    pub figures: Figures,
    /// Figures after each chunk.
    pub progress: Vec<ChunkFigures>,
    /// Positions with the largest KL divergence, the largest first.
    pub worst: Vec<WorstPosition>,
    /// The error of the hidden states after each layer; `None` without a second model with the same layers.
    pub layers: Option<Vec<LayerDrift>>,
    /// The first layer that drifts: its error is at least 1e-6 and at least 10 times that of the layer before it, or at
    /// least 0.1 in the first layer.
    pub first_drift: Option<usize>,
}

/// A position at which the models differ.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WorstPosition {
    /// The chunk, from 0.
    pub chunk: usize,
    /// The position in the chunk.
    pub position: usize,
    /// KL divergence in nats.
    pub kl: f64,
    /// The end of the text up to this position.
    pub context: String,
    /// The token that follows in the corpus.
    pub next: String,
    /// Its probability in the model.
    pub probability: f64,
    /// Its probability in the reference.
    pub reference_probability: f64,
    /// The model's most probable token.
    pub top: String,
    /// The reference's most probable token.
    pub reference_top: String,
}

/// A position that may be among the worst.
struct Candidate {
    chunk: usize,
    position: usize,
    score: Score,
    top: usize,
}

/// Compares a model with a reference on a corpus. `save` receives the logits of the reference, or of the model if there
/// is no reference. `on_progress` is called after each chunk.
///
/// # Errors
/// Vocabularies of different sizes, chunks longer than the context of a model, logits that are not finite, and failures
/// of devices and files.
pub fn compare(
    model: &mut Session,
    reference: &mut Reference,
    corpus: &Corpus,
    tokenizer: &Tokenizer,
    mut save: Option<&mut LogitsWriter>,
    options: CompareOptions,
    on_progress: &mut dyn FnMut(&ChunkFigures),
) -> Result<Comparison> {
    let mut run = Run { totals: Totals::default(), drift: Drift::default(), worst: Vec::new(), options };
    let mut progress = Vec::with_capacity(corpus.chunks());
    for chunk in 0..corpus.chunks() {
        run.chunk(model, reference, corpus, chunk, &mut save)?;
        let figures = run.totals.chunk(chunk + 1);
        on_progress(&figures);
        progress.push(figures);
    }
    let layers = run.drift.layers();
    let first_drift = layers.as_deref().and_then(first_drift);
    let worst = run.worst.iter().filter_map(|candidate| candidate.shown(corpus, tokenizer)).collect();
    let (context, chunks) = (corpus.context(), corpus.chunks());
    Ok(Comparison { context, chunks, figures: run.totals.figures(), progress, worst, layers, first_drift })
}

/// Intermediate results.
struct Run {
    totals: Totals,
    drift: Drift,
    worst: Vec<Candidate>,
    options: CompareOptions,
}

impl Run {
    /// Computes and scores a chunk.
    fn chunk(
        &mut self,
        model: &mut Session,
        reference: &mut Reference,
        corpus: &Corpus,
        chunk: usize,
        save: &mut Option<&mut LogitsWriter>,
    ) -> Result<()> {
        let input = corpus.input(chunk);
        let observes = chunk < self.options.layer_chunks;
        begin(model, &input, corpus.first())?;
        if let Reference::Model(session) = reference {
            begin(session, &input, corpus.first())?;
        }
        let end = corpus.first() + corpus.scored();
        for start in (corpus.first()..end).step_by(PIECE) {
            let positions = start..end.min(start + PIECE);
            let ids = &input[positions.clone()];
            let (mut own, mut other) = (LayerResults::default(), LayerResults::default());
            let compares_layers = observes && matches!(reference, Reference::Model(_));
            let logits = logits_of(model, ids, compares_layers.then_some(&mut own))?;
            let compared = match reference {
                Reference::Nothing => Compared::Nothing,
                Reference::Model(session) => {
                    Compared::Logits(logits_of(session, ids, compares_layers.then_some(&mut other))?)
                }
                Reference::File(file) => {
                    let records = positions.clone().map(|position| file.record(chunk, position - corpus.first()));
                    Compared::Records(records.collect::<trueup_formats::Result<Vec<_>>>()?)
                }
            };
            let place = |row: usize| format!("chunk {chunk}, position {}", positions.start + row);
            let next = |row: usize| corpus.chunk(chunk)[positions.start + row + 1] as usize;
            let keeps_records = save.is_some();
            let rows = (0..ids.len()).into_par_iter();
            let scored = rows.map(|row| score(&logits, &compared, row, next(row), keeps_records, &place));
            let scored = scored.collect::<Result<Vec<Scored>>>()?;
            for (row, Scored { score, top, record }) in scored.into_iter().enumerate() {
                self.totals.add(&score);
                self.keep(Candidate { chunk, position: positions.start + row, score, top });
                if let (Some(writer), Some(record)) = (save.as_deref_mut(), record) {
                    writer.push(&record)?;
                }
            }
            if compares_layers {
                self.drift.add(&own, &other);
            }
        }
        Ok(())
    }

    /// Keeps a position if it is among the worst.
    fn keep(&mut self, candidate: Candidate) {
        let kl = |candidate: &Candidate| candidate.score.against.map_or(f32::NEG_INFINITY, |against| against.kl);
        if candidate.score.against.is_none() {
            return;
        }
        let place = self.worst.partition_point(|known| kl(known) >= kl(&candidate));
        if place < self.options.worst {
            self.worst.insert(place, candidate);
            self.worst.truncate(self.options.worst);
        }
    }
}

impl Candidate {
    /// Converts to [`WorstPosition`]; `None` without a reference.
    fn shown(&self, corpus: &Corpus, tokenizer: &Tokenizer) -> Option<WorstPosition> {
        let against = self.score.against?;
        let ids = corpus.chunk(self.chunk);
        let text = |ids: &[u32]| String::from_utf8_lossy(&tokenizer.decode(ids, false)).into_owned();
        let token = |id: usize| u32::try_from(id).map_or_else(|_| String::new(), |id| text(&[id]));
        let shown = (self.position + 1).saturating_sub(CONTEXT_SHOWN)..self.position + 1;
        let (context, with_next) = (text(&ids[shown.clone()]), text(&ids[shown.start..self.position + 2]));
        // Decoding a single token can drop its leading space.
        let next = with_next.strip_prefix(&context).map(str::to_owned);
        let next = next.unwrap_or_else(|| text(&ids[self.position + 1..self.position + 2]));
        Some(WorstPosition {
            chunk: self.chunk,
            position: self.position,
            kl: f64::from(against.kl),
            context,
            next,
            probability: f64::from(exp(-self.score.nll)),
            reference_probability: f64::from(exp(-against.nll)),
            top: token(self.top),
            reference_top: token(against.top),
        })
    }
}

/// The reference logits of some positions.
enum Compared {
    Nothing,
    Logits(Logits),
    Records(Vec<LogitsRecord>),
}

/// The score of a position, the model's most probable token, and the record to be saved.
struct Scored {
    score: Score,
    top: usize,
    record: Option<LogitsRecord>,
}

/// Scores one position.
fn score(
    logits: &Logits,
    compared: &Compared,
    row: usize,
    next: usize,
    keeps_record: bool,
    place: &impl Fn(usize) -> String,
) -> Result<Scored> {
    let width = logits.width();
    let fits = match compared {
        Compared::Nothing => width,
        Compared::Logits(other) => other.width(),
        Compared::Records(records) => records[row].codes.len(),
    };
    if fits != width || next >= width {
        return Err(Error::Request(format!(
            "expected the same vocabulary in the model and the reference, found {width} and {fits} tokens; compare \
             models with the same tokenizer"
        )));
    }
    let own = floats(logits, row);
    let position = finite(&own, "model", || place(row))?;
    let (score, record) = match compared {
        Compared::Nothing => (position.alone(next), record_of(&position, keeps_record)),
        Compared::Logits(other) => {
            let other = floats(other, row);
            let reference = finite(&other, "reference", || place(row))?;
            (position.against(&reference, next), record_of(&reference, keeps_record))
        }
        Compared::Records(records) => (position.against_record(&records[row], next), None),
    };
    Ok(Scored { score, top: position.top, record })
}

fn record_of(position: &Position, keeps: bool) -> Option<LogitsRecord> {
    keeps.then(|| LogitsRecord::of(position.logits, position.greatest, position.log_sum))
}

fn floats(logits: &Logits, row: usize) -> Vec<f32> {
    logits.row(row).iter().map(|logit| *logit as f32).collect()
}

/// A position whose probabilities can be computed.
fn finite<'l>(logits: &'l [f32], which: &str, place: impl Fn() -> String) -> Result<Position<'l>> {
    let position = Position::new(logits);
    if position.greatest.is_finite() && position.log_sum.is_finite() {
        return Ok(position);
    }
    Err(Error::Request(format!(
        "{}: the logits of the {which} are not finite; run `trueup verify` on it to find the cause",
        place()
    )))
}

/// Computes the context of a chunk: the positions that are not scored.
fn begin(session: &mut Session, input: &[u32], first: usize) -> Result<()> {
    session.truncate(0, 0);
    session.expect_length(0, input.len());
    session.compute(&entries(&input[..first], false), None).map(drop)
}

/// The logits after each of these tokens, which are appended to the session.
fn logits_of(session: &mut Session, ids: &[u32], layers: Option<&mut LayerResults>) -> Result<Logits> {
    session.compute(&entries(ids, true), layers.map(|layers| layers as &mut dyn Observer))
}

fn entries(ids: &[u32], wants_logits: bool) -> Vec<Entry> {
    ids.iter().map(|token| Entry { token: *token, sequence: 0, wants_logits }).collect()
}
