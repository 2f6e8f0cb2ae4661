//! The data of the page's script: what the line below the map shows for each node.
//!
//! ```text
//!   {"words": ["mul_mat", "rounding", ...], "nodes": [[name, operator, weight, worst z, share, error, expected, verdict, bad], ...]}
//! ```
//!
//! The full report is a separate JSON document. A copy of it in the page would be two thirds of the page's size.
//! Operators and verdicts are places in `words`, and numbers are written as the page shows them.

use super::svg::number;
use crate::report::{NodeReport, Report};
use serde::Serialize;

/// Shown where nothing was measured.
const NONE: &str = "–";

/// The data for all nodes of a report.
#[derive(Serialize)]
pub(super) struct Readout {
    words: Vec<String>,
    nodes: Vec<Row>,
}

/// One node: name, operator, weight, worst z, share of the limit, error, expected error, verdict, and 1 if it fails.
#[derive(Serialize)]
struct Row(String, usize, String, String, String, String, String, usize, u8);

impl Readout {
    pub fn new(report: &Report) -> Readout {
        let mut words: Vec<String> = Vec::new();
        let mut place = |word: String| {
            words.iter().position(|known| *known == word).unwrap_or_else(|| {
                words.push(word);
                words.len() - 1
            })
        };
        let nodes = report.nodes.iter().map(|node| row(node, &mut place)).collect();
        Readout { words, nodes }
    }
}

fn row(node: &NodeReport, place: &mut impl FnMut(String) -> usize) -> Row {
    let is_judged = node.verdict.passes() || node.verdict.fails();
    let judged = |value: Option<f64>| match is_judged {
        true => value.map_or("∞".to_owned(), number),
        false => NONE.to_owned(),
    };
    let known = |value: Option<f64>| value.map_or(NONE.to_owned(), number);
    let worst = node.phases.iter().try_fold(0.0, |worst: f64, phase| phase.worst_z.map(|z| worst.max(z)));
    let waived = if node.waived.is_some() { ", waived" } else { "" };
    Row(
        node.node.clone(),
        place(node.op.clone()),
        node.tensor.clone().unwrap_or_else(|| NONE.to_owned()),
        judged(worst),
        judged(node.share),
        known(node.total),
        known(node.total_expected),
        place(format!("{}{waived}", node.verdict)),
        u8::from(node.verdict.fails()),
    )
}
