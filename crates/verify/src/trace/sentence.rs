//! One sentence that sums up the comparison with a trace: what was looked at, what is wrong or missing, and what to do
//! next.

use super::TraceReport;
use super::report::PROGRAM;
use crate::next::file_word;
use crate::record::Shown;
use crate::report::{BadNode, Outcome};
use crate::sentence::named_weights;
use crate::verdict::Verdict;
use trueup_formats::{counted, quote};

/// The result in one sentence; `wanted` is the share of results that were asked for.
pub(super) fn sentence(report: &TraceReport, wanted: Option<f64>) -> String {
    let (file, program, model) = (quote(&report.file), quote(&report.program), quote(&report.model));
    let words = report.coverage.in_words();
    match (report.result, &report.first_bad) {
        (Outcome::Fail, Some(bad)) => failure(report, bad),
        (Outcome::Pass, _) => {
            let seen = if report.is_printed {
                " The trace is text: only the printed values and the sum of each result were compared."
            } else {
                ""
            };
            format!(
                "The trace {file}, written by {program}, matches the weights in {model} in everything that it contains: \
                {words}.{seen}"
            )
        }
        (Outcome::Inconclusive, _) if report.coverage.judged == 0 && report.unknown > 0 => {
            format!("No tensor of the trace {file} is a node of this model: the names differ.")
        }
        (Outcome::Inconclusive, _) if !report.coverage.is_enough(wanted) => {
            let lack = lack(report, wanted);
            format!(
                "The trace {file}, written by {program}, does not contain enough to judge it: {lack}. Everything that was \
                    checked is correct: {words}. Next: record the trace with all nodes of all steps."
            )
        }
        (Outcome::Fail | Outcome::Inconclusive, _) => {
            let free = report.free.sentence();
            format!("The trace {file} matches the weights in {model} ({words}), but {free}.")
        }
    }
}

/// What is missing.
fn lack(report: &TraceReport, wanted: Option<f64>) -> String {
    let coverage = &report.coverage;
    if let Some(lacks) = &coverage.lacks {
        return lacks.clone();
    }
    let Some(first) = &coverage.lacking else {
        return "it names no node that its program computed".to_owned();
    };
    let (count, asked) = (coverage.lacking_count, coverage.asked);
    match wanted {
        None => format!("it lacks {count} of {asked} results that its program computed, first {first}"),
        Some(wanted) => {
            let share = coverage.share;
            format!(
                "in one step only {share:.3} of the results are judged ({wanted} required); the first that is not \
                    judged is {first}"
            )
        }
    }
}

fn failure(report: &TraceReport, bad: &BadNode) -> String {
    let (file, program, model) = (quote(&report.file), quote(&report.program), quote(&report.model));
    let layer = bad.layer.map_or(String::new(), |layer| format!(", layer {layer}"));
    let tensor = bad.tensor.as_ref().map_or(String::new(), |tensor| format!(", {}", named_weights(tensor)));
    let before = match report.before_first_bad.as_slice() {
        [] => String::new(),
        names => format!(" (or {} before it, which the trace does not contain)", names.join(", ")),
    };
    let place = bad.worst.as_ref().map_or(String::new(), |worst| {
        let Shown { expected, device: found } = &worst.shown;
        format!(". Worst element: {} of step {}: expected {expected}, found {found}", worst.element, worst.step)
    });
    let kind = match bad.verdict {
        Verdict::UndeclaredPrecision => {
            format!(
                "Its result differs from the result computed from {model} by more than rounding in its program can cause"
            )
        }
        Verdict::NotFinite => format!("Its result is NaN or infinite where the result computed from {model} is finite"),
        Verdict::StructuralBug | Verdict::Exact | Verdict::Rounding | Verdict::DeclaredLoss => {
            format!("Its result differs from the result computed from {model} by more than rounding can cause")
        }
        Verdict::Unchecked | Verdict::Inconclusive => "Its result could not be judged".to_owned(),
    };
    let cause = bad.cause_sentence().map_or(String::new(), |cause| format!(". {cause}"));
    let next = next(report, bad);
    format!(
        "First faulty node of the trace {file}, written by {program}: {} ({}){layer}{tensor}{before}. \
         {kind}{place}{cause}. Next: {next}.",
        bad.node, bad.op
    )
}

/// What to do about a failure.
fn next(report: &TraceReport, bad: &BadNode) -> String {
    let weighted = || report.nodes.iter().filter(|node| node.tensor.is_some() && node.elements > 0);
    let (judged, failing) = (weighted().count(), weighted().filter(|node| node.verdict.fails()).count());
    // Each node has the trace's own inputs, so that one wrong weight shows at one node.
    if !report.is_printed && failing * 2 > judged {
        let differ = if failing == 1 { "differs" } else { "differ" };
        return format!(
            "{failing} of {} with a weight {differ}, so the trace probably has other weights: compare {} with the \
                model that the trace was recorded from",
            counted(judged, "node"),
            quote(&report.model)
        );
    }
    let configured = matches!(bad.op.as_str(), "rms_norm" | "rope" | "soft_max");
    if configured && bad.cause.as_ref().is_some_and(|cause| cause.starts_with(PROGRAM)) {
        let model = file_word(&report.model);
        return format!("compare the output of `trueup inspect {model}` with the other program's configuration");
    }
    format!(
        "compare this tensor of {} with the other program's tensor, then the values that the operator takes from the \
         configuration (epsilon, RoPE base, scale)",
        quote(&report.model)
    )
}
