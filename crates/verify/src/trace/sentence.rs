//! One sentence that sums up the comparison with a trace: what was looked at, what is wrong or missing, and what to do next.

use super::TraceReport;
use super::report::PROGRAM;
use crate::next::file_word;
use crate::report::{BadNode, Outcome};
use crate::verdict::Verdict;
use trueup_formats::quote;

/// The result in one sentence; `wanted` is the share of results that were asked for.
pub(super) fn sentence(report: &TraceReport, wanted: Option<f64>) -> String {
    let (file, program) = (quote(&report.file), quote(&report.program));
    let words = report.coverage.in_words();
    match (report.result, &report.first_bad) {
        (Outcome::Fail, Some(bad)) => failure(report, bad),
        (Outcome::Pass, _) => {
            let seen = if report.is_printed {
                " It is a text: of each result only the printed values and the sum were seen."
            } else {
                ""
            };
            format!("The trace {file} of {program} is what the file's weights give, in what it holds: {words}.{seen}")
        }
        (Outcome::Inconclusive, _) if report.coverage.judged == 0 && report.unknown > 0 => {
            format!("No tensor of the trace {file} is a node of this model: its names are others.")
        }
        (Outcome::Inconclusive, _) if !report.coverage.is_enough(wanted) => {
            let lack = lack(report, wanted);
            format!(
                "The trace {file} of {program} does not hold enough to say whether it is right: {lack}. Nothing is wrong in what was \
                 looked at: {words}. Next: make the trace with all nodes of all its steps."
            )
        }
        (Outcome::Fail | Outcome::Inconclusive, _) => {
            let free = report.free.sentence();
            format!("What the trace {file} holds is what the file's weights give ({words}), but {free}.")
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
        return "it does not say of any node that its program computed it".to_owned();
    };
    let (count, asked) = (coverage.lacking_count, coverage.asked);
    match wanted {
        None => format!("it lacks {count} of {asked} results that its program computed, first {first}"),
        Some(wanted) => {
            let share = coverage.share;
            format!(
                "in one step only {share:.3} of the results are judged where {wanted} was asked for, and first {first} is not"
            )
        }
    }
}

fn failure(report: &TraceReport, bad: &BadNode) -> String {
    let (file, program) = (quote(&report.file), quote(&report.program));
    let layer = bad.layer.map_or(String::new(), |layer| format!(" in layer {layer}"));
    let tensor = bad.tensor.as_ref().map_or(String::new(), |tensor| format!(" with {}", quote(tensor)));
    let before = match report.before_first_bad.as_slice() {
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
    let cause = bad.cause.as_ref().map_or(String::new(), |cause| format!(". Likely cause: {cause}"));
    let next = next(report, bad);
    format!(
        "The first bad node of the trace {file} of {program} is {} ({}){layer}{tensor}{before}: its result {kind}{place}{cause}. Next: \
         {next}.",
        bad.node, bad.op
    )
}

/// What to do about a failure.
fn next(report: &TraceReport, bad: &BadNode) -> String {
    let weighted = || report.nodes.iter().filter(|node| node.tensor.is_some() && node.elements > 0);
    let (judged, failing) = (weighted().count(), weighted().filter(|node| node.verdict.fails()).count());
    // Each node has the trace's own inputs, so that one wrong weight shows at one node.
    if !report.is_printed && failing * 2 > judged {
        return format!(
            "{failing} of {judged} nodes with a weight differ, so it is likely of other weights: compare the trace with the file that it \
             was made from"
        );
    }
    let configured = matches!(bad.op.as_str(), "rms_norm" | "rope" | "soft_max");
    if configured && bad.cause.as_ref().is_some_and(|cause| cause.starts_with(PROGRAM)) {
        let model = file_word(&report.model);
        return format!("compare what `trueup inspect {model}` shows with the other program's configuration");
    }
    "compare that tensor of the file with the other program's, then what the formula takes from the configuration (epsilon, base of \
     rope, scale)"
        .to_owned()
}
