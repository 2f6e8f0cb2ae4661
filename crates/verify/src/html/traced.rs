//! The comparison with a trace on the page: how much of it was looked at, what it lacks, and its worst nodes.

use super::strip::mark;
use crate::report::{Outcome, Report};
use crate::summary::word;
use crate::trace::TraceNode;
use serde::Serialize;

/// Rows of the table.
const ROWS_MAX: usize = 20;

/// What the page says about a trace.
#[derive(Serialize)]
pub(super) struct Traced {
    word: &'static str,
    is_bad: bool,
    file: String,
    program: String,
    /// How much was looked at.
    words: String,
    values: u64,
    /// Names and steps that are not there, the first of them.
    missing: Vec<String>,
    more: usize,
    unknown: usize,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    node: String,
    op: String,
    mark: &'static str,
    verdict: String,
    is_bad: bool,
    steps: usize,
    elements: u64,
    worst_z: Option<f64>,
    distance: Option<f64>,
}

impl Traced {
    /// None where the report holds no trace.
    pub fn new(report: &Report) -> Option<Traced> {
        let trace = report.trace.as_ref()?;
        let mut nodes: Vec<&TraceNode> = trace.nodes.iter().filter(|node| node.elements > 0).collect();
        let severity = |node: &TraceNode| node.worst_z.unwrap_or(f64::INFINITY);
        nodes.sort_by(|a, b| b.verdict.fails().cmp(&a.verdict.fails()).then(severity(b).total_cmp(&severity(a))));
        let row = |node: &&TraceNode| Row {
            node: node.node.clone(),
            op: node.op.clone(),
            mark: mark(node.verdict),
            verdict: node.verdict.to_string(),
            is_bad: node.verdict.fails(),
            steps: node.steps,
            elements: node.elements,
            worst_z: node.worst_z,
            distance: trace.free.distance(&node.node),
        };
        Some(Traced {
            word: word(trace.result),
            is_bad: trace.result == Outcome::Fail,
            file: trace.file.clone(),
            program: trace.program.clone(),
            words: trace.coverage.in_words(),
            values: trace.coverage.values,
            missing: trace.untraced.nodes.clone(),
            more: trace.untraced.count - trace.untraced.nodes.len(),
            unknown: trace.unknown,
            rows: nodes.iter().take(ROWS_MAX).map(row).collect(),
        })
    }
}
