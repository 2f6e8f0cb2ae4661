//! The share of a trace that was checked, and whether it is enough for a pass.
//!
//! ```text
//!   judged      the trace contains the result, and it was compared
//!   computed    it does not, but a later node that depends on it was judged
//!   missing     neither: nothing that was compared depends on it
//! ```
//!
//! A trace written by trueup lists the nodes that were computed and must contain all of them. A trace of another
//! program must contain, for each step, the last result and one node of each layer; then every intermediate result
//! influences a judged one. The output head may be missing if it is missing in all steps.

use serde::Serialize;
use trueup_graph::{Graph, Node, Origin};

/// Names and steps that are listed.
const LISTED_MAX: usize = 32;

/// How much of a trace was looked at, over all steps.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceCoverage {
    /// Steps that the trace announces, or that its ids imply.
    pub steps: usize,
    /// Results of the nodes of all steps. Other shapes of the same values are among them where the trace says that it
    /// holds them.
    pub results: usize,
    /// Those of them that the trace should hold: of its own program, nodes that were computed together with another are
    /// not.
    pub asked: usize,
    /// Results that the trace holds and that were compared.
    pub judged: usize,
    /// Results that it does not hold, with a judged one behind them.
    pub computed: usize,
    /// Results that nothing was compared of.
    pub missing: usize,
    /// Values that were compared.
    pub values: u64,
    /// The smallest share of results that it should hold that were judged in a step.
    pub share: f64,
    /// Whether the trace must hold all results, because its own program says so.
    pub complete: bool,
    /// What must be there in any trace and is not, the first of it.
    pub lacks: Option<String>,
    /// The first result that it should hold and does not.
    #[serde(skip)]
    pub(super) lacking: Option<String>,
    /// How many there are.
    #[serde(skip)]
    pub(super) lacking_count: usize,
    /// Whether the head was judged in a step.
    #[serde(skip)]
    has_head: bool,
    /// The first step that should have one and has none.
    #[serde(skip)]
    headless: Option<String>,
}

/// What a trace does not hold.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Untraced {
    /// How many results.
    pub count: usize,
    /// The first of them, as `STEP/NODE`.
    pub nodes: Vec<String>,
    /// How many steps of which nothing is there.
    pub steps_count: usize,
    /// The first of them.
    pub steps: Vec<usize>,
}

/// One node of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    /// Whether the trace should hold its result.
    pub asked: bool,
    /// Whether any row of it was wanted: of pieces of a prompt, programs compute no logits.
    pub wanted: bool,
    /// Whether its result was compared.
    pub judged: bool,
}

impl TraceCoverage {
    /// Before the first step.
    pub(super) fn new(complete: bool) -> TraceCoverage {
        TraceCoverage {
            steps: 0,
            results: 0,
            asked: 0,
            judged: 0,
            computed: 0,
            missing: 0,
            values: 0,
            share: 1.0,
            complete,
            lacks: None,
            lacking: None,
            lacking_count: 0,
            has_head: false,
            headless: None,
        }
    }

    /// Adds a step: `looked` has an entry for each node of its graph.
    pub(super) fn add(&mut self, untraced: &mut Untraced, graph: &Graph, looked: &[Looked], is_last: bool) {
        let step = self.steps;
        self.steps += 1;
        let leads = leads_to_judged(graph, looked);
        let (mut asked, mut judged) = (0, 0);
        for ((node, found), leads) in graph.nodes().iter().zip(looked).zip(leads) {
            if !found.wanted || (!found.asked && node.op.is_alias()) {
                continue;
            }
            self.results += 1;
            asked += usize::from(found.asked);
            match (found.judged, leads) {
                (true, _) => self.judged += 1,
                (false, true) => self.computed += 1,
                (false, false) => self.missing += 1,
            }
            if found.judged {
                judged += usize::from(found.asked);
                continue;
            }
            untraced.add(step, node);
            if found.asked {
                self.lacking.get_or_insert_with(|| named(step, node));
                self.lacking_count += 1;
            }
        }
        self.asked += asked;
        self.share = self.share.min(if asked == 0 { 0.0 } else { judged as f64 / asked as f64 });
        if !looked.iter().any(|found| found.judged) {
            untraced.add_step(step);
        }
        if self.lacks.is_none() {
            self.lacks = lacks(step, graph, looked, is_last);
        }
        if let (Some(node), Some(head)) = (graph.nodes().last(), looked.last()) {
            self.has_head |= head.judged;
            if !head.judged && (head.wanted || is_last) {
                self.headless.get_or_insert_with(|| named(step, node));
            }
        }
        if self.lacks.is_none() && self.has_head {
            self.lacks = self.headless.as_ref().map(|node| {
                format!(
                    "it lacks {node}, which it contains for \
                another step"
                )
            });
        }
    }

    /// Whether it is enough where a share of the results of each step is `wanted`, or nothing is said.
    pub fn is_enough(&self, wanted: Option<f64>) -> bool {
        let usual = if self.complete { 1.0 } else { 0.0 };
        self.steps > 0 && self.lacks.is_none() && self.share >= wanted.unwrap_or(usual)
    }

    /// How much that is, in words.
    pub(crate) fn in_words(&self) -> String {
        let TraceCoverage { results, judged, computed, missing, steps, .. } = *self;
        let rest = match (computed, missing) {
            (0, 0) => String::new(),
            (computed, 0) => format!(", {computed} intermediate results recomputed"),
            (computed, missing) => {
                format!(", {computed} intermediate results recomputed, and {missing} not checked")
            }
        };
        let steps = trueup_formats::counted(steps, "step");
        format!("{judged} of {results} results in {steps} judged{rest}")
    }
}

impl Untraced {
    fn add(&mut self, step: usize, node: &Node) {
        self.count += 1;
        if self.nodes.len() < LISTED_MAX {
            self.nodes.push(named(step, node));
        }
    }

    fn add_step(&mut self, step: usize) {
        self.steps_count += 1;
        if self.steps.len() < LISTED_MAX {
            self.steps.push(step);
        }
    }
}

fn named(step: usize, node: &Node) -> String {
    format!("{step}/{}", node.name)
}

/// For each node whether a judged one follows from it.
fn leads_to_judged(graph: &Graph, looked: &[Looked]) -> Vec<bool> {
    let mut leads = vec![false; graph.values().len()];
    for (node, found) in graph.nodes().iter().zip(looked).rev() {
        if found.judged || leads[node.output.index()] {
            node.inputs.iter().for_each(|input| leads[input.index()] = true);
        }
    }
    graph.nodes().iter().map(|node| leads[node.output.index()]).collect()
}

/// What any trace must hold of a step and this one does not.
fn lacks(step: usize, graph: &Graph, looked: &[Looked], is_last: bool) -> Option<String> {
    let judged: Vec<&Node> =
        graph.nodes().iter().zip(looked).filter(|(_, found)| found.judged).map(|(node, _)| node).collect();
    if judged.is_empty() {
        return Some(format!("it contains nothing for step {step}"));
    }
    let mut layers = graph.nodes().iter().filter_map(|node| node.layer);
    if let Some(layer) = layers.find(|layer| judged.iter().all(|node| node.layer != Some(*layer))) {
        return Some(format!("it contains nothing for layer {layer} in step {step}"));
    }
    let (last, found) = graph.nodes().last().zip(looked.last())?;
    if !found.wanted && !is_last {
        return None;
    }
    // The head of the model may be left out, but not what goes into it.
    let sources = last.inputs.iter().map(|input| graph.value(*input));
    let mut ends: Vec<&str> =
        sources.filter(|value| matches!(value.origin, Origin::Node(_))).map(|value| value.name.as_str()).collect();
    ends.insert(0, &last.name);
    let has_end = judged.iter().any(|node| ends.contains(&node.name.as_str()));
    (!has_end).then(|| format!("it does not contain the last result of step {step} ({})", ends.join(" or ")))
}
