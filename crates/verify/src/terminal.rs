//! A report on one screen of text: the sentence first, then what it rests on.

use crate::pieces::clause;
use crate::report::{DeviceFacts, NodeReport, PhaseReport, Report};
use crate::summary::word;
use crate::trace::TraceReport;
use std::fmt::Write;

/// Nodes that are shown; the rest are in the JSON.
const NODES_SHOWN: usize = 8;

impl Report {
    /// The report for a terminal, without colour, lines ended by `\n`.
    pub fn to_terminal(&self) -> String {
        let mut text = String::new();
        line(&mut text, &format!("{}: {}", word(self.result), self.sentence));
        line(&mut text, "");
        line(&mut text, &format!("model      {}", trueup_formats::quote(&self.model)));
        line(&mut text, &format!("device     {}", facts(&self.device)));
        line(&mut text, &format!("reference  {}", facts(&self.reference)));
        if let Some(planted) = &self.planted {
            let unfused = if planted.unfused { "; nothing is fused, so that the node is there" } else { "" };
            line(&mut text, &format!("planted    {} at {}: {}{unfused}", planted.name, planted.node, planted.what));
        }
        self.coverage_lines(&mut text);
        self.profile_lines(&mut text);
        self.node_lines(&mut text);
        self.token_lines(&mut text);
        self.asked_lines(&mut text);
        text.push_str(&self.trace.as_ref().map_or(String::new(), TraceReport::to_terminal));
        text
    }

    fn coverage_lines(&self, text: &mut String) {
        let coverage = &self.coverage;
        let fused = if coverage.fused > 0 { format!(" ({} of them fused)", coverage.fused) } else { String::new() };
        line(
            text,
            &format!(
                "coverage   {} nodes{fused}, {} checked ({} on prompts, {} decoding), {} on {}, {} fell back, {} waived",
                coverage.nodes,
                coverage.checked,
                coverage.checked_prompt,
                coverage.checked_decode,
                coverage.on_device,
                self.device.name,
                coverage.fell_back,
                coverage.waived
            ),
        );
        let fell_back = self.nodes.iter().filter_map(|node| node.fell_back.as_ref().map(|reason| (node, reason)));
        for (node, reason) in fell_back.take(NODES_SHOWN) {
            line(text, &format!("           {} fell back to {}: {reason}", node.node, node.device));
        }
    }

    fn profile_lines(&self, text: &mut String) {
        line(text, "\njudged by");
        for used in &self.profiles {
            line(text, &format!("  {:4} nodes  {}  ({})", used.nodes, used.profile, used.ops.join(", ")));
        }
    }

    fn node_lines(&self, text: &mut String) {
        let mut nodes: Vec<(&NodeReport, &PhaseReport)> =
            self.nodes.iter().filter_map(|node| Some((node, worst_phase(node)?))).collect();
        let rank = |node: &NodeReport| (node.verdict.fails(), !node.verdict.passes());
        nodes.sort_by(|(a, worst_a), (b, worst_b)| {
            rank(b).cmp(&rank(a)).then(severity(worst_b).total_cmp(&severity(worst_a)))
        });
        line(
            text,
            "\nworst nodes           operator       verdict               max |z|   rms z    local     inherited",
        );
        for (node, phase) in nodes.iter().take(NODES_SHOWN) {
            line(
                text,
                &format!(
                    "  {:19} {:14} {:20} {:>8} {:>7} {:>9} {:>9}",
                    node.node,
                    node.op,
                    phase.verdict.to_string(),
                    number(phase.worst_z, 2),
                    number(phase.rms_z, 2),
                    scientific(node.local),
                    scientific(node.inherited),
                ),
            );
            if let Some(clause) = clause(&node.pieces) {
                line(text, &format!("      {clause}"));
            }
            for explanation in &node.explanations {
                line(text, &format!("      {}: {}", explanation.phase, explanation.cause));
            }
        }
    }

    fn token_lines(&self, text: &mut String) {
        let tokens = &self.tokens;
        line(
            text,
            &format!(
                "\ntokens     {} of {} most likely tokens equal, {:.2} flips expected; divergence mean {:.2e}, max {:.2e} nats",
                tokens.top1_equal, tokens.positions, tokens.flips_expected, tokens.kl_mean, tokens.kl_max
            ),
        );
        if let Some(flip) = tokens.first_flip {
            line(
                text,
                &format!(
                    "           first difference behind position {} of prompt {}: {} for {}, margin {:.3e}",
                    flip.position, flip.prompt, flip.device, flip.reference, flip.margin
                ),
            );
        }
        let repeat = &self.repeat;
        let deterministic = if repeat.deterministic { "the same bits" } else { "different bits" };
        let taps = match (repeat.deterministic, repeat.taps_neutral) {
            (true, true) => "; observing changes nothing",
            (true, false) => "; observing changes the logits",
            (false, _) => " (not deterministic)",
        };
        line(text, &format!("repeat     {} plain runs give {deterministic}{taps}", repeat.runs));
        self.batch_line(text);
    }

    fn batch_line(&self, text: &mut String) {
        let batch = &self.batch;
        let lengths: Vec<String> = batch.sequences.iter().map(|sequence| sequence.tokens.to_string()).collect();
        let bits = match (batch.invariant, batch.promised) {
            (Some(true), _) => "each has the bits that it has alone",
            (Some(false), true) => "other bits than alone, which the device promises not to give",
            (Some(false), false) => "other bits than alone, which the device may give",
            (None, _) => "not compared bit for bit with each alone",
        };
        let (lengths, steps) = (lengths.join(", "), batch.steps);
        line(text, &format!("batch      sequences of {lengths} tokens and {steps} steps in one batch; {bits}"));
    }

    fn asked_lines(&self, text: &mut String) {
        for budget in self.policy.iter().flat_map(|policy| &policy.budgets) {
            let holds = if budget.holds { "holds" } else { "exceeded" };
            let found = scientific(budget.found);
            line(text, &format!("budget     {} {found} of {:.1e}, {holds}", budget.name, budget.limit));
        }
        for waiver in self.policy.iter().flat_map(|policy| &policy.waivers) {
            line(text, &format!("           {waiver}"));
        }
        let Some(baseline) = &self.baseline else { return };
        let (nodes, drifts, changes) = (baseline.compared, baseline.drifts, baseline.changes.len());
        let head = format!("baseline   {nodes} nodes compared, {changes} changes, {drifts} of them drifts");
        let notes = baseline.notes.iter().map(|note| format!("           note: {note}"));
        let shown = baseline.changes.iter().take(NODES_SHOWN).map(|change| format!("           {change}"));
        std::iter::once(head).chain(notes).chain(shown).for_each(|content| line(text, &content));
    }
}

fn facts(device: &DeviceFacts) -> String {
    let simulated = if device.simulated { ", simulated" } else { "" };
    format!("{} ({}{simulated})", device.name, device.description)
}

fn worst_phase(node: &NodeReport) -> Option<&PhaseReport> {
    node.phases.iter().max_by(|a, b| a.verdict.cmp(&b.verdict).then(severity(a).total_cmp(&severity(b))))
}

/// How bad the worst element is; what has no finite measure is worst.
fn severity(phase: &PhaseReport) -> f64 {
    phase.worst_z.unwrap_or(f64::INFINITY)
}

fn number(value: Option<f64>, digits: usize) -> String {
    match value {
        Some(value) if value < 1e4 => format!("{value:.digits$}"),
        Some(value) => format!("{value:.1e}"),
        None => "-".to_owned(),
    }
}

fn scientific(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.1e}"))
}

fn line(text: &mut String, content: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{content}");
}
