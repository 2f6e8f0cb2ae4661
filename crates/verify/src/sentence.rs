//! One sentence that sums a report up: layer, operator, tensor, position, and what to do next.

use crate::next::{repro_alone, verify_again};
use crate::overflow::Overflow;
use crate::pieces::clause;
use crate::record::Phase;
use crate::report::{BadNode, NodeReport, Outcome, Report};
use crate::verdict::Verdict;
use trueup_formats::{counted, significant};

/// The result in one sentence.
pub(crate) fn sentence(report: &Report) -> String {
    let device = &report.device.name;
    let coverage = &report.coverage;
    match (report.result, &report.first_bad) {
        (Outcome::Pass, _) => {
            let fell_back = match coverage.fell_back {
                0 => String::new(),
                count => format!(": {} on {device}, and {count} on another device (fell back)", coverage.on_device),
            };
            let of = if coverage.fell_back == 0 { format!(" of {device}") } else { String::new() };
            let phase = match report.steps {
                0 if report.tokens.vectors.is_some() => "",
                0 => ", in the prompt phase only: decoding was not checked, because no steps were requested",
                _ => "",
            };
            let (all, waived) = match (coverage.waived, coverage.nodes - coverage.checked) {
                (0, 0) => (format!("All {} nodes", coverage.nodes), String::new()),
                (waived, unjudged) => (
                    format!("{} of {} nodes", coverage.checked - waived, coverage.nodes),
                    format!(
                        ", {} waived and {} could not be judged",
                        are(waived, "failure"),
                        counted(unjudged, "node")
                    ),
                ),
            };
            let planted = report.planted.as_ref().map_or(String::new(), |planted| {
                format!("; the fault {}, injected at {}, was found and is waived", planted.name, planted.node)
            });
            format!("{all}{of} are within their error bounds{fell_back}{waived}{planted}{phase}{}.", unsteady(report))
        }
        (Outcome::Fail, Some(bad)) => failure(report, bad),
        (Outcome::Fail, None) => no_node(report),
        (Outcome::Inconclusive, _) => match (doubt(report), report.undecided()) {
            (Some(doubt), _) => format!("Not enough was checked to judge {device}: {doubt}."),
            (None, Some(undecided)) => format!("{}, but {undecided}.", nothing_fails(report)),
            (None, None) => format!("Not enough was checked to judge {device}."),
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
        0 => "; it is not deterministic, although no node differed when it was recomputed".to_owned(),
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
            "the fault {} was injected at {}, but these tokens do not expose it",
            planted.name, planted.node
        ));
    }
    let (device, coverage) = (&report.device.name, &report.coverage);
    let unjudged = coverage.nodes - coverage.checked;
    let undefined = report.nodes.iter().find(|node| node.verdict == Verdict::Inconclusive);
    let tokens = &report.tokens;
    let doubt = if coverage.nodes == 0 {
        "nothing was computed".to_owned()
    } else if let Some(overflow) = undefined.and_then(|node| Overflow::before(report, &node.node)) {
        let next = overflow.next(report);
        format!(
            "{}, so exact arithmetic is not finite either in {unjudged} of {} later nodes; {next}",
            overflow.clause(),
            coverage.nodes
        )
    } else if let Some(node) = undefined {
        let tensor = node.tensor.as_ref().map_or(String::new(), |name| format!(", {}", named_weights(name)));
        format!(
            "starting at {} ({}{tensor}), exact arithmetic on the device's inputs is not finite either ({unjudged} of {} \
                nodes); check the weights for NaN or infinity",
            node.node, node.op, coverage.nodes
        )
    } else if !report.something_passes() {
        "every node that passes is waived".to_owned()
    } else if !report.is_covered(coverage.checked) {
        format!("{unjudged} of {} nodes could not be judged", coverage.nodes)
    } else if tokens.reference_not_finite > 0 {
        format!(
            "the reference's logits are not finite for {} of {} tokens",
            tokens.reference_not_finite, tokens.positions
        )
    } else if report.steps > 0 && !report.is_decode_covered() {
        let (nodes, checked) = (coverage.nodes_decode, coverage.checked_decode);
        format!("{} of {nodes} nodes were not judged while decoding", nodes.saturating_sub(checked))
    } else if !report.is_covered(coverage.checked_prompt) {
        format!("{} of {} nodes were not judged on a prompt", coverage.nodes - coverage.checked_prompt, coverage.nodes)
    } else if coverage.fell_back > 0 && report.require_device {
        let fell_back = counted(coverage.fell_back, "node");
        format!("{fell_back} fell back to another device, and {device} was required")
    } else {
        return None;
    };
    Some(doubt)
}

fn failure(report: &Report, bad: &BadNode) -> String {
    let layer = bad.layer.map_or(String::new(), |layer| format!(", layer {layer}"));
    let tensor = bad.tensor.as_ref().map_or(String::new(), |tensor| format!(", {}", named_weights(tensor)));
    let place = bad.worst.as_ref().map_or(String::new(), |worst| {
        format!(
            ". Worst element: {} of step {} of {}: expected {}, found {}",
            worst.element,
            worst.step,
            run(report, worst.prompt),
            worst.shown.expected,
            worst.shown.device
        )
    });
    let node = report.nodes.iter().find(|node| node.node == bad.node);
    let raced = node.is_some_and(|node| {
        let phases = || node.phases.iter().any(|phase| phase.raced > 0);
        node.explanation().map_or_else(phases, |found| found.is_race() || (!found.known && phases()))
    });
    let kind = match bad.verdict {
        Verdict::StructuralBug if raced => {
            "Structural bug: the node gives different results on the same inputs, by more than rounding can cause \
             (suspected data race)"
        }
        Verdict::NotFinite if raced => "NaN or infinity in some runs on the same inputs (suspected data race)",
        Verdict::UndeclaredPrecision if raced => {
            "Undeclared precision: the node gives different results on the same inputs, by more than declared"
        }
        Verdict::UndeclaredPrecision => "Undeclared precision: the result is less exact than declared",
        Verdict::StructuralBug => "Structural bug: the error is larger than rounding can cause",
        Verdict::NotFinite => "NaN or infinity where the reference is finite",
        Verdict::Exact | Verdict::Rounding | Verdict::DeclaredLoss => "The node is correct",
        Verdict::Unchecked | Verdict::Inconclusive => "The node could not be judged",
    };
    let overflow = Overflow::before(report, &bad.node).filter(|_| bad.verdict == Verdict::NotFinite);
    let overflowed = overflow.as_ref().map(|overflow| format!("Likely cause: {}", overflow.clause()));
    let cause = overflowed.or_else(|| bad.cause_sentence()).map_or(String::new(), |cause| format!(". {cause}"));
    let pieces = node.and_then(|node| clause(&node.pieces)).map_or(String::new(), |pieces| format!("; {pieces}"));
    let (phase, taps) = (node.map_or("", right_phase), differs_when_observed(report, node));
    let next = overflow.map_or_else(|| next_of_failure(report, bad), |overflow| overflow.next(report));
    format!(
        "First faulty node: {} ({}){layer}{tensor}, on {}. {kind}{place}{pieces}{cause}{phase}{taps}. Next: {next}.",
        bad.node, bad.op, report.device.name
    )
}

/// Which phase is right, where one is.
fn right_phase(node: &NodeReport) -> &'static str {
    let all = |phase: Phase, holds: fn(Verdict) -> bool| {
        let mut verdicts =
            node.phases.iter().filter(|found| found.phase == phase).map(|found| found.verdict).peekable();
        verdicts.peek().is_some() && verdicts.all(holds)
    };
    if all(Phase::Prompt, Verdict::passes) && all(Phase::Decode, Verdict::fails) {
        "; only decode steps are wrong, prompts are correct"
    } else if all(Phase::Prompt, Verdict::fails) && all(Phase::Decode, Verdict::passes) {
        "; only prompts are wrong, decode steps are correct"
    } else {
        ""
    }
}

/// What is said of a device whose plain runs agree with each other but not with the observed one.
fn differs_when_observed(report: &Report, node: Option<&NodeReport>) -> &'static str {
    let known = node.and_then(NodeReport::explanation).is_some_and(|found| found.known);
    if !known && report.repeat.deterministic && !report.repeat.taps_neutral {
        "; results differ between runs of the same input: the run that recorded the nodes gave different logits than \
            the runs without recording"
    } else {
        ""
    }
}

/// What to do about a failing node.
fn next_of_failure(report: &Report, bad: &BadNode) -> String {
    let prompt = bad.worst.as_ref().map(|worst| worst.prompt);
    if let Some(planted) = &report.planted {
        let again = verify_again(report, prompt, "");
        return format!(
            "the fault {} was injected at {}; to verify without it, run {again}",
            planted.name, planted.node
        );
    }
    match &bad.repro {
        Some(file) => format!("reproduce it with `{}`", repro_alone(report, file)),
        None => next(report, prompt),
    }
}

/// Which run that is.
fn run(report: &Report, prompt: usize) -> String {
    if prompt < report.prompts.len() { format!("prompt {prompt}") } else { "the batch of all prompts".to_owned() }
}

fn no_node(report: &Report) -> String {
    let (device, tokens) = (&report.device.name, &report.tokens);
    if report.repeat.outcome(tokens) == Outcome::Fail {
        let what = if report.repeat.deterministic {
            "gives different logits when its nodes are recorded, although repeated runs agree: its nodes depend \
                on stale memory"
        } else {
            "gives different logits in runs on the same tokens, by more than its error: suspected data race"
        };
        return format!("{device} {what}. Next: {}.", next(report, None));
    }
    if report.batch.outcome() == Outcome::Fail {
        let place = report.batch.first_difference.map_or(String::new(), |found| {
            format!(", first after position {} of sequence {}", found.position, found.sequence)
        });
        return format!(
            "All nodes are as declared, but {device} gives different bits in a batch than for a single sequence, \
                although it declares that it does not{place}. Next: {}.",
            next(report, None)
        );
    }
    let strange = tokens.not_finite > 0 || tokens.outcome() == Outcome::Fail;
    if let Some(overflow) = Overflow::first(report).filter(|_| strange) {
        let logits = match tokens.not_finite {
            0 => format!("{} of {} most likely tokens differ", tokens.flips, tokens.positions),
            count => format!("{count} of {} rows of logits are not finite", tokens.positions),
        };
        let (clause, next) = (overflow.clause(), overflow.next(report));
        return format!("No node is wrong, but {clause}, and {logits}. Next: {next}.");
    }
    if tokens.not_finite > 0 {
        return format!(
            "All nodes are as declared, but {} of {} rows of logits are not finite where those of the reference \
                are. Next: {}.",
            tokens.not_finite,
            tokens.positions,
            next(report, None)
        );
    }
    if tokens.outcome() == Outcome::Fail { flips(report) } else { complained(report) }
}

/// What a gate file or a baseline asks for.
fn complained(report: &Report) -> String {
    let complaints = report.complaints();
    let more = match complaints.len() {
        0 | 1 => String::new(),
        2 => " (and 1 more problem)".to_owned(),
        count => format!(" (and {} more problems)", count - 1),
    };
    let first = complaints.first().map_or("", String::as_str);
    let next = "find the change, and update the gate or the baseline only if the change is intended";
    format!("{}, but {first}{more}. Next: {next}.", nothing_fails(report))
}

/// That no node fails, if waivers are taken into account.
fn nothing_fails(report: &Report) -> &'static str {
    if report.coverage.waived == 0 { "All nodes pass" } else { "All nodes pass or are waived" }
}

/// `weight a`, `weights a and b`: what a node reads.
pub(crate) fn named_weights(names: &str) -> String {
    let noun = if names.contains(" and ") { "weights" } else { "weight" };
    format!("{noun} {}", trueup_formats::quote(names))
}

/// More flips than noise explains.
fn flips(report: &Report) -> String {
    let tokens = &report.tokens;
    let flip = tokens.bad_flip.as_ref().or(tokens.first_flip.as_ref()).map_or(String::new(), |flip| {
        format!(", first after {} ({}, margin {})", flip.place(""), flip.tokens(), significant(flip.margin, 4))
    });
    format!(
        "All nodes are as declared, but {} of {} most likely tokens {} where {:.1} were expected{flip}. Next: {}.",
        tokens.flips,
        tokens.positions,
        if tokens.flips == 1 { "differs" } else { "differ" },
        tokens.flips_expected,
        next(report, None)
    )
}

/// What to do about a failure in one run.
fn next(report: &Report, prompt: Option<usize>) -> String {
    let device = if report.device.name == "cpu" { "ref" } else { "cpu" };
    format!("check whether another device agrees with {}", verify_again(report, prompt, &format!("--dev {device}")))
}
