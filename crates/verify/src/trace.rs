//! Traces: written from a device, and judged, whichever program wrote them.
//!
//! ```text
//!   trace   x ─────────────────────▶ y         both from the program
//!           │                        ▲
//!           └─ f64 on this file's ───┴─ y as declared, sigma        another weight or formula shows at its node
//!              weights                               docs/numerics.md#the-two-references
//! ```
//!
//! The program that wrote a trace is judged like a device: each node on the inputs in the trace, by the noise of the
//! program's arithmetic. Missing tensors are computed from the ones that are present, together with a few noisy runs
//! of the same arithmetic. Their spread is the noise that the next node inherits. In a complete trace, errors do not
//! accumulate over layers, so the first bad node is where the program departs from the model file.

mod coverage;
mod ensemble;
mod first_bad;
mod fit;
mod flips;
mod free;
mod known;
mod model_facts;
mod program;
mod record;
mod report;
mod sentence;
mod terminal;
mod walk;

pub use coverage::{TraceCoverage, Untraced};
pub use free::FreeRun;
pub use record::{Follow, Recorded, Recording, record};
pub use report::{TraceNode, TraceReport};

use crate::model_hash::{model_hash, tensor_facts};
use crate::verify::pool;
use coverage::Looked;
use fit::Fit;
use known::Known;
use model_facts::expect_same_model;
use program::Program;
use report::Findings;
use std::collections::HashSet;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::{Trace, quote};
use trueup_runtime::device::Device;
use trueup_runtime::{Entry, Error, ModelFile, Result};
use walk::Walk;

/// The program of a trace that does not name it.
const UNNAMED: &str = "an unknown program";

/// What is asked of the comparison with a trace.
#[derive(Clone)]
pub struct TraceOptions {
    /// Token ids, where the trace does not hold them.
    pub ids: Option<Vec<u32>>,
    /// The type of the KV cache on the device. `None`: f16.
    pub kv: Option<DType>,
    /// Devices after the judged one. They compute the layers that do not fit into its memory.
    pub further: Vec<Arc<dyn Device>>,
    /// A device for what the judged one cannot compute.
    pub fallback: Option<Arc<dyn Device>>,
    /// Threads that judge; `None` takes as many as the machine has. No result depends on it.
    pub threads: Option<usize>,
    /// Whether the device may fuse nodes. It does only where the trace's program did, so that nodes can be compared one
    /// by one.
    pub fusion: bool,
}

impl Default for TraceOptions {
    /// The trace's own tokens, the device as a model runs.
    fn default() -> TraceOptions {
        TraceOptions { ids: None, kv: None, further: Vec::new(), fallback: None, threads: None, fusion: true }
    }
}

/// The tokens of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceTokens {
    /// All ids: the prompt's, and those that followed.
    pub ids: Vec<u32>,
    /// How many of them each step computed.
    pub steps: Vec<usize>,
}

impl TraceTokens {
    /// The tokens that a trace was made from: its own, or `given` where it does not say them. Fails where nobody says
    /// them, where they do not fit the trace's steps, and where the model has no such ids or no room for them.
    pub fn new(trace: &Trace, given: Option<&[u32]>, model: &ModelFile) -> Result<TraceTokens> {
        let path = quote(&trace.source().path().to_string_lossy());
        let missing = || {
            let is_checkpoint = trace.tensors().iter().any(|tensor| tensor.node.ends_with(".weight"));
            Error::Request(match is_checkpoint {
                true => format!(
                    "{path}: expected a trace, found a model checkpoint; pass a file that `trueup trace` or another \
                     program recorded"
                ),
                false => format!(
                    "{path}: expected the token IDs of the trace, found none; pass them with --ids, or the prompt \
                     with -p"
                ),
            })
        };
        let said = trace.ids();
        // A text may list the prompt only, and go on behind it.
        let longer = given.filter(|given| trace.is_printed() && said.is_some_and(|said| given.starts_with(said)));
        let ids = longer.or(said).or(given).ok_or_else(missing)?.to_vec();
        let spec = model.model().spec();
        if ids.len() > spec.context_length() {
            let (count, context) = (ids.len(), spec.context_length());
            return Err(Error::Request(format!(
                "{path}: expected at most {context} tokens (the model's context), found {count}"
            )));
        }
        if let Some(id) = ids.iter().find(|id| usize::try_from(**id).map_or(true, |id| id >= spec.vocabulary_size())) {
            let last = spec.vocabulary_size().saturating_sub(1);
            let (origin, help) = match said.is_some_and(|said| said.contains(id)) {
                true => ("in the trace", "check that the trace was recorded from this model"),
                false => ("in --ids", "use IDs of this model"),
            };
            return Err(Error::Request(format!(
                "{path}: expected token IDs from 0 to {last}, found {id} {origin}; {help}"
            )));
        }
        let steps = trace.tokens(ids.len())?;
        Ok(TraceTokens { ids, steps })
    }

    /// The entries of each step: one sequence, logits behind each token.
    fn entries(&self) -> Vec<Vec<Entry>> {
        let mut rest = self.ids.as_slice();
        let mut step = |count: &usize| {
            let (now, later) = rest.split_at(*count);
            rest = later;
            now.iter().map(|token| Entry { token: *token, sequence: 0, wants_logits: true }).collect()
        };
        self.steps.iter().map(&mut step).collect()
    }
}

/// Judges a trace by the model's file, and compares the device's free run with it.
///
/// Fails where the trace's shapes are not the model's, where its tokens are unknown, and where the device fails; a
/// trace that the file does not give is no error but an [`Outcome`](crate::Outcome).
pub fn compare_trace(
    model: Arc<ModelFile>,
    device: Arc<dyn Device>,
    trace: &Trace,
    options: &TraceOptions,
) -> Result<TraceReport> {
    let tokens = TraceTokens::new(trace, options.ids.as_deref(), &model)?;
    let program = Program::of(trace)?;
    let pool = pool(options.threads)?;
    let new_walk = || Walk::new(model.clone(), program.kv(), tokens.ids.len(), pool.clone());
    // Another program's trace says nothing about the tensors, and hashing them takes time.
    let facts = if program.is_own() { pool.install(|| tensor_facts(&model))? } else { Vec::new() };
    if program.is_own() {
        expect_same_model(trace, &facts)?;
    }
    expect_fit(trace, &program, &tokens, new_walk())?;
    let mut walk = new_walk();
    let mut findings = Findings::new(trace, &program, &model.path().display().to_string(), &model_hash(&facts));
    for (step, entries) in tokens.entries().iter().enumerate() {
        walk.begin(entries, &program)?;
        findings.expect(walk.graph());
        let mut unwanted = HashSet::new();
        let mut looked = Vec::with_capacity(walk.graph().nodes().len());
        for (index, node) in walk.graph().nodes().to_vec().into_iter().enumerate() {
            let known = Known::of(trace, step, walk.graph(), &node, entries.len())?;
            if known.is_some() {
                program.expect_precise(trace, step, &node.name)?;
            }
            let columns = program.columns(trace, step, &node.name, entries.len());
            let profile = program.profile(walk.graph(), &node, columns);
            let judged = walk.node(index, step, known.as_ref(), &profile, !findings.has_failed(&node))?;
            let judged_now = findings.add(step, walk.graph(), &node, entries.len(), judged);
            // From no rows follow none.
            let wanted =
                !trace.is_unwanted(step, &node.name) && !node.inputs.iter().any(|input| unwanted.contains(input));
            if !wanted {
                unwanted.insert(node.output);
            }
            let asked = program.computes(&node, entries.len()) && wanted;
            looked.push(Looked { asked, wanted, judged: judged_now });
        }
        findings.covers(walk.graph(), &looked, step.saturating_add(1) == tokens.steps.len());
    }
    let free = free::run(&model, device, trace, &tokens.entries(), options, program.fuses())?;
    model.unchanged()?;
    trace.source().unchanged()?;
    Ok(findings.report(tokens, free))
}

/// Fails where the tensors of a trace cannot be results of this model.
fn expect_fit(trace: &Trace, program: &Program, tokens: &TraceTokens, mut walk: Walk) -> Result<()> {
    let mut fit = Fit::new(trace, program.is_own());
    for (step, entries) in tokens.entries().iter().enumerate() {
        walk.begin(entries, program)?;
        fit.step(step, walk.graph(), entries.len());
    }
    fit.expect()
}
