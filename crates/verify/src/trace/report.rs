//! What a trace comes to: each node's verdict, the first that the model's file does not give, and what was not compared.

use super::free::FreeRun;
use super::program::{KEY_DEVICE, KEY_MODEL, KEY_PROGRAM, Program};
use super::record::model_hash;
use super::walk::Judged;
use super::{TraceTokens, UNNAMED};
use crate::record::{Place, element, weights};
use crate::report::{BadNode, Outcome, Report};
use crate::statistics::Statistics;
use crate::verdict::Verdict;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use trueup_formats::{Trace, quote};
use trueup_graph::{Graph, Node, Origin, Shape};
use trueup_runtime::{ModelFile, Result};

/// Nodes that are shown on the terminal, and named in a sentence.
const NODES_SHOWN: usize = 8;

/// The operator that computes nothing.
const RESHAPE: &str = "reshape";

/// The comparison with a trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceReport {
    /// The trace's file.
    pub file: String,
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
    /// The first node, by step and order of computation, whose trace is not what the file's weights give.
    pub first_bad: Option<BadNode>,
    /// Nodes before it that the trace does not hold: what is wrong may be wrong there already.
    pub untraced: Vec<String>,
    /// Nodes of the model's graph.
    pub graph_nodes: usize,
    /// Nodes with a verdict that says something.
    pub checked: usize,
    /// Nodes that the trace does not hold.
    pub unchecked: Vec<String>,
    /// Tensors of the trace that are no nodes of this model.
    pub unknown: usize,
    /// The ids of the trace.
    pub ids: Vec<u32>,
    /// How many of them each step computed.
    pub tokens: Vec<usize>,
    /// All nodes, in the order of computation.
    pub nodes: Vec<TraceNode>,
    /// The device's run on the same tokens, beside the trace.
    pub free: FreeRun,
}

/// One node of a trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceNode {
    /// Its name.
    pub node: String,
    /// Its layer; null outside of the layers.
    pub layer: Option<usize>,
    /// Its operator.
    pub op: String,
    /// The weight it reads.
    pub tensor: Option<String>,
    /// The worst verdict of its steps.
    pub verdict: Verdict,
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
    first_bad: Option<usize>,
    /// For each node, the nodes before it that nothing was compared of since the last one that was.
    gaps: Vec<Vec<String>>,
    /// For each node, the nodes that its inputs come from.
    inputs: Vec<Vec<String>>,
    /// Shapes of the current step's results.
    shapes: Vec<Shape>,
}

impl Findings {
    /// Before the first step.
    pub fn new(trace: &Trace, program: &Program, model: &ModelFile) -> Result<Findings> {
        let said = trace.text(KEY_MODEL);
        let same_model = match said {
            Some(hash) => Some(model_hash(model)? == hash),
            None => None,
        };
        let unsaid = match program {
            Program::LlamaCpp => "llama.cpp (eval-callback)",
            Program::Own { .. } | Program::Foreign => UNNAMED,
        };
        let report = TraceReport {
            file: trace.source().path().to_string_lossy().into_owned(),
            program: trace.text(KEY_PROGRAM).unwrap_or(unsaid).to_owned(),
            device: trace.text(KEY_DEVICE).map(str::to_owned),
            same_model,
            result: Outcome::Inconclusive,
            sentence: String::new(),
            first_bad: None,
            untraced: Vec::new(),
            graph_nodes: 0,
            checked: 0,
            unchecked: Vec::new(),
            unknown: 0,
            ids: Vec::new(),
            tokens: Vec::new(),
            nodes: Vec::new(),
            free: FreeRun::default(),
        };
        let names = trace.tensors().iter().map(|tensor| tensor.node.clone()).collect();
        let (places, gaps) = (HashMap::new(), Vec::new());
        Ok(Findings { report, places, names, first_bad: None, gaps, inputs: Vec::new(), shapes: Vec::new() })
    }

    /// Takes note of the nodes of a step.
    pub fn expect(&mut self, graph: &Graph) {
        self.shapes.clear();
        for node in graph.nodes() {
            self.shapes.push(graph.value(node.output).ty.shape);
            if self.places.contains_key(&node.name) {
                continue;
            }
            let values = node.inputs.iter().map(|input| graph.value(*input));
            let weight = weights(graph, node);
            let sources =
                values.filter(|value| matches!(value.origin, Origin::Node(_))).map(|value| value.name.clone());
            self.inputs.push(sources.collect());
            self.places.insert(node.name.clone(), self.report.nodes.len());
            self.gaps.push(Vec::new());
            self.report.nodes.push(TraceNode {
                node: node.name.clone(),
                layer: node.layer,
                op: node.op.name().to_owned(),
                tensor: weight,
                verdict: Verdict::Unchecked,
                elements: 0,
                worst_z: None,
                worst: None,
            });
        }
    }

    /// Adds what a step says about a node; none where the trace holds nothing of it.
    pub fn add(&mut self, step: usize, node: &Node, judged: Option<Judged>) {
        let Some(place) = self.places.get(&node.name).copied() else { return };
        let before: Vec<String> = self.inputs[place]
            .iter()
            .filter_map(|source| self.places.get(source))
            .flat_map(|source| self.gaps[*source].clone())
            .collect();
        let Some(judged) = judged else {
            let own = if node.op.is_alias() { None } else { Some(node.name.clone()) };
            let mut gaps: Vec<String> = Vec::new();
            before.into_iter().chain(own).for_each(|name| {
                if !gaps.contains(&name) {
                    gaps.push(name)
                }
            });
            self.gaps[place] = gaps;
            return;
        };
        self.gaps[place] = Vec::new();
        let shape = self.shapes.get(place).copied();
        let known = &mut self.report.nodes[place];
        let statistics = &judged.statistics;
        known.elements += statistics.elements;
        let worst = statistics.first_broken.or(statistics.worst_z);
        let ratio = worst.map_or(0.0, |worst| worst.ratio);
        let worse = judged.verdict > known.verdict || known.verdict == Verdict::Unchecked;
        if worse || known.worst_z.is_some_and(|z| judged.verdict == known.verdict && ratio > z) {
            known.worst_z = Some(ratio).filter(|ratio| ratio.is_finite());
            known.worst = shape.and_then(|shape| place_of(node, &shape, step, statistics));
        }
        if known.verdict == Verdict::Unchecked || judged.verdict > known.verdict {
            known.verdict = judged.verdict;
        }
        if judged.verdict.fails() && self.first_bad.is_none() {
            self.first_bad = Some(place);
            self.report.untraced = before;
        }
    }

    /// The whole.
    pub fn report(self, tokens: TraceTokens, free: FreeRun) -> TraceReport {
        let mut report = self.report;
        let said = |node: &&TraceNode| node.verdict != Verdict::Unchecked && node.verdict != Verdict::Inconclusive;
        report.graph_nodes = report.nodes.len();
        report.checked = report.nodes.iter().filter(said).count();
        report.unchecked = report.nodes.iter().filter(|node| !said(node)).map(|node| node.node.clone()).collect();
        report.unknown = self.names.iter().filter(|name| !self.places.contains_key(*name)).count();
        (report.ids, report.tokens, report.free) = (tokens.ids, tokens.steps, free);
        report.first_bad = self.first_bad.map(|place| {
            let TraceNode { node, layer, op, tensor, verdict, worst, .. } = report.nodes[place].clone();
            BadNode { node, layer, op, verdict, tensor, worst, cause: None, repro: None }
        });
        report.untraced.truncate(NODES_SHOWN);
        report.result = if report.first_bad.is_some() || report.free.outcome() == Outcome::Fail {
            Outcome::Fail
        } else if report.checked == 0 || report.free.outcome() == Outcome::Inconclusive {
            Outcome::Inconclusive
        } else {
            Outcome::Pass
        };
        report.sentence = sentence(&report);
        report
    }
}

/// The worst element of a step.
fn place_of(node: &Node, shape: &Shape, step: usize, statistics: &Statistics) -> Option<Place> {
    let worst = statistics.first_broken.or(statistics.worst_z)?;
    let finite = |value: f64| value.is_finite().then_some(value);
    let whole = worst.index >= shape.elements();
    let element = if whole { "the sum of all elements".to_owned() } else { element(&node.op, shape, worst.index) };
    Some(Place { prompt: 0, step, element, device: finite(worst.device), expected: finite(worst.expected) })
}

fn sentence(report: &TraceReport) -> String {
    let (file, program) = (quote(&report.file), quote(&report.program));
    let Some(bad) = &report.first_bad else {
        let free = report.free.sentence();
        return if report.checked == 0 {
            format!("No tensor of the trace {file} is a node of this model: its names are others.")
        } else if report.result == Outcome::Pass {
            let (checked, all) = (report.checked, report.graph_nodes);
            format!(
                "The trace {file} of {program} is what the file's weights give, in all {checked} of {all} nodes it holds."
            )
        } else {
            format!("All nodes of the trace {file} are what the file's weights give, but {free}.")
        };
    };
    let layer = bad.layer.map_or(String::new(), |layer| format!(" in layer {layer}"));
    let tensor = bad.tensor.as_ref().map_or(String::new(), |tensor| format!(" with {}", quote(tensor)));
    let before = match report.untraced.as_slice() {
        [] => String::new(),
        names => format!(", or {} before it, which the trace does not hold", names.join(", ")),
    };
    let number = |value: Option<f64>| value.map_or("no number".to_owned(), |value| format!("{value:.6e}"));
    let place = bad.worst.as_ref().map_or(String::new(), |worst| {
        let (expected, found) = (number(worst.expected), number(worst.device));
        format!(" at {} of step {}: the file gives {expected}, the trace has {found}", worst.element, worst.step)
    });
    let kind = match bad.verdict {
        Verdict::UndeclaredPrecision => "is further from what the file gives than rounding in its program explains",
        Verdict::NotFinite => "holds NaN or infinity where the file gives numbers",
        Verdict::StructuralBug | Verdict::Exact | Verdict::Rounding | Verdict::DeclaredLoss => {
            "is not what the file gives, by more than any rounding"
        }
        Verdict::Unchecked | Verdict::Inconclusive => "could not be judged",
    };
    format!(
        "The first bad node of the trace {file} of {program} is {} ({}){layer}{tensor}{before}: its result {kind}{place}. Next: compare \
         that tensor of the file with the other program's, then what the formula takes from the configuration (epsilon, base of rope, \
         scale).",
        bad.node, bad.op
    )
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

impl TraceReport {
    /// Lines for a terminal.
    pub(crate) fn to_terminal(&self) -> String {
        let mut text = String::new();
        let device = self.device.as_ref().map_or(String::new(), |device| format!(", device {}", quote(device)));
        let model = match self.same_model {
            Some(true) => ", of the same tensors",
            Some(false) => ", of other tensors than this file's",
            None => "",
        };
        let (file, program) = (quote(&self.file), quote(&self.program));
        line(&mut text, &format!("\ntrace      {file}, by {program}{device}{model}"));
        // Other shapes of the same bytes say nothing by themselves.
        let is_view = |name: &&String| self.nodes.iter().any(|node| node.node == **name && node.op == RESHAPE);
        let missing: Vec<&str> = self.unchecked.iter().filter(|name| !is_view(name)).map(String::as_str).collect();
        let shown: Vec<&str> = missing.iter().copied().take(NODES_SHOWN).collect();
        let more = if missing.len() > shown.len() { ", ..." } else { "" };
        let missing = match shown.as_slice() {
            [] => String::new(),
            names => format!("; not in it: {}{more}", names.join(", ")),
        };
        let (all, checked, unknown) = (self.graph_nodes, self.checked, self.unknown);
        line(
            &mut text,
            &format!("           {checked} of {all} nodes judged{missing}; {unknown} names in it are no nodes"),
        );
        let mut nodes: Vec<&TraceNode> = self.nodes.iter().filter(|node| node.elements > 0).collect();
        let severity = |node: &TraceNode| node.worst_z.unwrap_or(f64::INFINITY);
        nodes.sort_by(|a, b| b.verdict.fails().cmp(&a.verdict.fails()).then(severity(b).total_cmp(&severity(a))));
        line(&mut text, "  worst nodes         operator       verdict               max |z|   device's distance");
        for node in nodes.iter().take(NODES_SHOWN) {
            let z = node.worst_z.map_or("-".to_owned(), |z| format!("{z:.2}"));
            let distance = self.free.distance(&node.node).map_or("-".to_owned(), |distance| format!("{distance:.1e}"));
            let verdict = node.verdict.to_string();
            line(&mut text, &format!("  {:19} {:14} {verdict:20} {z:>8} {distance:>19}", node.node, node.op));
        }
        text
    }
}

fn line(text: &mut String, content: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{content}");
}
