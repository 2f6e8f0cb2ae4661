//! One sentence that sums a report up: layer, operator, tensor, position, and what to do next.

use crate::report::{BadNode, Outcome, Report};
use crate::tokens::Flip;
use crate::verdict::Verdict;

/// The result in one sentence.
pub(crate) fn sentence(report: &Report) -> String {
    let (device, reference) = (&report.device.name, &report.reference.name);
    let coverage = &report.coverage;
    match (report.result, &report.first_bad) {
        (Outcome::Pass, _) => {
            let fell_back = match coverage.fell_back {
                0 => String::new(),
                count => format!(", {count} of them computed elsewhere (fell back)"),
            };
            format!(
                "{device} computes the model as it declares: all {} nodes are within rounding and declared loss against \
                 {reference}{fell_back}.",
                coverage.nodes
            )
        }
        (Outcome::Fail, Some(bad)) => failure(report, bad),
        (Outcome::Fail, None) => no_node(report),
        (Outcome::Inconclusive, _) => {
            let reason = if coverage.checked < coverage.nodes {
                format!("{} of {} nodes could not be judged", coverage.nodes - coverage.checked, coverage.nodes)
            } else if coverage.nodes == 0 {
                "nothing was computed".to_owned()
            } else {
                format!("{} nodes fell back to another device although {device} was required", coverage.fell_back)
            };
            format!("Not enough was checked to say whether {device} is right: {reason}.")
        }
    }
}

fn failure(report: &Report, bad: &BadNode) -> String {
    let layer = bad.layer.map_or(String::new(), |layer| format!(" in layer {layer}"));
    let tensor = bad.tensor.as_ref().map_or(String::new(), |tensor| format!(" with {}", trueup_formats::quote(tensor)));
    let place = bad.worst.as_ref().map_or(String::new(), |worst| {
        let number = |value: Option<f64>| value.map_or("no number".to_owned(), |value| format!("{value:.6e}"));
        format!(
            " at {} of step {} of prompt {}: expected {}, found {}",
            worst.element,
            worst.step,
            worst.prompt,
            number(worst.expected),
            number(worst.device)
        )
    });
    let kind = match bad.verdict {
        Verdict::UndeclaredPrecision => "is less exact than declared (undeclared precision)",
        Verdict::StructuralBug => "is wrong in a way that no rounding is (structural bug)",
        Verdict::NotFinite => "gives NaN or infinity where the reference has numbers",
        Verdict::Exact | Verdict::Rounding | Verdict::DeclaredLoss => "is as it should be",
        Verdict::Unchecked | Verdict::Inconclusive => "could not be judged",
    };
    format!(
        "The first bad node is {} ({}){layer}{tensor} on {}, which {kind}{place}. Next: {}.",
        bad.node,
        bad.op,
        report.device.name,
        next(report)
    )
}

fn no_node(report: &Report) -> String {
    if !report.repeat.passes() {
        let device = &report.device.name;
        return format!(
            "{device} gives other logits when it is observed, though it repeats itself otherwise: its nodes depend on \
             what lies in memory. Next: {}.",
            next(report)
        );
    }
    let tokens = &report.tokens;
    let flip = tokens.bad_flip.or(tokens.first_flip).map_or(String::new(), |flip| {
        let Flip { prompt, position, reference, device, margin } = flip;
        format!(", first behind position {position} of prompt {prompt} ({device} for {reference}, margin {margin:.3e})")
    });
    format!(
        "All nodes are as declared, but {} of {} most likely tokens differ where {:.1} were expected{flip}. Next: {}.",
        tokens.flips,
        tokens.positions,
        tokens.flips_expected,
        next(report)
    )
}

/// What to do about a failure.
fn next(report: &Report) -> String {
    let model = trueup_formats::quote(&report.model);
    let device = if report.device.name == "cpu" { "ref" } else { "cpu" };
    format!("see whether another device agrees with `trueup verify {model} --dev {device}`")
}
