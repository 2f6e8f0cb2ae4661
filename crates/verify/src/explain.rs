//! Why a node failed: its fingerprint, its signature and a file that shows it again.
//!
//! ```text
//!   failing case ──▶ every element's expectation ──▶ fingerprint: which arithmetic explains it?  ──▶ one clause: likely cause
//!                                              └──▶ signature: which pattern is it?
//! ```
//!
//! Made while the case is at hand: for the first failing step of a node in each phase, and for the first few nodes only, so that a
//! broken device does not cost hours.

use crate::bound::{Case, declares_loss, gate};
use crate::fingerprint::{CandidateKind, Fingerprint, fingerprint};
use crate::operand::{Data, Operand};
use crate::record::{Phase, axes};
use crate::repro;
use crate::scene::{Scene, usages};
use crate::signature::{Evidence, Signature, SignatureKind, signature};
use crate::statistics::Statistics;
use crate::verdict::Verdict;
use serde::Serialize;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use trueup_graph::Op;
use trueup_runtime::Seen;

/// Nodes that are explained at most.
const NODES_MAX: usize = 8;

/// Why a node failed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Explanation {
    /// The phase it failed in.
    pub phase: Phase,
    /// The prompt, counted from 0.
    pub prompt: usize,
    /// The step: 0 computes the prompt.
    pub step: usize,
    /// The likely cause: a clause without a full stop.
    pub cause: String,
    /// What arithmetic would explain it.
    pub fingerprint: Fingerprint,
    /// What pattern the errors have; null where every element by itself is as it should be.
    pub signature: Option<Signature>,
    /// The file that shows the failure alone, where one was asked for.
    pub repro: Option<String>,
    /// Why that file could not be written.
    pub repro_problem: Option<String>,
}

/// All explanations so far.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Explanations {
    /// Where repro files go.
    folder: Option<PathBuf>,
    /// The name of the fault that was planted on purpose, if any.
    planted: Option<String>,
    /// Hashes of the inputs and the result of each node in its last step.
    steps: HashMap<String, [u64; 2]>,
    /// The last token's activations of each product in its last step.
    activations: HashMap<String, Vec<f64>>,
    all: Vec<(String, Explanation)>,
}

/// When a step is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub phase: Phase,
    pub prompt: usize,
    pub step: usize,
}

impl Explanations {
    /// None so far; repro files go to `folder`, and name the fault that was `planted`, if any.
    pub fn new(folder: Option<PathBuf>, planted: Option<String>) -> Explanations {
        Explanations { folder, planted, ..Explanations::default() }
    }

    /// The explanations of a node, in the order of its phases.
    pub fn of(&self, node: &str) -> Vec<Explanation> {
        self.all.iter().filter(|(name, _)| name == node).map(|(_, explanation)| explanation.clone()).collect()
    }

    /// Explains the case where it failed and is among the first: the one call that an observer makes behind each verdict.
    pub fn look(&mut self, case: &Case, statistics: &Statistics, seen: &Seen<'_>, moment: Moment) {
        let node = seen.node();
        let repeats = self.repeats(case, &node.name);
        let activations = self.activations(case, &node.name);
        if !gate(case.op).verdict(statistics, false).fails() || !self.wants(&node.name, moment.phase) {
            return;
        }
        let scene = Scene::new(case, &usages(seen.graph, node));
        let explained = explain(&scene, statistics, &Before { repeats, activations });
        let mut explanation =
            Explanation { phase: moment.phase, prompt: moment.prompt, step: moment.step, ..explained };
        let written = self.of(&node.name).iter().any(|known| known.repro.is_some());
        if let Some(folder) = self.folder.as_ref().filter(|_| !written) {
            let loss = declares_loss(case.op, case.profile, &case.output.ty);
            let verdict = refined(gate(case.op).verdict(statistics, loss), &explanation, statistics);
            let worst_z = statistics.worst_z.map(|worst| worst.ratio).filter(|ratio| ratio.is_finite());
            let found = repro::Found { verdict, worst_z, moment, planted: self.planted.clone() };
            match repro::write(folder, (&node.name, seen.node), &scene, seen.device, &found) {
                Ok(path) => explanation.repro = Some(path.display().to_string()),
                Err(problem) => explanation.repro_problem = Some(problem.to_string()),
            }
        }
        self.all.push((node.name.clone(), explanation));
    }

    /// Whether the node gives bit for bit what it gave in the step before, although its inputs are others.
    fn repeats(&mut self, case: &Case, node: &str) -> bool {
        if matches!(case.output.data, Data::Blocks(_)) {
            return false;
        }
        let hash = |operands: &[Operand]| {
            let mut hasher = DefaultHasher::new();
            operands.iter().for_each(|operand| add_bits(operand, &mut hasher));
            hasher.finish()
        };
        let now = [hash(case.inputs), hash(&[case.output])];
        let before = self.steps.insert(node.to_owned(), now);
        before.is_some_and(|before| before[0] != now[0] && before[1] == now[1])
    }

    /// The last token's activations in the step before, of a product; takes note of those in this one.
    fn activations(&mut self, case: &Case, node: &str) -> Option<Vec<f64>> {
        let x = case.inputs.get(1).filter(|_| matches!(case.op, Op::MulMat(_)))?;
        let last = x.ty.shape.rows().checked_sub(1)?;
        let row = x.row(last, &mut Vec::new()).to_vec();
        self.activations.insert(node.to_owned(), row)
    }

    /// Whether the node is to be explained in this phase.
    fn wants(&self, node: &str, phase: Phase) -> bool {
        let mut nodes: Vec<&str> = self.all.iter().map(|(name, _)| name.as_str()).collect();
        nodes.dedup();
        let known = self.all.iter().any(|(name, explanation)| name == node && explanation.phase == phase);
        !known && (nodes.len() < NODES_MAX || nodes.contains(&node))
    }
}

/// Adds the bits of numbers and indices; weights and caches are large and not asked for.
fn add_bits(operand: &Operand, hasher: &mut DefaultHasher) {
    match operand.data {
        Data::Numbers(numbers) => numbers.iter().for_each(|number| number.to_bits().hash(hasher)),
        Data::Integers(integers) => integers.hash(hasher),
        Data::Blocks(_) => {}
    }
}

/// What is known of a node's step before.
#[derive(Clone, Default, Debug)]
pub(crate) struct Before {
    /// Whether the result is bit for bit that one, although the inputs are others.
    pub repeats: bool,
    /// The last token's activations, of a product.
    pub activations: Option<Vec<f64>>,
}

/// Explains a failed scene.
pub(crate) fn explain(scene: &Scene, statistics: &Statistics, before: &Before) -> Explanation {
    let (_, expected) = scene.judged();
    let worst = statistics.first_broken.or(statistics.worst_z).map_or(0, |worst| worst.index);
    let fingerprint = fingerprint(scene, worst);
    let evidence = Evidence::new(scene, &expected, before.repeats, axes(&scene.op));
    let signature = signature(&Evidence { before: before.activations.as_deref(), ..evidence });
    let cause = match statistics.raced {
        0 => cause(&fingerprint, signature.as_ref()),
        count => raced(count, statistics.elements),
    };
    let phase = Phase::Prompt;
    let (repro, repro_problem) = (None, None);
    Explanation { phase, prompt: 0, step: 0, cause, fingerprint, signature, repro, repro_problem }
}

/// The verdict once it is known what explains a failure.
pub(crate) fn refined(verdict: Verdict, found: &Explanation, statistics: &Statistics) -> Verdict {
    let steady = statistics.broken.unwritten == 0 && statistics.raced == 0;
    explained(verdict, found, steady)
}

/// The same (NUMERICS 3): the same formula in other precision is undeclared precision, where all was written and no run differs from
/// another (`steady`); another formula or a known pattern is a bug, whatever the size of the error.
pub(crate) fn explained(verdict: Verdict, found: &Explanation, steady: bool) -> Verdict {
    if !verdict.fails() || verdict == Verdict::NotFinite {
        return verdict;
    }
    let known = found.signature.as_ref().is_some_and(|signature| signature.kind != SignatureKind::Unknown);
    match found.fingerprint.kind {
        Some(CandidateKind::Precision | CandidateKind::Noise) if steady => Verdict::UndeclaredPrecision,
        Some(CandidateKind::Formula) => Verdict::StructuralBug,
        Some(CandidateKind::Precision | CandidateKind::Noise) | None if known => Verdict::StructuralBug,
        Some(CandidateKind::Precision | CandidateKind::Noise) | None => verdict,
    }
}

/// What differs on the same inputs has no other pattern.
pub(crate) fn raced(count: u64, elements: u64) -> String {
    let differ = if count == 1 { "differs" } else { "differ" };
    format!("{count} of {elements} elements {differ} when the node is computed again on the same inputs")
}

/// The likelier of both: what was never written, or is an old result, is no arithmetic; otherwise arithmetic that explains all.
fn cause(fingerprint: &Fingerprint, signature: Option<&Signature>) -> String {
    let certain = |signature: &&Signature| matches!(signature.kind, SignatureKind::Unwritten | SignatureKind::Stale);
    if let Some(signature) = signature.filter(certain) {
        return signature.text.clone();
    }
    let known = signature.filter(|signature| signature.kind != SignatureKind::Unknown);
    let noise = fingerprint.kind == Some(CandidateKind::Noise);
    match (&fingerprint.explained_by, known, signature) {
        // Noise takes many patterns for itself: they are more specific.
        (Some(_), Some(known), _) if noise => known.text.clone(),
        (Some(name), _, _) if fingerprint.kind == Some(CandidateKind::Formula) => format!("the device {name}"),
        (Some(name), _, _) => format!("the device {name} but declared {}", fingerprint.declared),
        (None, _, Some(signature)) => signature.text.clone(),
        (None, _, None) => "no known arithmetic or pattern explains it: errors are small and spread".to_owned(),
    }
}
