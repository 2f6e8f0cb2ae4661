//! What a trace comes to: each node's verdict, the first that the model's file does not give, and what was not
//! compared.

use super::coverage::{Looked, TraceCoverage, Untraced};
use super::first_bad::{FirstBad, FirstFailure};
use super::free::FreeRun;
use super::model_facts::KEY_MODEL;
use super::program::{KEY_DEVICE, KEY_PROGRAM, Program};
use super::sentence::sentence;
use super::walk::Judged;
use super::{TraceTokens, UNNAMED};
use crate::record::{Place, place, result_shape, weights};
use crate::report::{BadNode, Outcome, Report};
use crate::verdict::Verdict;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use trueup_formats::Trace;
use trueup_graph::{Graph, Node, Origin};

/// Nodes that are named in a sentence.
const NODES_SHOWN: usize = 8;

/// How causes begin that are about what the other program does.
pub(super) const PROGRAM: &str = "its program";

/// The comparison with a trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceReport {
    /// The trace's file.
    pub file: String,
    /// The model's file.
    #[serde(skip)]
    pub(crate) model: String,
    /// The program that made it, as it says.
    pub program: String,
    /// The device that made it, where it is one of ours.
    pub device: Option<String>,
    /// Whether it was made from the same tensors as the model that was compared; null where it does not say.
    pub same_model: Option<bool>,
    /// What it comes to.
    pub result: Outcome,
    /// The result in one sentence.
    pub sentence: String,
    /// The first node of the graph whose trace is not what the file's weights give in some step, as in the first such
    /// step.
    pub first_bad: Option<BadNode>,
    /// Nodes before it that the trace does not hold: what is wrong may be wrong there already.
    pub before_first_bad: Vec<String>,
    /// How much was looked at, over all steps.
    pub coverage: TraceCoverage,
    /// What the trace does not hold.
    pub untraced: Untraced,
    /// Nodes of the model's graph.
    pub graph_nodes: usize,
    /// Nodes with a verdict that says something in each step whose graph has them: which nodes are fused may differ
    /// between steps.
    pub checked: usize,
    /// The others.
    pub unchecked: Vec<String>,
    /// Tensors of the trace that are no nodes of this model.
    pub unknown: usize,
    /// The ids of the trace.
    pub ids: Vec<u32>,
    /// How many of them each step computed.
    pub tokens: Vec<usize>,
    /// All nodes, in the order of computation.
    pub nodes: Vec<TraceNode>,
    /// The device's run on the same tokens, compared with the trace.
    pub free: FreeRun,
    /// Whether no node's inputs are known exactly, so that one fault shows at many nodes.
    #[serde(skip)]
    pub(super) is_printed: bool,
}

/// One node of a trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceNode {
    /// Its name.
    pub node: String,
    /// Its layer; null outside of the layers.
    pub layer: Option<usize>,
    /// Its operator in the step of its worst element.
    pub op: String,
    /// The weight it reads there.
    pub tensor: Option<String>,
    /// The worst verdict of its steps.
    pub verdict: Verdict,
    /// Steps in which it was judged.
    pub steps: usize,
    /// Elements that were compared.
    pub elements: u64,
    /// The largest error in its standard deviations.
    pub worst_z: Option<f64>,
    /// The worst element.
    pub worst: Option<Place>,
}

/// What is learnt step by step.
pub(super) struct Findings {
    report: TraceReport,
    /// Each node's place in the report.
    places: HashMap<String, usize>,
    /// All names in the trace.
    names: HashSet<String>,
    /// The first node that is not what it should be.
    failures: FirstFailure,
    /// For each node, the nodes before it that nothing was compared of since the last one that was.
    gaps: Vec<Vec<String>>,
    /// For each node, the number of steps whose graph has it.
    expected: Vec<usize>,
}

impl Findings {
    /// Before the first step.
    pub fn new(trace: &Trace, program: &Program, model: &str, model_hash: &str) -> Findings {
        let unsaid = match program {
            Program::LlamaCpp { fused_attention: true, .. } => "llama.cpp (eval-callback, flash attention)",
            Program::LlamaCpp { fused_attention: false, .. } => "llama.cpp (eval-callback)",
            Program::Own { .. } | Program::Foreign => UNNAMED,
        };
        let report = TraceReport {
            file: trace.source().path().to_string_lossy().into_owned(),
            model: model.to_owned(),
            program: trace.text(KEY_PROGRAM).unwrap_or(unsaid).to_owned(),
            device: trace.text(KEY_DEVICE).map(str::to_owned),
            same_model: trace.text(KEY_MODEL).filter(|_| program.is_own()).map(|said| said == model_hash),
            result: Outcome::Inconclusive,
            sentence: String::new(),
            first_bad: None,
            before_first_bad: Vec::new(),
            coverage: TraceCoverage::new(program.is_own()),
            untraced: Untraced::default(),
            graph_nodes: 0,
            checked: 0,
            unchecked: Vec::new(),
            unknown: 0,
            ids: Vec::new(),
            tokens: Vec::new(),
            nodes: Vec::new(),
            free: FreeRun::default(),
            is_printed: trace.is_printed(),
        };
        let names = trace.tensors().iter().map(|tensor| tensor.node.clone()).collect();
        let (places, gaps, expected) = (HashMap::new(), Vec::new(), Vec::new());
        Findings { report, places, names, failures: FirstFailure::default(), gaps, expected }
    }

    /// Takes note of the nodes of a step.
    pub fn expect(&mut self, graph: &Graph) {
        let mut previous = None;
        for node in graph.nodes() {
            if let Some(place) = self.places.get(&node.name) {
                self.expected[*place] += 1;
                previous = Some(*place);
                continue;
            }
            self.failures.expect(previous);
            previous = Some(self.report.nodes.len());
            self.places.insert(node.name.clone(), self.report.nodes.len());
            self.expected.push(1);
            self.gaps.push(Vec::new());
            self.report.nodes.push(TraceNode {
                node: node.name.clone(),
                layer: node.layer,
                op: node.op.name().to_owned(),
                tensor: weights(graph, node),
                verdict: Verdict::Unchecked,
                steps: 0,
                elements: 0,
                worst_z: None,
                worst: None,
            });
        }
    }

    /// Whether a node has failed that stands no later in the graph than this one.
    pub fn has_failed(&self, node: &Node) -> bool {
        self.places.get(&node.name).is_some_and(|place| self.failures.is_before(*place))
    }

    /// Adds what a step of so many `tokens` says about a node of its graph; none where the trace holds nothing of it.
    /// Tells whether it says anything.
    pub fn add(&mut self, step: usize, graph: &Graph, node: &Node, tokens: usize, judged: Option<Judged>) -> bool {
        let Some(index) = self.places.get(&node.name).copied() else { return false };
        let before = self.before(graph, node);
        let Some(judged) = judged else {
            let own = if node.op.is_alias() { None } else { Some(node.name.clone()) };
            let mut gaps: Vec<String> = Vec::new();
            before.into_iter().chain(own).for_each(|name| {
                if !gaps.contains(&name) {
                    gaps.push(name)
                }
            });
            self.gaps[index] = gaps;
            return false;
        };
        self.gaps[index] = Vec::new();
        let known = &mut self.report.nodes[index];
        known.elements += judged.statistics.elements;
        let worst = judged.statistics.worst();
        let ratio = worst.map_or(0.0, |worst| worst.ratio);
        let worst = worst.map(|worst| place(&node.op, &result_shape(graph, node, tokens), 0, step, &worst));
        let worse = judged.verdict > known.verdict || known.verdict == Verdict::Unchecked;
        if worse || known.worst_z.is_some_and(|z| judged.verdict == known.verdict && ratio > z) {
            known.worst_z = Some(ratio).filter(|ratio| ratio.is_finite());
            known.worst = worst.clone();
            (known.op, known.tensor) = (node.op.name().to_owned(), weights(graph, node));
        }
        if worse {
            known.verdict = judged.verdict;
        }
        let says = judged.verdict.passes() || judged.verdict.fails();
        self.report.nodes[index].steps += usize::from(says);
        if judged.verdict.fails() {
            let Judged { verdict, cause, is_cause, .. } = judged;
            self.failures.add(FirstBad { place: index, verdict, cause, is_cause, worst, before });
        }
        says
    }

    /// The nodes before a node, in its step's graph, that nothing was compared of since the last one that was.
    fn before(&self, graph: &Graph, node: &Node) -> Vec<String> {
        let sources = node.inputs.iter().map(|input| graph.value(*input));
        sources
            .filter(|value| matches!(value.origin, Origin::Node(_)))
            .filter_map(|value| self.places.get(&value.name))
            .flat_map(|source| self.gaps[*source].clone())
            .collect()
    }

    /// Ends a step, of whose nodes so much was looked at.
    pub fn covers(&mut self, graph: &Graph, looked: &[Looked], is_last: bool) {
        let TraceReport { coverage, untraced, .. } = &mut self.report;
        coverage.add(untraced, graph, looked, is_last);
    }

    /// The whole.
    pub fn report(self, tokens: TraceTokens, free: FreeRun) -> TraceReport {
        let mut report = self.report;
        let said =
            |(node, steps): &(&TraceNode, &usize)| node.steps == **steps && node.verdict != Verdict::Inconclusive;
        let (checked, unchecked): (Vec<_>, Vec<_>) = report.nodes.iter().zip(&self.expected).partition(said);
        report.graph_nodes = report.nodes.len();
        report.checked = checked.len();
        report.unchecked = unchecked.into_iter().map(|(node, _)| node.node.clone()).collect();
        report.unknown = self.names.iter().filter(|name| !self.places.contains_key(*name)).count();
        (report.ids, report.tokens, report.free) = (tokens.ids, tokens.steps, free);
        if let Some(FirstBad { place, verdict, cause, is_cause, worst, before }) = self.failures.found() {
            let TraceNode { node, layer, op, tensor, .. } = report.nodes[place].clone();
            report.first_bad = Some(BadNode { node, layer, op, verdict, tensor, worst, cause, is_cause, repro: None });
            report.before_first_bad = before;
        }
        report.before_first_bad.truncate(NODES_SHOWN);
        report.coverage.values = report.nodes.iter().map(|node| node.elements).sum();
        report.conclude(None);
        report
    }
}

impl TraceReport {
    /// Sets result and sentence from everything else, where a share of the results of each step is `wanted` or nothing
    /// is said.
    pub(crate) fn conclude(&mut self, wanted: Option<f64>) {
        let free = self.free.outcome();
        self.result = if self.first_bad.is_some() || free == Outcome::Fail {
            Outcome::Fail
        } else if !self.coverage.is_enough(wanted) || free == Outcome::Inconclusive {
            Outcome::Inconclusive
        } else {
            Outcome::Pass
        };
        self.sentence = sentence(self, wanted);
    }
}

impl Report {
    /// The report with the comparison of a trace in it, which decides where the device is as it should be.
    #[must_use]
    pub fn with_trace(mut self, trace: TraceReport) -> Report {
        self.trace = Some(trace);
        self.conclude();
        self
    }
}
