//! Traces: written of what a device computes, and judged, whoever wrote them.
//!
//! ```text
//!   trace   x ─────────────────────▶ y         both as the program had them
//!           │                        ▲
//!           └─ f64 on this file's ───┴─ y as declared, sigma        another weight or formula shows at its node (NUMERICS 1)
//!              weights
//! ```
//!
//! The program that made the trace is judged as a device is: each node on the inputs that the trace itself has, by the noise of that
//! program's arithmetic. What the trace does not hold is computed from what it does, together with a few noisy runs of the same
//! arithmetic, whose spread is the noise that the next node inherits. Errors do not add up over layers where the trace is complete, so
//! the first bad node is where model file and program part.

mod ensemble;
mod free;
mod known;
mod program;
mod record;
mod report;
mod walk;

pub use free::FreeRun;
pub use record::{Follow, Recorded, Recording, record};
pub use report::{TraceNode, TraceReport};

use crate::verify::pool;
use known::Known;
use program::Program;
use report::Findings;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::{Trace, quote};
use trueup_runtime::device::Device;
use trueup_runtime::{CAPACITY_UNIT, Entry, Error, ModelFile, Result};
use walk::Walk;

/// The program of a trace that does not name it.
const UNNAMED: &str = "an unnamed program";

/// What is asked of the comparison with a trace.
#[derive(Clone, Default)]
pub struct TraceOptions {
    /// Token ids, where the trace does not hold them.
    pub ids: Option<Vec<u32>>,
    /// The type of the KV cache on the device. `None`: f16.
    pub kv: Option<DType>,
    /// A device for what the judged one cannot compute.
    pub fallback: Option<Arc<dyn Device>>,
    /// Threads that judge; `None` takes as many as the machine has. No result depends on it.
    pub threads: Option<usize>,
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
    /// The tokens that a trace was made from: its own, or `given` where it does not say them. Fails where nobody says them, where they do
    /// not fit the trace's steps, and where the model has no such ids or no room for them.
    pub fn new(trace: &Trace, given: Option<&[u32]>, model: &ModelFile) -> Result<TraceTokens> {
        let path = trace.source().path().to_string_lossy();
        let missing = || {
            let path = quote(&path);
            Error::Request(format!("{path} does not say its token ids; give them with --ids, or the prompt with -p"))
        };
        let ids = trace.ids().or(given).ok_or_else(missing)?.to_vec();
        let hyper = model.model().hyper();
        if ids.len() > hyper.context() {
            let (count, context) = (ids.len(), hyper.context());
            return Err(Error::Request(format!(
                "the trace has {count} tokens, more than the model's context of {context}"
            )));
        }
        if let Some(id) = ids.iter().find(|id| **id as usize >= hyper.vocabulary()) {
            let last = hyper.vocabulary() - 1;
            return Err(Error::Request(format!(
                "token {id} of the trace is not in the vocabulary, whose ids end at {last}"
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
/// Fails where the trace's shapes are not the model's, where its tokens are unknown, and where the device fails; a trace that the file
/// does not give is no error but an [`Outcome`](crate::Outcome).
pub fn compare_trace(
    model: Arc<ModelFile>,
    device: Arc<dyn Device>,
    trace: &Trace,
    options: &TraceOptions,
) -> Result<TraceReport> {
    let tokens = TraceTokens::new(trace, options.ids.as_deref(), &model)?;
    let program = Program::of(trace)?;
    let pool = pool(options.threads)?;
    let room = tokens.ids.len().next_multiple_of(CAPACITY_UNIT);
    let mut walk = Walk::new(model.clone(), program.kv(), room, pool);
    let mut findings = Findings::new(trace, &program, &model)?;
    for (step, entries) in tokens.entries().iter().enumerate() {
        walk.begin(entries)?;
        findings.expect(walk.graph());
        for index in 0..walk.graph().nodes().len() {
            let node = walk.graph().nodes()[index].clone();
            let known = Known::of(trace, step, walk.graph(), &node, entries.len())?;
            if known.is_some() {
                program.expect_precise(trace, step, &node.name)?;
            }
            let profile = program.profile(walk.graph(), &node, entries.len());
            let judged = walk.node(index, step, known.as_ref(), &profile, !findings.has_failed())?;
            findings.add(step, &node, judged);
        }
    }
    let free = free::run(&model, device, trace, &tokens.entries(), options)?;
    model.unchanged()?;
    trace.source().unchanged()?;
    Ok(findings.report(tokens, free))
}
