//! What the page says about one node: its figures, worst elements, explanation, and the command to look again.

use super::figures;
use super::strip::mark;
use super::svg::{grouped, number};
use crate::explain::capitalized;
use crate::pieces::clause;
use crate::report::{NodeReport, PhaseReport, Report};
use crate::verdict::Verdict;
use minijinja::value::Value;
use serde::Serialize;

/// A node with a section of details on the page.
#[derive(Serialize)]
pub(super) struct Drawer {
    node: usize,
    name: String,
    mark: &'static str,
    is_bad: bool,
    /// The one that is shown first.
    is_first: bool,
    about: String,
    said: String,
    phases: Vec<PhaseReport>,
    /// Histogram, quantiles, magnitudes, and the map in two widths; none where no figures were kept.
    figures: Option<[Value; 5]>,
    figures_of: String,
    map_note: String,
    report: NodeReport,
    /// What the pieces of a fused node say, as a sentence without its end.
    pieces_said: Option<String>,
    /// Why it failed, for each phase that was explained.
    explanations: serde_json::Value,
    device: String,
    command: Option<String>,
}

impl Drawer {
    /// Drawers of all nodes that have figures, and of the first bad one in any case.
    pub fn all(report: &Report) -> Vec<Drawer> {
        let bad = report.first_bad.as_ref().and_then(|bad| report.nodes.iter().position(|node| node.node == bad.node));
        let has_figures = |node: &NodeReport| node.phases.iter().any(|phase| phase.detail.is_some());
        let chosen: Vec<usize> =
            (0..report.nodes.len()).filter(|index| has_figures(&report.nodes[*index]) || bad == Some(*index)).collect();
        let share = |index: &usize| report.nodes[*index].share.unwrap_or(f64::INFINITY);
        let worst = chosen.iter().copied().reduce(|a, b| if share(&b) > share(&a) { b } else { a });
        let first = bad.or(worst);
        chosen.iter().map(|index| Drawer::new(report, *index, first == Some(*index))).collect()
    }

    /// The place of the node in the report.
    pub fn node(&self) -> usize {
        self.node
    }

    fn new(report: &Report, index: usize, is_first: bool) -> Drawer {
        let node = &report.nodes[index];
        let shown = node.worst_phase().filter(|phase| phase.detail.is_some());
        let shown = shown.or_else(|| node.phases.iter().find(|phase| phase.detail.is_some()));
        let detail = shown.and_then(|phase| phase.detail.as_ref());
        let figures = detail.map(|detail| {
            [
                figures::histogram(detail),
                figures::quantiles(detail),
                figures::magnitudes(detail),
                figures::error_map(&detail.map, super::WIDE - 64.0),
                figures::error_map(&detail.map, super::NARROW),
            ]
            .map(Value::from_safe_string)
        });
        let map_note = detail.map_or(String::new(), |detail| {
            let block = match detail.map.cell {
                [1, 1] => "each element".to_owned(),
                [elements, rows] => format!("worst of each block of {elements} × {rows} elements"),
            };
            format!("{block}; rows are the tokens of all steps, in order")
        });
        let data = serde_json::to_value(node).ok();
        let mut explanations = data.and_then(|node| node.get("explanations").cloned()).unwrap_or_default();
        let listed = explanations.as_array_mut().into_iter().flatten();
        for (listed, explanation) in listed.zip(&node.explanations) {
            let heading = if explanation.is_cause() { "Likely cause" } else { "Errors" };
            listed["heading"] = heading.into();
            listed["cause"] = capitalized(explanation.cause.clone()).into();
        }
        Drawer {
            node: index,
            name: node.node.clone(),
            mark: mark(node.verdict),
            is_bad: node.verdict.fails(),
            is_first,
            about: about(node),
            said: said(node),
            phases: node.phases.clone(),
            figures,
            figures_of: shown.map_or(String::new(), |phase| phase.phase.to_string()),
            map_note,
            report: node.clone(),
            pieces_said: clause(&node.pieces).map(capitalized),
            explanations,
            device: report.device.name.clone(),
            command: report.run.as_ref().map(|run| run.command.clone()),
        }
    }
}

fn about(node: &NodeReport) -> String {
    let layer = node.layer.map_or(String::new(), |layer| format!(" in layer {layer}"));
    let tensor = node.tensor.as_ref().map_or(String::new(), |tensor| format!(" with {tensor}"));
    format!("{}{layer}{tensor}, on {}", node.op, node.device)
}

/// What the numbers say, in words.
fn said(node: &NodeReport) -> String {
    let Some(phase) = node.worst_phase() else {
        return "The result was not read, so it was not judged.".to_owned();
    };
    let of = |count: u64| format!("{} of {} elements", grouped(count), grouped(phase.elements));
    let numbers = || {
        let shown = |value: Option<f64>| value.map_or("∞".to_owned(), number);
        format!("worst z {}, rms z {}", shown(phase.worst_z), shown(phase.rms_z))
    };
    if phase.unwritten > 0 {
        return format!(
            "{} were never written. This is a missing write, not a loss of precision.",
            of(phase.unwritten)
        );
    }
    if phase.nan + phase.infinite > 0 {
        let broken = of(phase.nan + phase.infinite);
        return format!("{broken} are NaN or infinite where the reference is finite.");
    }
    match node.verdict {
        Verdict::Exact => "Every element equals the declared reference.".to_owned(),
        Verdict::Rounding => format!("The differences are rounding only: {}.", numbers()),
        Verdict::DeclaredLoss => format!("The differences are the declared loss and rounding only: {}.", numbers()),
        Verdict::UndeclaredPrecision => {
            format!(
                "The errors are distributed like rounding errors, but too large for the declared precision: {}.",
                numbers()
            )
        }
        Verdict::StructuralBug => format!("The errors are not rounding errors: {}.", numbers()),
        Verdict::NotFinite => "Some results are NaN or infinite where the reference is finite.".to_owned(),
        Verdict::Unchecked => "The result was not read, so it was not judged.".to_owned(),
        Verdict::Inconclusive => "Exact arithmetic on the same inputs is not finite either.".to_owned(),
    }
}
