//! One sentence that sums a report up: layer, operator, tensor, position, and what to do next.

use crate::flip::Flip;
use crate::pieces::clause;
use crate::report::{BadNode, NodeReport, Outcome, Report};
use crate::verdict::Verdict;
use trueup_formats::counted;

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
            let phase = match report.steps {
                0 => ", in the prompt phase only: no step was asked for, so decoding was not checked",
                _ => "",
            };
            let (all, waived) = match (coverage.waived, coverage.nodes - coverage.checked) {
                (0, 0) => (format!("all {} nodes", coverage.nodes), String::new()),
                (waived, unjudged) => (
                    format!("{} of {} nodes", coverage.checked - waived, coverage.nodes),
                    format!(
                        ", {} waived and {} could not be judged",
                        are(waived, "failure"),
                        counted(unjudged, "node")
                    ),
                ),
            };
            format!(
                "{device} computes the model as it declares: {all} are within rounding and declared loss against \
                 {reference}{waived}{fell_back}{phase}{}.",
                unsteady(report)
            )
        }
        (Outcome::Fail, Some(bad)) => failure(report, bad),
        (Outcome::Fail, None) => no_node(report),
        (Outcome::Inconclusive, _) => match (doubt(report), report.undecided()) {
            (Some(doubt), _) => format!("Not enough was checked to say whether {device} is right: {doubt}."),
            (None, Some(undecided)) => format!("No node of {device} is wrong that was not waived, but {undecided}."),
            (None, None) => format!("Not enough was checked to say whether {device} is right."),
        },
    }
}

/// `1 failure is`, `2 failures are`.
fn are(count: usize, noun: &str) -> String {
    format!("{} {}", counted(count, noun), if count == 1 { "is" } else { "are" })
}

/// What is said of a device that computes as it declares but not twice the same.
fn unsteady(report: &Report) -> String {
    if report.repeat.deterministic {
        return String::new();
    }
    let differs = |node: &&NodeReport| node.phases.iter().any(|phase| phase.unsteady > 0);
    match report.nodes.iter().filter(differs).count() {
        0 => "; it is not deterministic, though no node differed when it was computed again".to_owned(),
        count => {
            let differ = if count == 1 { "1 node differs".to_owned() } else { format!("{count} nodes differ") };
            format!("; it is not deterministic: {differ} from run to run, within declared noise")
        }
    }
}

/// Why nothing can be said of the device.
fn doubt(report: &Report) -> Option<String> {
    if let Some(planted) = report.planted.as_ref().filter(|_| report.missed_planted()) {
        return Some(format!(
            "the fault {} was planted at {}, and these tokens do not show it",
            planted.name, planted.node
        ));
    }
    let (device, coverage) = (&report.device.name, &report.coverage);
    let unjudged = coverage.nodes - coverage.checked;
    let undefined = report.nodes.iter().find(|node| node.verdict == Verdict::Inconclusive);
    let tokens = &report.tokens;
    let doubt = if coverage.nodes == 0 {
        "nothing was computed".to_owned()
    } else if let Some(node) = undefined {
        let tensor =
            node.tensor.as_ref().map_or(String::new(), |name| format!(" with {}", trueup_formats::quote(name)));
        format!(
            "from {} ({}){tensor} on, exact arithmetic on the device's own inputs gives no numbers either, in {unjudged} of \
             {} nodes; look for NaN or infinity among the weights",
            node.node, node.op, coverage.nodes
        )
    } else if !report.something_passes() {
        "no node passes but by a waiver".to_owned()
    } else if !report.is_covered(coverage.checked) {
        format!("{unjudged} of {} nodes could not be judged", coverage.nodes)
    } else if tokens.reference_not_finite > 0 {
        format!(
            "the reference's own logits are no numbers behind {} of {} tokens",
            tokens.reference_not_finite, tokens.positions
        )
    } else if report.steps > 0 && !report.is_covered(coverage.checked_decode) {
        format!(
            "{} of {} nodes were not judged while decoding",
            coverage.nodes - coverage.checked_decode,
            coverage.nodes
        )
    } else if !report.is_covered(coverage.checked_prompt) {
        format!("{} of {} nodes were not judged on a prompt", coverage.nodes - coverage.checked_prompt, coverage.nodes)
    } else if coverage.fell_back > 0 && report.require_device {
        let fell_back = counted(coverage.fell_back, "node");
        format!("{fell_back} fell back to another device although {device} was required")
    } else {
        return None;
    };
    Some(doubt)
}

fn failure(report: &Report, bad: &BadNode) -> String {
    let layer = bad.layer.map_or(String::new(), |layer| format!(" in layer {layer}"));
    let tensor = bad.tensor.as_ref().map_or(String::new(), |tensor| format!(" with {}", trueup_formats::quote(tensor)));
    let place = bad.worst.as_ref().map_or(String::new(), |worst| {
        let number = |value: Option<f64>| value.map_or("no number".to_owned(), |value| format!("{value:.6e}"));
        format!(
            " at {} of step {} of {}: expected {}, found {}",
            worst.element,
            worst.step,
            run(report, worst.prompt),
            number(worst.expected),
            number(worst.device)
        )
    });
    let raced = |node: &&NodeReport| node.node == bad.node && node.phases.iter().any(|phase| phase.raced > 0);
    let kind = match bad.verdict {
        Verdict::StructuralBug if report.nodes.iter().any(|node| raced(&node)) => {
            "gives different results on the same inputs, in few elements (a data race is suspected)"
        }
        Verdict::NotFinite if report.nodes.iter().any(|node| raced(&node)) => {
            "gives NaN or infinity in some computations on the same inputs (a data race is suspected)"
        }
        Verdict::UndeclaredPrecision if report.nodes.iter().any(|node| raced(&node)) => {
            "gives different results on the same inputs, further apart than declared (undeclared precision)"
        }
        Verdict::UndeclaredPrecision => "is less exact than declared (undeclared precision)",
        Verdict::StructuralBug => "is wrong in a way that no rounding is (structural bug)",
        Verdict::NotFinite => "gives NaN or infinity where the reference has numbers",
        Verdict::Exact | Verdict::Rounding | Verdict::DeclaredLoss => "is as it should be",
        Verdict::Unchecked | Verdict::Inconclusive => "could not be judged",
    };
    let cause = bad.cause.as_ref().map_or(String::new(), |cause| format!(". Likely cause: {cause}"));
    let pieces = report.nodes.iter().find(|node| node.node == bad.node).and_then(|node| clause(&node.pieces));
    let pieces = pieces.map_or(String::new(), |pieces| format!("; {pieces}"));
    let next = match (&report.planted, &bad.repro) {
        (Some(planted), _) => {
            format!("run it without the fault {}, which was planted at {}", planted.name, planted.node)
        }
        (None, None) => next(report),
        (None, Some(file)) => {
            format!("see it alone with `trueup repro {} --dev {}`", trueup_formats::quote(file), report.device.name)
        }
    };
    format!(
        "The first bad node is {} ({}){layer}{tensor} on {}, which {kind}{place}{pieces}{cause}. Next: {next}.",
        bad.node, bad.op, report.device.name
    )
}

/// Which run that is.
fn run(report: &Report, prompt: usize) -> String {
    if prompt < report.prompts.len() { format!("prompt {prompt}") } else { "the batch of all prompts".to_owned() }
}

fn no_node(report: &Report) -> String {
    let (device, tokens) = (&report.device.name, &report.tokens);
    if report.repeat.outcome(tokens) == Outcome::Fail {
        let what = if report.repeat.deterministic {
            "gives other logits when it is observed, though it repeats itself otherwise: its nodes depend on what lies in memory"
        } else {
            "gives different logits in runs on the same tokens, further apart than its own error: a data race is suspected"
        };
        return format!("{device} {what}. Next: {}.", next(report));
    }
    if report.batch.outcome() == Outcome::Fail {
        let place = report.batch.first_difference.map_or(String::new(), |found| {
            format!(", first behind position {} of sequence {}", found.position, found.sequence)
        });
        return format!(
            "All nodes are as declared, but {device} gives other bits in a batch than alone, which it promises not to{place}. \
             Next: {}.",
            next(report)
        );
    }
    if tokens.not_finite > 0 {
        let exceeded = |node: &&NodeReport| node.phases.iter().any(|phase| phase.range_exceeded > 0);
        if let Some(node) = report.nodes.iter().find(exceeded) {
            let count: u64 = node.phases.iter().map(|phase| phase.range_exceeded).sum();
            return format!(
                "No node computes wrongly, but {} of {} ({}) {} beyond the range of the type it declares, and {} of {} rows of \
                 logits are no numbers. Next: take a wider type, such as `--kv f32` for the KV cache.",
                counted(count, "element"),
                node.node,
                node.op,
                if count == 1 { "is" } else { "are" },
                tokens.not_finite,
                tokens.positions
            );
        }
        return format!(
            "All nodes are as declared, but {} of {} rows of logits are no numbers where the reference's are. Next: {}.",
            tokens.not_finite,
            tokens.positions,
            next(report)
        );
    }
    if tokens.outcome() != Outcome::Fail {
        let complaints = report.complaints();
        let more = match complaints.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let first = complaints.first().map_or("", String::as_str);
        let next = "see what changed, and set the gate or the baseline anew only where that is meant";
        return format!("No node of {device} is wrong that was not waived, but {first}{more}. Next: {next}.");
    }
    let flip = tokens.bad_flip.as_ref().or(tokens.first_flip.as_ref()).map_or(String::new(), |flip| {
        let Flip { prompt, position, margin, .. } = flip;
        format!(", first behind position {position} of prompt {prompt} ({}, margin {margin:.3e})", flip.tokens())
    });
    format!(
        "All nodes are as declared, but {} of {} most likely tokens {} where {:.1} were expected{flip}. Next: {}.",
        tokens.flips,
        tokens.positions,
        if tokens.flips == 1 { "differs" } else { "differ" },
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
