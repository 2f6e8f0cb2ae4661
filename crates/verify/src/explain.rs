//! Explains why a node failed: its fingerprint, its signature, and a file that reproduces the failure.
//!
//! ```text
//!   failing case ──▶ expected values of all elements ──▶ fingerprint: which arithmetic explains it?  ──▶ likely cause
//!                                                    └─▶ signature: which error pattern is it?
//! ```
//!
//! The node is also recomputed, because a race can hide in runs that agree, and is tried with its inputs of the
//! previous step and with inputs of other nodes. Explanations are made while the data is available: for the first
//! failing step of a node in each phase, or a later one if that is more informative, and only for the first few nodes,
//! to limit the time.

mod again;
mod kept;
mod past;

pub(crate) use again::Again;
pub(crate) use past::Supposed;

use crate::bound::{Case, declares_loss, gate};
use crate::fingerprint::{CandidateKind, Fingerprint, fingerprint};
use crate::operand::{Data, Operand};
use crate::record::{Phase, Place, axes, place};
use crate::repro;
use crate::scene::{Scene, usages};
use crate::signature::{Evidence, Signature, SignatureKind, old_activations, signature};
use crate::statistics::{Expected, Statistics};
use crate::verdict::Verdict;
use past::Past;
use serde::Serialize;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use trueup_graph::Op;
use trueup_runtime::Seen;

/// Nodes that are explained at most.
const NODES_MAX: usize = 8;

/// Steps of a phase that a node is explained in at most, where the first ones tell too little.
const STEPS_MAX: usize = 4;

/// Why a node failed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Explanation {
    /// The phase it failed in.
    pub phase: Phase,
    /// The prompt, counted from 0.
    pub prompt: usize,
    /// The step: 0 computes the prompt.
    pub step: usize,
    /// The worst element of that step.
    pub worst: Option<Place>,
    /// The likely cause: a clause without a full stop.
    pub cause: String,
    /// How the result differs when the node is computed again on the same inputs; null where it does not.
    pub again: Option<String>,
    /// What arithmetic would explain it.
    pub fingerprint: Fingerprint,
    /// What pattern the errors have; null where every element by itself is as it should be.
    pub signature: Option<Signature>,
    /// The file that shows the failure alone, where one was asked for.
    pub repro: Option<String>,
    /// Why that file could not be written.
    pub repro_problem: Option<String>,
    /// Whether the cause is one, and not only the place of the errors.
    #[serde(skip)]
    pub(crate) known: bool,
}

impl Explanation {
    /// Whether the cause is one, and not only a description of the errors.
    pub(crate) fn is_cause(&self) -> bool {
        let described = self.signature.as_ref().filter(|found| found.kind == SignatureKind::NotFinite);
        self.known && described.is_none_or(|found| found.text != self.cause)
    }

    /// The cause as a sentence without its full stop.
    pub(crate) fn sentence(&self) -> String {
        cause_sentence(self.cause.clone(), self.is_cause())
    }

    /// Whether differing results are all that is known: old activations and memory that nobody writes differ for a
    /// reason.
    pub(crate) fn is_race(&self) -> bool {
        let certain = self.signature.as_ref().is_some_and(is_certain);
        self.again.as_ref().is_some_and(|again| *again == self.cause) && !certain
    }
}

/// All explanations so far.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Explanations {
    /// Where repro files go.
    folder: Option<PathBuf>,
    /// The name of the fault that was planted on purpose, if any.
    planted: Option<String>,
    /// Flags that said how the device computes, for the files.
    arguments: Vec<String>,
    /// Hashes of the inputs and the result of each node in its last step.
    steps: HashMap<String, [u64; 2]>,
    past: Past,
    /// How many steps each node was explained in, by phase.
    tries: HashMap<(String, Phase), usize>,
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
    /// None so far; repro files go to `folder`, and name the fault that was `planted`, if any, and the flags that said
    /// how the device computes.
    pub fn new(folder: Option<PathBuf>, planted: Option<String>, arguments: Vec<String>) -> Explanations {
        Explanations { folder, planted, arguments, ..Explanations::default() }
    }

    /// The explanations of a node, in the order of its phases.
    pub fn of(&self, node: &str) -> Vec<Explanation> {
        self.all.iter().filter(|(name, _)| name == node).map(|(_, explanation)| explanation.clone()).collect()
    }

    /// Explains the case where it failed and is among the first: the one call that an observer makes behind each
    /// verdict. `first` is what the node gave when it was computed first, where that differs from what is judged.
    pub fn look(
        &mut self,
        case: &Case,
        statistics: &Statistics,
        seen: &Seen<'_>,
        moment: Moment,
        first: Option<&[f64]>,
    ) {
        let node = seen.node();
        let repeats = self.repeats(case, &node.name);
        if gate(case.op).verdict(statistics, false).fails() && self.wants(&node.name, moment.phase) {
            let supposed = self.past.supposed(case, seen.graph, node);
            let scene = Scene::new(case, &usages(seen.graph, node));
            let expected = scene.judged().1;
            let again = Again::of(case, statistics, &expected, seen, first);
            let explained = explain(&scene, statistics, &Before { repeats, supposed, again });
            let Moment { phase, prompt, step } = moment;
            let worst = statistics.worst().map(|worst| place(case.op, &case.output.ty.shape, prompt, step, &worst));
            self.keep(seen, &scene, statistics, Explanation { phase, prompt, step, worst, ..explained });
        }
        self.past.add(case, seen.graph, seen.node, seen.tokens.len());
    }

    /// Keeps an explanation, with a file where one is asked for; where there is one of this phase already, only if it
    /// tells more.
    fn keep(&mut self, seen: &Seen<'_>, scene: &Scene, statistics: &Statistics, mut explanation: Explanation) {
        let name = &seen.node().name;
        *self.tries.entry((name.clone(), explanation.phase)).or_default() += 1;
        let moment = Moment { phase: explanation.phase, prompt: explanation.prompt, step: explanation.step };
        let known = self.all.iter_mut().find(|(node, known)| node == name && known.phase == explanation.phase);
        if let Some((_, known)) = known {
            if explanation.known {
                let (repro, repro_problem) = (known.repro.take(), known.repro_problem.take());
                *known = Explanation { repro, repro_problem, ..explanation };
            }
            return;
        }
        let written = self.of(name).iter().any(|known| known.repro.is_some());
        if let Some(folder) = self.folder.as_ref().filter(|_| !written) {
            let loss = declares_loss(&scene.op, &scene.profile, &scene.output);
            let verdict = refined(gate(&scene.op).verdict(statistics, loss), &explanation, statistics);
            let worst_z = statistics.worst_z.map(|worst| worst.ratio).filter(|ratio| ratio.is_finite());
            let found = repro::Found {
                verdict,
                worst_z,
                moment,
                planted: self.planted.clone(),
                arguments: self.arguments.clone(),
            };
            match repro::write(folder, (name, seen.node), scene, seen.device, &found) {
                Ok(path) => explanation.repro = Some(path.display().to_string()),
                Err(problem) => explanation.repro_problem = Some(problem.to_string()),
            }
        }
        self.all.push((name.clone(), explanation));
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

    /// Whether the node is to be explained in this phase.
    fn wants(&self, node: &str, phase: Phase) -> bool {
        let mut nodes: Vec<&str> = self.all.iter().map(|(name, _)| name.as_str()).collect();
        nodes.dedup();
        let own = |(name, explanation): &&(String, Explanation)| name == node && explanation.phase == phase;
        match self.all.iter().find(own) {
            Some((_, explanation)) => {
                let tries = self.tries.get(&(node.to_owned(), phase)).copied().unwrap_or_default();
                !explanation.known && tries < STEPS_MAX
            }
            None => nodes.len() < NODES_MAX || nodes.contains(&node),
        }
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

/// What is known of a node in addition to its inputs and its result.
#[derive(Clone, Default, Debug)]
pub(crate) struct Before {
    /// Whether the result is bit for bit that of the step before, although the inputs are others.
    pub repeats: bool,
    /// What its inputs may have contained instead of the correct values.
    pub supposed: Vec<Supposed>,
    /// How its results differ on the same inputs.
    pub again: Option<Again>,
}

/// Explains a failed scene.
pub(crate) fn explain(scene: &Scene, statistics: &Statistics, before: &Before) -> Explanation {
    let (_, expected) = scene.judged();
    let worst = statistics.first_broken.or(statistics.worst_z).map_or(0, |worst| worst.index);
    let fingerprint = fingerprint(scene, worst);
    let evidence = Evidence::new(scene, &expected, before.repeats, axes(&scene.op));
    let evidence = Evidence { supposed: &before.supposed, ..evidence };
    let signature = signature(&evidence);
    let again = before.again.as_ref().map(|again| again.text(&evidence.place(&again.elements)));
    let (cause, known) = match &again {
        Some(text) if !signature.as_ref().is_some_and(is_certain) => {
            (first_was_stale(scene, &expected, before).unwrap_or_else(|| text.clone()), true)
        }
        Some(_) | None => cause(&scene.op, &fingerprint, signature.as_ref()),
    };
    let phase = Phase::Prompt;
    let (worst, repro, repro_problem) = (None, None, None);
    Explanation { phase, prompt: 0, step: 0, worst, cause, again, fingerprint, signature, repro, repro_problem, known }
}

/// The verdict once it is known what explains a failure.
pub(crate) fn refined(verdict: Verdict, found: &Explanation, statistics: &Statistics) -> Verdict {
    explained(verdict, found, statistics.broken.unwritten, statistics.raced)
}

/// The same from counts of elements (docs/numerics.md#fingerprint). The same formula in another precision is undeclared
/// precision, unless elements were not written or runs differ. Another formula or a known pattern is a bug, however
/// small the error.
pub(crate) fn explained(verdict: Verdict, found: &Explanation, unwritten: u64, raced: u64) -> Verdict {
    if !verdict.fails() || verdict == Verdict::NotFinite {
        return verdict;
    }
    let known = found.signature.as_ref().is_some_and(|signature| signature.kind != SignatureKind::Unknown);
    let strange = unwritten > 0 || raced > 0;
    match found.fingerprint.kind {
        // What differs although the device repeats itself otherwise is no arithmetic.
        _ if found.again.is_some() && raced == 0 => Verdict::StructuralBug,
        Some(CandidateKind::Precision) if !strange => Verdict::UndeclaredPrecision,
        Some(CandidateKind::Noise) if !strange && !known => Verdict::UndeclaredPrecision,
        Some(CandidateKind::Formula) => Verdict::StructuralBug,
        Some(CandidateKind::Precision | CandidateKind::Noise) | None if known => Verdict::StructuralBug,
        Some(CandidateKind::Precision | CandidateKind::Noise) | None => verdict,
    }
}

/// What the node took by mistake when it was computed first, where it is right on its own inputs later.
fn first_was_stale(scene: &Scene, expected: &[Option<Expected>], before: &Before) -> Option<String> {
    let first = before.again.as_ref()?.first.clone()?;
    let first = Scene { device: first, ..scene.clone() };
    let evidence = Evidence::new(&first, expected, false, axes(&scene.op));
    let (_, text) = old_activations(&Evidence { supposed: &before.supposed, ..evidence })?;
    Some(format!("{text}; recomputed on the same inputs, the node uses the correct ones"))
}

/// A cause, or a description of the errors, as a sentence without its full stop.
pub(crate) fn cause_sentence(cause: String, is_cause: bool) -> String {
    if is_cause { format!("Likely cause: {cause}") } else { capitalized(cause) }
}

/// A clause as the beginning of a sentence.
pub(crate) fn capitalized(clause: String) -> String {
    let mut letters = clause.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// What differs on the same inputs, of a node that was not explained.
pub(crate) fn raced(count: u64, elements: u64) -> String {
    let differ = if count == 1 { "differs" } else { "differ" };
    format!("{count} of {elements} elements {differ} when the node is recomputed on the same inputs")
}

/// What was never written, or is an old result, is no arithmetic.
fn is_certain(signature: &Signature) -> bool {
    matches!(signature.kind, SignatureKind::Unwritten | SignatureKind::Stale)
}

/// The likelier of both: a pattern that is certain; otherwise arithmetic that explains all. Says too whether that is a
/// cause at all.
fn cause(op: &Op, fingerprint: &Fingerprint, signature: Option<&Signature>) -> (String, bool) {
    if let Some(signature) = signature.filter(|signature| is_certain(signature)) {
        return (signature.text.clone(), true);
    }
    let known = signature.filter(|signature| signature.kind != SignatureKind::Unknown);
    let noise = fingerprint.kind == Some(CandidateKind::Noise);
    let formula = fingerprint.kind == Some(CandidateKind::Formula);
    let text = match (&fingerprint.explained_by, known, signature) {
        // Noise takes many patterns for itself: they are more specific.
        (Some(_), Some(known), _) if noise => known.text.clone(),
        // Two indices say as much of the one as of the other.
        (Some(name), Some(known), _) if formula && matches!(op, Op::GetRows(_)) => {
            format!("the device {name}, or {}", known.text)
        }
        (Some(name), _, _) if formula => format!("the device {name}"),
        (Some(name), _, _) => format!("the device {name}, but declares \"{}\"", fingerprint.declared),
        (None, _, Some(signature)) => signature.text.clone(),
        (None, _, None) => "no known arithmetic or pattern explains it: errors are small and spread".to_owned(),
    };
    (text, known.is_some() || (fingerprint.explained_by.is_some() && !noise))
}
