//! Tables of the page: nodes by operator and verdict, and what was not checked, fell back or is waived.

use super::strip::mark;
use crate::report::Report;
use crate::verdict::Verdict;
use serde::Serialize;

/// How many nodes are in which state.
#[derive(Serialize)]
pub(super) struct Counts {
    on_device: usize,
    fell_back: usize,
    unchecked: usize,
    failing: usize,
    passing: usize,
}

pub(super) fn counts(report: &Report) -> Counts {
    let coverage = &report.coverage;
    let unchecked = coverage.nodes - coverage.checked;
    let judged_elsewhere =
        report.nodes.iter().filter(|node| node.fell_back.is_some() && (node.verdict.passes() || node.verdict.fails()));
    let fell_back = judged_elsewhere.count();
    Counts {
        on_device: coverage.checked.saturating_sub(fell_back),
        fell_back,
        unchecked,
        failing: report.nodes.iter().filter(|node| node.fails()).count(),
        passing: report.nodes.iter().filter(|node| node.verdict.passes()).count(),
    }
}

/// One operator, all its nodes together.
#[derive(Serialize)]
pub(super) struct OperatorRow {
    op: String,
    nodes: usize,
    worst_z: Option<f64>,
    share: f64,
    /// The share, or `None` where it is infinite.
    share_shown: Option<f64>,
    is_bad: bool,
    verdicts: Vec<Count>,
}

#[derive(Serialize)]
pub(super) struct Count {
    mark: &'static str,
    count: usize,
    is_bad: bool,
}

/// The verdicts from bad to good, as the columns of the table are.
pub(super) const COLUMNS: [Verdict; 8] = [
    Verdict::StructuralBug,
    Verdict::NotFinite,
    Verdict::UndeclaredPrecision,
    Verdict::DeclaredLoss,
    Verdict::Rounding,
    Verdict::Exact,
    Verdict::Inconclusive,
    Verdict::Unchecked,
];

/// Operators, the worst first, followed by the sum.
pub(super) fn operators(report: &Report) -> Vec<OperatorRow> {
    let mut names: Vec<&str> = Vec::new();
    for node in &report.nodes {
        if !names.contains(&node.op.as_str()) {
            names.push(&node.op);
        }
    }
    let mut rows: Vec<OperatorRow> = names.iter().map(|name| row(report, name, |op| op == *name)).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    rows.push(row(report, "All", |_| true));
    rows
}

fn row(report: &Report, name: &str, is_own: impl Fn(&str) -> bool) -> OperatorRow {
    let own = || report.nodes.iter().filter(|node| is_own(&node.op));
    let judged = || own().filter(|node| node.verdict.passes() || node.verdict.fails());
    let share = judged().map(|node| node.share.unwrap_or(f64::INFINITY)).fold(0.0, f64::max);
    let worst = judged().flat_map(|node| &node.phases).map(|phase| phase.worst_z.unwrap_or(0.0)).fold(0.0, f64::max);
    let verdicts = COLUMNS.map(|verdict| {
        let count = own().filter(|node| node.verdict == verdict).count();
        Count { mark: mark(verdict), count, is_bad: count > 0 && verdict.fails() }
    });
    OperatorRow {
        op: name.to_owned(),
        nodes: own().count(),
        worst_z: (judged().count() > 0).then_some(worst),
        share,
        share_shown: share.is_finite().then_some(share),
        is_bad: share > 1.0,
        verdicts: verdicts.into_iter().collect(),
    }
}

/// A node that is not simply checked and as it should be.
#[derive(Serialize)]
pub(super) struct Exception {
    node: String,
    state: String,
    reason: String,
    until: String,
}

/// Nodes that were not checked, fell back or are waived.
pub(super) fn exceptions(report: &Report) -> Vec<Exception> {
    let mut found = Vec::new();
    for node in &report.nodes {
        let mut add = |state: String, reason: &str, until: String| {
            found.push(Exception { node: node.node.clone(), state, reason: reason.to_owned(), until });
        };
        if node.verdict == Verdict::Unchecked {
            add("unchecked".to_owned(), "the node was never read", String::new());
        } else if node.verdict == Verdict::Inconclusive {
            add("inconclusive".to_owned(), "exact arithmetic on its inputs is not finite either", String::new());
        }
        if let Some(reason) = &node.fell_back {
            add(format!("fell back to {}", node.device), reason, String::new());
        }
        if let Some(reason) = &node.waived {
            let waivers = report.policy.iter().flat_map(|policy| &policy.waivers);
            let own = waivers.filter(|waiver| waiver.nodes.contains(&node.node) && waiver.reason == *reason);
            let until = own.map(|waiver| waiver.expires.clone()).next().unwrap_or_default();
            add(format!("waived: {}", node.verdict), reason, until);
        }
    }
    found
}
