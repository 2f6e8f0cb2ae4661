//! The map of all nodes, operators downwards and layers across, once for each node by itself and once for the free run.
//!
//! Where there are too many layers for columns that can be pointed at, several share a column, which shows the worst of
//! them.

use super::svg::number;
use crate::detail_report::level;
use crate::precision::LAMBDA;
use crate::report::{NodeReport, Report};
use crate::verdict::Verdict;
use serde::Serialize;

/// Columns of a strip at most.
const COLUMNS_MAX: usize = 48;

/// One strip.
#[derive(Serialize)]
pub(super) struct Strip {
    id: &'static str,
    title: &'static str,
    note: &'static str,
    columns: usize,
    rows: Vec<String>,
    cells: Vec<Cell>,
    /// The worst of each column.
    steps: Vec<Step>,
    labels: Vec<Label>,
}

/// One node, or the worst of those that share a column.
#[derive(Serialize)]
struct Cell {
    row: usize,
    column: usize,
    node: usize,
    class: String,
    mark: &'static str,
    label: String,
    has_drawer: bool,
    is_first_bad: bool,
}

/// One column of the line above a strip.
#[derive(Serialize)]
struct Step {
    column: usize,
    /// Height from the foot in percent.
    height: f64,
    is_over: bool,
    /// What to say about it, where it is the first beyond 1.
    label: Option<String>,
    label_left: bool,
}

#[derive(Serialize)]
struct Label {
    column: usize,
    text: String,
}

/// The name of a node without its layer.
pub(super) fn base(node: &NodeReport) -> &str {
    let suffix = node.layer.map(|layer| format!("-{layer}"));
    suffix.and_then(|suffix| node.node.strip_suffix(suffix.as_str())).unwrap_or(&node.node)
}

/// The node's whole error in the free run by eight times the one that rounding alone should have added up to. `None`:
/// infinite or unknown.
pub(super) fn free_share(node: &NodeReport) -> Option<f64> {
    let (total, expected) = (node.total?, node.total_expected?);
    if total == 0.0 { Some(0.0) } else { Some(total / (LAMBDA * expected)).filter(|share| share.is_finite()) }
}

fn is_judged(node: &NodeReport) -> bool {
    node.verdict.passes() || node.verdict.fails()
}

/// How bad a node is in this strip; below zero where nothing is known.
fn badness(node: &NodeReport, free: bool) -> f64 {
    let known = is_judged(node) && (!free || node.total_expected.is_some() || node.verdict.fails());
    let endless = node.verdict.fails() && node.share.is_none();
    let share = if free && !endless { free_share(node) } else { node.share };
    if known { share.unwrap_or(f64::INFINITY) } else { -1.0 }
}

/// The sign of a verdict.
pub(super) fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::StructuralBug => "✕",
        Verdict::NotFinite => "∞",
        Verdict::UndeclaredPrecision => "≈",
        Verdict::Inconclusive => "?",
        Verdict::Exact | Verdict::Rounding | Verdict::DeclaredLoss | Verdict::Unchecked => "",
    }
}

impl Strip {
    pub fn new(report: &Report, drawers: &[usize], free: bool) -> Strip {
        let layers = report.nodes.iter().filter_map(|node| node.layer).max().map_or(1, |last| last + 1);
        let group = layers.div_ceil(COLUMNS_MAX);
        let columns = layers.div_ceil(group);
        let mut rows: Vec<String> = Vec::new();
        let mut cells: Vec<Cell> = Vec::new();
        let mut seen_layer = false;
        for (index, node) in report.nodes.iter().enumerate() {
            seen_layer |= node.layer.is_some();
            let outside = if seen_layer { columns - 1 } else { 0 };
            let column = node.layer.map_or(outside, |layer| layer / group);
            let row = rows.iter().position(|row| row == base(node)).unwrap_or_else(|| {
                rows.push(base(node).to_owned());
                rows.len() - 1
            });
            let cell = cell(report, index, [row, column], drawers.contains(&index), free);
            match cells.iter_mut().find(|known| (known.row, known.column) == (cell.row, cell.column)) {
                Some(known) if rank(report, index, free) > rank(report, known.node, free) => *known = cell,
                Some(_) => {}
                None => cells.push(cell),
            }
        }
        let (id, title, note) = if free {
            ("free", "Free-running", "Each operator on the device's own inputs: how errors propagate.")
        } else {
            ("isolated", "Isolated", "Each operator on identical inputs: which operator is at fault.")
        };
        let steps = steps(report, &cells, columns, free, group);
        let labels = labels(columns, group);
        Strip { id, title, note, columns, rows, cells, steps, labels }
    }
}

/// The worse node has the higher rank: unwaived failures before all else.
fn rank(report: &Report, node: usize, free: bool) -> (bool, u8, u64) {
    let node = &report.nodes[node];
    let badness = badness(node, free);
    let unknown = u8::from(badness < 0.0);
    // Positive floats are ordered as their bits are.
    (node.fails() && !free, unknown, badness.max(0.0).to_bits())
}

fn cell(report: &Report, index: usize, [row, column]: [usize; 2], has_drawer: bool, free: bool) -> Cell {
    let node = &report.nodes[index];
    let badness = badness(node, free);
    let mut class =
        if badness < 0.0 { "bu".to_owned() } else { format!("b{}", level(Some(badness).filter(|b| b.is_finite()))) };
    if node.fell_back.is_some() {
        class.push_str(" fb");
    }
    if node.waived.is_some() {
        class.push_str(" wv");
    }
    let inherited = free && badness > 1.0 && !node.verdict.fails();
    let mark = if inherited { "›" } else { mark(node.verdict) };
    let words = match (badness < 0.0, inherited) {
        (true, _) => "unchecked".to_owned(),
        (false, true) => format!("{} of its limit, inherited error", number(badness)),
        (false, false) => format!("{} of its limit, {}", number(badness), node.verdict),
    };
    let waived = if node.waived.is_some() { ", waived" } else { "" };
    let label = format!("{}: {words}{waived}", node.node);
    let is_first_bad = report.first_bad.as_ref().is_some_and(|bad| bad.node == node.node);
    Cell { row: row + 1, column: column + 2, node: index, class, mark, label, has_drawer, is_first_bad }
}

/// The height of a share from the foot, in percent: from a thousandth to ten thousand times.
fn height(share: f64) -> f64 {
    let power = share.max(1e-9).log10().clamp(-3.0, 4.3);
    (power + 3.0) / 7.3 * 74.0 + 6.0
}

/// The height at which the line of exactly 1 lies.
pub(super) fn height_of_one() -> f64 {
    height(1.0)
}

fn steps(report: &Report, cells: &[Cell], columns: usize, free: bool, group: usize) -> Vec<Step> {
    let worst = |column: usize| {
        let own = cells.iter().filter(|cell| cell.column == column + 2);
        let judged =
            own.map(|cell| &report.nodes[cell.node]).filter(|node| node.layer.is_some() && node.waived.is_none());
        judged.map(|node| badness(node, free)).fold(-1.0, f64::max)
    };
    let shares: Vec<f64> = (0..columns).map(worst).collect();
    let first_over = shares.iter().position(|share| *share > 1.0);
    let step = |(column, share): (usize, &f64)| Step {
        column: column + 2,
        height: height(*share),
        is_over: *share > 1.0,
        label: (first_over == Some(column)).then(|| {
            let jumps = column == 0 || *share > 3.0 * shares[column - 1];
            let place = if jumps { "jump at" } else { "over at" };
            format!("{place} {}: {}", column * group, number(*share))
        }),
        label_left: column * 2 >= columns,
    };
    shares.iter().enumerate().filter(|(_, share)| **share >= 0.0).map(step).collect()
}

/// Numbers below the columns, not closer than they are wide.
fn labels(columns: usize, group: usize) -> Vec<Label> {
    let every = if columns > 32 {
        8
    } else if columns > 18 {
        4
    } else {
        1
    };
    let shown = (0..columns).filter(|column| column % every == 0);
    shown.map(|column| Label { column: column + 2, text: (column * group).to_string() }).collect()
}
