//! The run: plain runs first, then the observed one beside the reference, then the verdict.

use crate::explain::Explanations;
use crate::record::Records;
use crate::repeat::{RUNS, RepeatReport, Repeats, Run, compute, hash, larger, plain, repeat};
use crate::report::{DeviceFacts, Findings, Report};
use crate::running::{Oracle, Running};
use crate::shadow::Shadow;
use crate::tokens::{Tokens, top};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::device::Device;
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
#[derive(Clone, Default)]
pub struct VerifyOptions {
    /// Ids of each prompt; none may be empty.
    pub prompts: Vec<Vec<u32>>,
    /// Tokens to compute behind each prompt, on the reference's choices.
    pub steps: usize,
    /// The type of the KV cache, on the device and on the reference. `None`: f16 on the device, f64 on the oracle.
    pub kv: Option<DType>,
    /// Tokens that a sequence can hold. `None`: as many as prompt and steps need.
    pub context: Option<usize>,
    /// Whether a node that the device cannot compute makes the result inconclusive.
    pub require_device: bool,
    /// A device for what the judged one cannot compute.
    pub fallback: Option<Arc<dyn Device>>,
    /// Where a file goes that shows the failure alone, for each of the first failing nodes.
    pub repro_folder: Option<PathBuf>,
}

/// How far a verification is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The prompt in work, counted from 0.
    pub prompt: usize,
    /// How many there are.
    pub prompts: usize,
    /// Passes over tokens that are done, of this prompt.
    pub done: usize,
    /// How many there are for each prompt.
    pub all: usize,
}

/// Steps that a verification takes when nobody says how many.
pub const STEPS_DEFAULT: usize = 8;

/// The prompt of a verification when nobody gives one: about 32 tokens of plain English.
pub const TEXT_DEFAULT: &str = "Once upon a time, a little girl named Lily found an old map in a box under her bed. She \
                                asked her brother to help her look for the place.";

/// Compares every node of the model on `device` with f64 on the same inputs, and the whole run with `reference`.
///
/// Fails on prompts that the model cannot take, on devices that fail, and when the model's file changes meanwhile; a device that
/// computes wrongly is no error but an [`Outcome`](crate::Outcome).
pub fn verify(
    model: Arc<ModelFile>,
    device: Arc<dyn Device>,
    reference: Reference,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    check(&model, options)?;
    let weights = Arc::new(Weights::new(model.clone(), device.clone(), options.fallback.clone()));
    let reference_weights = match &reference {
        Reference::Oracle => None,
        Reference::Device(device) => Some(Arc::new(Weights::new(model.clone(), device.clone(), None))),
    };
    let mut run = Verification {
        model: model.clone(),
        weights,
        reference_weights,
        options,
        records: Records::new(Explanations::new(options.repro_folder.clone())),
        tokens: Tokens::default(),
        plain_runs: Vec::new(),
        deterministic: true,
        taps_neutral: true,
        spread: 0.0,
        not_finite: 0,
        continuations: Vec::new(),
    };
    for prompt in 0..options.prompts.len() {
        run.prompt(prompt, progress)?;
    }
    model.unchanged()?;
    Ok(run.report(device.about().into(), &reference))
}

fn check(model: &ModelFile, options: &VerifyOptions) -> Result<()> {
    if options.prompts.is_empty() || options.prompts.iter().any(Vec::is_empty) {
        return Err(Error::Request("verify needs at least one prompt, and each prompt at least one token".to_owned()));
    }
    let longest = options.prompts.iter().map(Vec::len).max().unwrap_or(0);
    let room = options.context.unwrap_or(usize::MAX).min(model.model().hyper().context());
    if longest.checked_add(options.steps).is_none_or(|tokens| tokens > room) {
        return Err(Error::Request(format!(
            "the longest prompt of {longest} tokens and {} steps are more than the context of {room}; take fewer steps or a \
             shorter prompt",
            options.steps
        )));
    }
    Ok(())
}

/// Everything that is learnt on the way.
struct Verification<'a> {
    model: Arc<ModelFile>,
    weights: Arc<Weights>,
    reference_weights: Option<Arc<Weights>>,
    options: &'a VerifyOptions,
    records: Records,
    tokens: Tokens,
    plain_runs: Vec<Run>,
    deterministic: bool,
    taps_neutral: bool,
    spread: f64,
    not_finite: usize,
    continuations: Vec<Vec<u32>>,
}

impl Verification<'_> {
    fn session_options(&self, prompt: &[u32]) -> SessionOptions {
        let context = self.options.context.unwrap_or(prompt.len() + self.options.steps);
        SessionOptions { context: Some(context), kv: self.options.kv, ..SessionOptions::default() }
    }

    /// Runs one prompt plainly, then observed.
    fn prompt(&mut self, number: usize, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        let (prompt, steps) = (&self.options.prompts[number], self.options.steps);
        let session_options = self.session_options(prompt);
        let all = steps + 2;
        let mut tell = |done| progress(Progress { prompt: number, prompts: self.options.prompts.len(), done, all });
        tell(0);
        let repeats = repeat(&self.weights, &session_options, prompt, steps)?;
        tell(1);
        let mut running = self.running(&session_options)?;
        let mut session = Session::new(self.weights.clone(), &session_options)?;
        let mut shadow = Shadow::new(self.model.clone(), &mut running, &mut self.records, number);
        let mut observed = Run::default();
        let mut continuation = Vec::with_capacity(steps);
        let mut ids = prompt.clone();
        for step in 0..=steps {
            shadow.expect(step, &ids);
            let start = session.len(0);
            let logits = compute(&mut session, &ids, Some(&mut shadow))?;
            observed.add(&logits);
            let vocabulary = self.model.model().hyper().vocabulary();
            let mut last = 0;
            for (row, reference) in shadow.reference_logits().chunks(vocabulary).enumerate() {
                self.tokens.add(number, start + row, reference, logits.row(row));
                last = top(reference) as u32;
            }
            tell(step + 2);
            if step < steps {
                continuation.push(last);
                ids = vec![last];
            }
        }
        self.compare_runs(&session_options, prompt, repeats, &observed, &continuation)?;
        self.continuations.push(continuation);
        Ok(())
    }

    fn running(&self, options: &SessionOptions) -> Result<Running> {
        Ok(match &self.reference_weights {
            None => Running::Oracle(Box::new(Oracle::new(self.model.clone(), self.options.kv))),
            Some(weights) => {
                Running::Device { session: Box::new(Session::new(weights.clone(), options)?), results: HashMap::new() }
            }
        })
    }

    /// Compares the observed run with a plain one on the same ids, which is made when the device chose others.
    fn compare_runs(
        &mut self,
        options: &SessionOptions,
        prompt: &[u32],
        repeats: Repeats,
        observed: &Run,
        continuation: &[u32],
    ) -> Result<()> {
        let same_ids = repeats.chosen == continuation;
        let neutral = if same_ids {
            observed.same(&repeats.first)
        } else {
            let (run, _) = plain(&self.weights, options, prompt, continuation.len(), Some(continuation))?;
            observed.same(&run)
        };
        self.taps_neutral &= neutral;
        self.deterministic &= repeats.deterministic;
        self.spread = larger(self.spread, repeats.spread);
        self.not_finite += repeats.not_finite;
        self.plain_runs.push(repeats.first);
        Ok(())
    }

    fn report(self, device: DeviceFacts, reference: &Reference) -> Report {
        let repeat = RepeatReport {
            runs: RUNS,
            deterministic: self.deterministic,
            spread: self.spread.is_finite().then_some(self.spread),
            not_finite: self.not_finite,
            taps_neutral: self.taps_neutral,
            logits_sha256: hash(self.plain_runs.iter()),
        };
        let reference = match reference {
            Reference::Oracle => DeviceFacts {
                name: "ref".to_owned(),
                description: "the oracle: f64 on dequantized weights".to_owned(),
                simulated: false,
            },
            Reference::Device(device) => device.about().into(),
        };
        Report::new(Findings {
            tokens: self.tokens.report(),
            records: self.records,
            repeat,
            model: self.model.path().display().to_string(),
            device,
            reference,
            prompts: self.options.prompts.clone(),
            continuations: self.continuations,
            steps: self.options.steps,
            require_device: self.options.require_device,
        })
    }
}
