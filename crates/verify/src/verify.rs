//! The run: for each prompt, and for all in one batch, plain runs first, then the observed run and the reference; then
//! the verdict.

use crate::batch::{BatchReport, BatchRules, PromptBatch, Sequence};
use crate::explain::Explanations;
use crate::model_hash::{model_hash, tensor_facts};
use crate::record::Records;
use crate::repeat::{RUNS, RepeatReport, Repeats, Run, Text, compute, entries, hash, larger, plain, repeat};
use crate::report::{DeviceFacts, Findings, PlantedFacts, Report};
use crate::running::{Oracle, Running};
use crate::shadow::Shadow;
use crate::tokens::{Tokens, top};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::counted;
use trueup_runtime::device::{Device, THREADS_MAX};
use trueup_runtime::{Error, ModelFile, Result, Session, SessionOptions, Weights};

/// What a device is compared with in the free run. Isolated verdicts are always against f64.
#[derive(Clone)]
pub enum Reference {
    /// f64 on dequantized weights.
    Oracle,
    /// Another device.
    Device(Arc<dyn Device>),
}

/// What is asked of a verification.
#[derive(Clone)]
pub struct VerifyOptions {
    /// Ids of each prompt; none may be empty. In an encoder-decoder model, what the encoder reads.
    pub prompts: Vec<Vec<u32>>,
    /// In an encoder-decoder model, the ids of the decoder's text for each prompt. Empty for its first token alone.
    pub decoder_prompts: Vec<Vec<u32>>,
    /// Tokens to compute after each prompt, as chosen by the reference. None after texts of an encoder.
    pub steps: usize,
    /// The type of the KV cache, on the device and on the reference. `None`: f16 on the device, f64 on the oracle.
    pub kv: Option<DType>,
    /// Tokens that a sequence can hold. `None`: as many as prompt and steps need.
    pub context: Option<usize>,
    /// Positions that layers with a sliding window keep in addition to the window; see
    /// [`SessionOptions::rewind`](trueup_runtime::SessionOptions::rewind). `None`: its default.
    pub rewind: Option<usize>,
    /// Whether a node that the device cannot compute makes the result inconclusive.
    pub require_device: bool,
    /// Devices after the judged one, which are judged as well. They compute the layers that do not fit into its memory.
    pub further: Vec<Arc<dyn Device>>,
    /// A device for what the judged one cannot compute.
    pub fallback: Option<Arc<dyn Device>>,
    /// Threads that judge, the oracle's included; `None` takes as many as the machine has. No result depends on it.
    pub threads: Option<usize>,
    /// Where a file goes that shows the failure alone, for each of the first failing nodes.
    pub repro_folder: Option<PathBuf>,
    /// Whether the device fuses nodes as it does when a model runs.
    pub fusion: bool,
    /// The fault that was planted in the device on purpose, if any: the report and repro files name it.
    pub planted: Option<PlantedFacts>,
    /// Flags of the command line, each with its value, that say how the device computes: commands in the report repeat
    /// them.
    pub arguments: Vec<String>,
}

impl Default for VerifyOptions {
    /// No prompt yet; everything else as a model runs.
    fn default() -> VerifyOptions {
        VerifyOptions {
            prompts: Vec::new(),
            decoder_prompts: Vec::new(),
            steps: 0,
            kv: None,
            context: None,
            rewind: None,
            require_device: false,
            further: Vec::new(),
            fallback: None,
            threads: None,
            repro_folder: None,
            fusion: true,
            planted: None,
            arguments: Vec::new(),
        }
    }
}

/// How far a verification is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The prompt in work, counted from 0; the last is the batch of all.
    pub prompt: usize,
    /// How many there are, the batch included.
    pub prompts: usize,
    /// Passes over tokens that are done, of this prompt.
    pub done: usize,
    /// How many there are for each prompt.
    pub all: usize,
}

/// Default number of decode steps.
pub const STEPS_DEFAULT: usize = 8;

/// The default prompt: about 32 tokens of plain English.
pub const TEXT_DEFAULT: &str = "Once upon a time, a little girl named Lily found an old map in a box under her bed. She \
                                asked her brother to help her look for the place.";

/// Compares every node of the model on `device` with f64 on the same inputs, and the whole run with `reference`: each
/// prompt by itself with logits after each token, then all in one batch.
///
/// Fails on prompts that the model cannot take, on devices that fail, and when the model's file changes meanwhile; a
/// device that computes wrongly is no error but an [`Outcome`](crate::Outcome).
pub fn verify(
    model: Arc<ModelFile>,
    device: Arc<dyn Device>,
    reference: Reference,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let has_logits = model.model().spec().has_logits();
    let options = &VerifyOptions { steps: if has_logits { options.steps } else { 0 }, ..options.clone() };
    let (options, sources) = &with_decoder(&model, options.clone())?;
    check(&model, options, sources)?;
    let devices = std::iter::once(device.clone()).chain(options.further.iter().cloned()).collect();
    let weights = Arc::new(Weights::over(model.clone(), devices, options.fallback.clone()));
    let reference_weights = match &reference {
        Reference::Oracle => None,
        Reference::Device(device) => Some(Arc::new(Weights::new(model.clone(), device.clone(), None))),
    };
    let mut run = Verification {
        model: model.clone(),
        weights,
        reference_weights,
        options,
        sources,
        records: Records::new(Explanations::new(
            options.repro_folder.clone(),
            options.planted.as_ref().map(|planted| planted.name.clone()),
            options.arguments.clone(),
        )),
        tokens: Tokens::of(has_logits),
        plain_runs: Vec::new(),
        deterministic: true,
        taps_neutral: true,
        spread: 0.0,
        not_finite: 0,
        continuations: Vec::new(),
        alone: Vec::new(),
        pool: pool(options.threads)?,
    };
    for prompt in 0..options.prompts.len() {
        run.prompt(prompt, progress)?;
    }
    let batch = run.batch(progress)?;
    let model_id = model_hash(&run.pool.install(|| tensor_facts(&model))?);
    model.unchanged()?;
    let device = run.weights.about().into();
    Ok(run.report(device, &reference, batch, model_id))
}

/// Threads for the verifier's own work.
pub(crate) fn pool(threads: Option<usize>) -> Result<Arc<ThreadPool>> {
    if let Some(threads) = threads.filter(|threads| *threads == 0 || *threads > THREADS_MAX) {
        return Err(Error::Request(format!("expected 1 to {THREADS_MAX} threads, found {threads}")));
    }
    let all = || std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let threads = threads.unwrap_or_else(all);
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    Ok(Arc::new(pool.map_err(|error| Error::Request(format!("{threads} threads cannot be started: {error}")))?))
}

/// The options with the prompts of the decoder, and what the encoder reads for each; nothing in a model without one.
fn with_decoder(model: &ModelFile, mut options: VerifyOptions) -> Result<(VerifyOptions, Vec<Vec<u32>>)> {
    let given = std::mem::take(&mut options.decoder_prompts);
    let Some(start) = model.model().spec().decoder_start() else {
        let problem =
            "--decoder-ids: expected an encoder-decoder model, found a model without an encoder; omit the option";
        return if given.is_empty() { Ok((options, Vec::new())) } else { Err(Error::Request(problem.to_owned())) };
    };
    let count = options.prompts.len();
    if !given.is_empty() && given.len() != count {
        let found = given.len();
        let each = if count == 1 { "the prompt".to_owned() } else { format!("each of {count} prompts") };
        return Err(Error::Request(format!(
            "--decoder-ids: expected one list for {each}, found {found}; pass the option once per prompt, or omit it"
        )));
    }
    if let Some(number) = given.iter().position(Vec::is_empty) {
        return Err(Error::Request(format!(
            "--decoder-ids: expected at least one token ID for each prompt, found none for prompt {number}; pass the \
             decoder start token {start}, or omit the option"
        )));
    }
    let decoder = if given.is_empty() { vec![vec![start]; count] } else { given };
    let sources = std::mem::replace(&mut options.prompts, decoder);
    Ok((options, sources))
}

fn check(model: &ModelFile, options: &VerifyOptions, sources: &[Vec<u32>]) -> Result<()> {
    if options.prompts.is_empty() || options.prompts.iter().chain(sources).any(Vec::is_empty) {
        return Err(Error::Request("verify needs at least one prompt, and each prompt at least one token".to_owned()));
    }
    let longest = options.prompts.iter().map(Vec::len).max().unwrap_or(0);
    let room = options.context.unwrap_or(usize::MAX).min(model.model().spec().context_max());
    if let Some(source) = sources.iter().map(Vec::len).max().filter(|source| *source > room) {
        let source = counted(source, "token");
        return Err(Error::Request(format!(
            "a prompt of {source} exceeds the context of {room}; use a shorter prompt"
        )));
    }
    if longest.checked_add(options.steps).is_none_or(|tokens| tokens > room) {
        return Err(Error::Request(format!(
            "the longest prompt ({}) plus {} exceeds the context of {room}; {}use a shorter prompt or fewer steps (--steps)",
            counted(longest, "token"),
            counted(options.steps, "step"),
            if room < model.model().spec().context_max() { "increase -c, or " } else { "" },
        )));
    }
    Ok(())
}

/// Everything that is learnt on the way.
struct Verification<'a> {
    model: Arc<ModelFile>,
    weights: Arc<Weights>,
    reference_weights: Option<Arc<Weights>>,
    /// The prompts are those of the decoder in an encoder-decoder model.
    options: &'a VerifyOptions,
    /// What an encoder reads for each prompt; nothing in other models.
    sources: &'a [Vec<u32>],
    records: Records,
    tokens: Tokens,
    plain_runs: Vec<Arc<Run>>,
    deterministic: bool,
    taps_neutral: bool,
    spread: f64,
    not_finite: usize,
    continuations: Vec<Vec<u32>>,
    /// For each prompt, a plain run on it and its continuation.
    alone: Vec<Arc<Run>>,
    pool: Arc<ThreadPool>,
}

/// How often each node is computed again: as often as plain runs are, where these differ.
fn again(deterministic: bool) -> usize {
    if deterministic { 0 } else { RUNS - 1 }
}

impl<'a> Verification<'a> {
    fn session_options(&self, text: Text) -> SessionOptions {
        let needed = (text.ids.len() + self.options.steps).max(text.source.len());
        let context = self.options.context.unwrap_or(needed);
        let default = SessionOptions::default();
        SessionOptions {
            context: Some(context),
            rewind: self.options.rewind.unwrap_or(default.rewind),
            source: Some(text.source.len()).filter(|tokens| *tokens > 0),
            kv: self.options.kv,
            fusion: self.options.fusion,
            ..default
        }
    }

    /// Runs one prompt plainly, then observed.
    fn prompt(&mut self, number: usize, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        let (prompt, steps) = (&self.options.prompts[number], self.options.steps);
        let text = Text { source: self.source(number), ids: prompt };
        let session_options = self.session_options(text);
        let all = steps + 2;
        let prompts = self.options.prompts.len() + 1;
        let mut tell = |done| progress(Progress { prompt: number, prompts, done, all });
        tell(0);
        let repeats = repeat(&self.weights, &session_options, text, steps)?;
        tell(1);
        let length = prompt.len() + steps;
        let mut running = self.running(&session_options, vec![length])?;
        let mut session = Session::new(self.weights.clone(), &session_options)?;
        session.expect_length(0, length);
        let (model, pool) = (self.model.clone(), self.pool.clone());
        let again = again(repeats.deterministic);
        let mut shadow = Shadow::new(model, &mut running, &mut self.records, number, again, pool);
        if !text.source.is_empty() {
            shadow.expect_source(0, text.source);
            session.encode(0, text.source, Some(&mut shadow))?;
        }
        let mut observed = Run::default();
        let mut continuation = Vec::with_capacity(steps);
        let mut ids = prompt.clone();
        for step in 0..=steps {
            shadow.expect(step, &entries(&ids));
            let start = session.len(0);
            let logits = compute(&mut session, &ids, Some(&mut shadow))?;
            observed.add(&logits);
            let mut last = 0;
            for (row, reference) in shadow.reference_logits().chunks(logits.width()).enumerate() {
                let before: Vec<u32> = prompt.iter().chain(&continuation).copied().take(start + row + 1).collect();
                self.tokens.add(number, start + row, &before, reference, logits.row(row));
                last = top(reference) as u32;
            }
            tell(step + 2);
            if step < steps {
                continuation.push(last);
                ids = vec![last];
            }
        }
        self.compare_runs(&session_options, text, repeats, &observed, &continuation)?;
        self.continuations.push(continuation);
        Ok(())
    }

    /// What the encoder reads for a prompt; nothing in a model without one.
    fn source(&self, prompt: usize) -> &'a [u32] {
        self.sources.get(prompt).map_or(&[], Vec::as_slice)
    }

    /// The reference before the first token of sequences that will have these lengths.
    fn running(&self, options: &SessionOptions, lengths: Vec<usize>) -> Result<Running> {
        let Some(weights) = &self.reference_weights else {
            let oracle = Oracle::new(self.model.clone(), self.options.kv, lengths, self.pool.clone());
            return Ok(Running::Oracle(Box::new(oracle)));
        };
        let mut session = Session::new(weights.clone(), options)?;
        lengths.iter().enumerate().for_each(|(sequence, length)| session.expect_length(sequence, *length));
        Ok(Running::Device { session: Box::new(session), results: HashMap::new() })
    }

    /// Compares the observed run with a plain one on the same ids, which is made when the device chose others.
    fn compare_runs(
        &mut self,
        options: &SessionOptions,
        prompt: Text,
        repeats: Repeats,
        observed: &Run,
        continuation: &[u32],
    ) -> Result<()> {
        let first = Arc::new(repeats.first);
        let alone = if repeats.chosen == continuation {
            first.clone()
        } else {
            Arc::new(plain(&self.weights, options, prompt, continuation.len(), Some(continuation))?.0)
        };
        self.compare_taps(observed, &alone, repeats.deterministic);
        self.spread = larger(self.spread, repeats.spread);
        self.not_finite += repeats.not_finite;
        self.plain_runs.push(first);
        self.alone.push(alone);
        Ok(())
    }

    /// Whether looking changes bits, which is asked only of a device that repeats itself, and how far apart the runs
    /// are.
    fn compare_taps(&mut self, observed: &Run, plain: &Run, deterministic: bool) {
        self.deterministic &= deterministic;
        self.taps_neutral &= !self.deterministic || observed.same(plain);
        self.spread = larger(self.spread, observed.distance(plain));
    }

    /// Computes the batch of all prompts plainly, then observed.
    fn batch(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<BatchReport> {
        let room = self.options.context.unwrap_or(usize::MAX).min(self.model.model().spec().context_max());
        let rules = BatchRules::of(self.model.model().spec());
        let batch =
            PromptBatch::new(&self.options.prompts, &self.continuations, room, rules).with_sources(self.sources);
        let options = batch.session_options(&self.session_options(Text { source: &[], ids: &[] }));
        let (number, all) = (self.options.prompts.len(), batch.steps + 2);
        let mut tell = |done| progress(Progress { prompt: number, prompts: number + 1, done, all });
        tell(0);
        let first = batch.plain(&self.weights, &options)?;
        let mut deterministic = true;
        for _ in 1..RUNS {
            let run = batch.plain(&self.weights, &options)?;
            deterministic &= run.same(&first);
            self.spread = larger(self.spread, run.distance(&first));
            self.not_finite += usize::from(!run.is_finite());
        }
        self.not_finite += usize::from(!first.is_finite());
        let alone: Vec<Arc<Run>> =
            batch.sequences.iter().map(|sequence| self.alone(sequence)).collect::<Result<_>>()?;
        let difference = batch.first_difference(&first, &alone);
        tell(1);
        let is_known = deterministic && difference.is_none() && self.are_compared(&batch, &alone);
        let observed = self.observed_batch(&batch, &options, (deterministic, is_known), &mut tell)?;
        self.compare_taps(&observed, &first, deterministic);
        let difference = self.deterministic.then_some(difference);
        let promised = self.weights.devices().iter().all(|device| device.about().batch_invariant);
        Ok(batch.report(difference, promised))
    }

    /// Whether each separate run was observed, so that its logits were compared with the reference. False if a node
    /// declares f64 results: these are judged against the reference of each node, so the reference must run.
    fn are_compared(&self, batch: &PromptBatch, alone: &[Arc<Run>]) -> bool {
        let mut pairs = batch.sequences.iter().zip(alone);
        let are_observed = pairs.all(|(sequence, run)| Arc::ptr_eq(run, &self.alone[sequence.prompt]));
        let mut phases = self.records.all().iter().flat_map(|record| &record.phases);
        let is_f64 = phases.any(|phase| phase.profile.output == DType::F64);
        self.deterministic && self.taps_neutral && are_observed && !is_f64
    }

    /// Computes the batch node by node. If `is_known`, its logits have the bits of runs that were compared with the
    /// reference: each node is judged, but the reference does not run freely again.
    fn observed_batch(
        &mut self,
        batch: &PromptBatch,
        options: &SessionOptions,
        (deterministic, is_known): (bool, bool),
        tell: &mut dyn FnMut(usize),
    ) -> Result<Run> {
        let mut running = match is_known {
            true => Running::Known,
            false => self.running(options, batch.lengths().collect())?,
        };
        let mut session = batch.session(&self.weights, options)?;
        let (model, pool, number) = (self.model.clone(), self.pool.clone(), self.options.prompts.len());
        let again = again(self.deterministic && deterministic);
        let mut shadow = Shadow::new(model, &mut running, &mut self.records, number, again, pool);
        for (sequence, source) in batch.sources() {
            shadow.expect_source(sequence, source);
            session.encode(sequence, source, Some(&mut shadow))?;
        }
        let mut observed = Run::default();
        self.tokens.begin_batch();
        for step in 0..=batch.steps {
            let entries = batch.entries(step);
            shadow.expect(step, &entries);
            let logits = session.compute(&entries, Some(&mut shadow))?;
            observed.add(&logits);
            let references = shadow.reference_logits().chunks(logits.width());
            for ((row, reference), (sequence, position)) in references.enumerate().zip(batch.rows(step)) {
                let Sequence { prompt, ids, .. } = &batch.sequences[sequence];
                let before = &ids[..ids.len().min(position + 1)];
                self.tokens.add(*prompt, position, before, reference, logits.row(row));
            }
            tell(step + 2);
        }
        // Oracle and device read the map at different moments.
        self.model.unwritten()?;
        Ok(observed)
    }

    /// A plain run of the sequence alone, with logits after each token.
    fn alone(&self, sequence: &Sequence) -> Result<Arc<Run>> {
        let (prompt, continuation) = (&self.options.prompts[sequence.prompt], &self.continuations[sequence.prompt]);
        // A part of a text has other rows where every token sees the whole text.
        let is_whole = prompt.len() == sequence.ids.len() || !self.model.model().spec().is_bidirectional();
        let is_same =
            prompt.iter().chain(continuation).zip(&sequence.ids).filter(|(a, b)| a == b).count() == sequence.ids.len();
        let has_same_source = sequence.source == self.source(sequence.prompt);
        let is_long = |length: usize| self.model.model().spec().is_long(length);
        let is_as_long = is_long(prompt.len() + self.options.steps) == is_long(sequence.ids.len());
        if is_whole && is_same && has_same_source && is_as_long {
            return Ok(self.alone[sequence.prompt].clone());
        }
        let text = Text { source: &sequence.source, ids: &sequence.ids };
        let options = self.session_options(text);
        Ok(Arc::new(plain(&self.weights, &options, text, 0, None)?.0))
    }

    fn report(self, device: DeviceFacts, reference: &Reference, batch: BatchReport, model_id: String) -> Report {
        let repeat = RepeatReport {
            runs: RUNS,
            deterministic: self.deterministic,
            spread: self.spread.is_finite().then_some(self.spread),
            not_finite: self.not_finite,
            taps_neutral: self.taps_neutral,
            logits_sha256: hash(self.plain_runs.iter().map(|run| &**run)),
        };
        let reference = match reference {
            Reference::Oracle => DeviceFacts {
                name: "ref".to_owned(),
                description: "f64 reference on dequantized weights".to_owned(),
                simulated: false,
            },
            Reference::Device(device) => device.about().into(),
        };
        let (prompts, decoder_prompts) = match self.sources {
            [] => (self.options.prompts.clone(), Vec::new()),
            sources => (sources.to_vec(), self.options.prompts.clone()),
        };
        let mut tokens = self.tokens.report();
        if let Ok(tokenizer) = self.model.tokenizer() {
            tokens.add_texts(&|ids| tokenizer.decode(ids, false));
        }
        Report::new(Findings {
            tokens,
            records: self.records,
            repeat,
            batch,
            model: self.model.path().display().to_string(),
            model_id,
            device,
            reference,
            prompts,
            decoder_prompts,
            continuations: self.continuations,
            steps: self.options.steps,
            kv: self.options.kv.map(|kv| kv.name().to_owned()),
            require_device: self.options.require_device,
            planted: self.options.planted.clone(),
            arguments: self.options.arguments.clone(),
        })
    }
}
