//! A report on one screen of text: the sentence first, then what it rests on.

use crate::flip::Flip;
use crate::pieces::clause;
use crate::quantities::{bytes_in_words, duration};
use crate::report::{DeviceFacts, NodeReport, PhaseReport, Report};
use crate::summary::word;
use crate::tokens::TokenReport;
use crate::trace::TraceReport;
use std::fmt::Write;
use trueup_formats::{counted, significant};

/// Nodes that are shown; the rest are in the JSON.
const NODES_SHOWN: usize = 8;
/// Width of the column with the names of nodes, unless a name is longer.
const NAME_WIDTH_MIN: usize = 19;
/// Flips that are shown, beside the first unexplained one.
const FLIPS_SHOWN: usize = 3;

impl Report {
    /// The report for a terminal, without colour, lines ended by `\n`.
    pub fn to_terminal(&self) -> String {
        let mut text = String::new();
        line(&mut text, &format!("{}: {}", word(self.result), self.sentence));
        line(&mut text, "");
        line(&mut text, &format!("model      {}", trueup_formats::quote(&self.model)));
        line(&mut text, &format!("device     {}", facts(&self.device)));
        line(&mut text, &format!("reference  {}", facts(&self.reference)));
        if let Some(run) = &self.run {
            let memory = run.peak_memory_bytes.map_or("unknown".to_owned(), bytes_in_words);
            line(&mut text, &format!("took       {}, peak memory {memory}", duration(run.seconds)));
        }
        if let Some(planted) = &self.planted {
            let unfused = if planted.unfused { "; fusion is off, so that the node exists" } else { "" };
            line(
                &mut text,
                &format!("fault      {} injected at {}: {}{unfused}", planted.name, planted.node, planted.what),
            );
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
        let decoding = match self.steps {
            0 => String::new(),
            _ => format!(", {} of {} decoding", coverage.checked_decode, coverage.nodes_decode),
        };
        let fused = if coverage.fused > 0 { format!(" ({} of them fused)", coverage.fused) } else { String::new() };
        line(
            text,
            &format!(
                "coverage   {}{fused}, {} checked ({} on prompts{decoding}), {} on {}, {} fell back, {} waived",
                counted(coverage.nodes, "node"),
                coverage.checked,
                coverage.checked_prompt,
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
            line(text, &format!("  {:>10}  {}  ({})", counted(used.nodes, "node"), used.profile, used.ops.join(", ")));
        }
    }

    fn node_lines(&self, text: &mut String) {
        let mut nodes: Vec<(&NodeReport, &PhaseReport)> =
            self.nodes.iter().filter_map(|node| Some((node, worst_phase(node)?))).collect();
        let rank = |node: &NodeReport| (node.verdict.fails(), !node.verdict.passes());
        nodes.sort_by(|(a, worst_a), (b, worst_b)| {
            rank(b).cmp(&rank(a)).then(severity(worst_b).total_cmp(&severity(worst_a)))
        });
        nodes.truncate(NODES_SHOWN);
        let width = name_width(nodes.iter().map(|(node, _)| node.node.as_str()));
        let title = "worst nodes";
        line(
            text,
            &format!(
                "\n{title:0$} operator       verdict               max |z|   rms z    local     inherited",
                width.saturating_add(2)
            ),
        );
        for (node, phase) in nodes {
            line(
                text,
                &format!(
                    "  {:width$} {:14} {:20} {:>8} {:>7} {:>9} {:>9}",
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
        let first = |bad: &Flip| tokens.flip_list.iter().take(FLIPS_SHOWN).any(|flip| flip == bad);
        match tokens.vectors {
            Some(_) => line(text, &format!("\nvectors    {}", compared(tokens))),
            None => line(text, &format!("\ntokens     {}", compared(tokens))),
        }
        for flip in tokens.flip_list.iter().take(FLIPS_SHOWN).chain(tokens.bad_flip.iter().filter(|bad| !first(bad))) {
            let before = flip.text.as_ref().map_or(String::new(), |text| format!(" \"{}\"", text.before));
            let explained = if flip.explained { "" } else { ", which noise does not explain" };
            line(
                text,
                &format!(
                    "           after {}: chose {}, margin {}{explained}",
                    flip.place(&before),
                    flip.tokens(),
                    significant(flip.margin, 4)
                ),
            );
        }
        let more = tokens.flip_list.len().saturating_sub(FLIPS_SHOWN);
        if more > 0 {
            line(text, &format!("           and {more} more in the HTML and JSON reports"));
        }
        let repeat = &self.repeat;
        let deterministic = if repeat.deterministic { "the same bits" } else { "different bits" };
        let taps = match (repeat.deterministic, repeat.taps_neutral) {
            (true, true) => "; recording the nodes does not change them",
            (true, false) => "; recording the nodes changes the logits",
            (false, _) => " (not deterministic)",
        };
        line(text, &format!("repeat     {} runs without recording give {deterministic}{taps}", repeat.runs));
        self.batch_line(text);
    }

    fn batch_line(&self, text: &mut String) {
        let batch = &self.batch;
        let lengths: Vec<String> = batch.sequences.iter().map(|sequence| sequence.tokens.to_string()).collect();
        let bits = match (batch.invariant, batch.promised) {
            (Some(true), _) => "each has the same bits as when computed separately",
            (Some(false), true) => {
                "different bits than when computed separately, although the device declares \
                that they are equal"
            }
            (Some(false), false) => "different bits than when computed separately, which the device permits",
            (None, _) => "not compared bit for bit with separate runs",
        };
        let lengths = match lengths.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => lengths.join(""),
        };
        let steps = match batch.steps {
            0 => String::new(),
            steps => format!(", then {}", counted(steps, "decode step")),
        };
        line(text, &format!("batch      sequences of {lengths} tokens{steps}, submitted together; {bits}"));
    }

    fn asked_lines(&self, text: &mut String) {
        for budget in self.policy.iter().flat_map(|policy| &policy.budgets) {
            line(text, &format!("budget     {budget}"));
        }
        for waiver in self.policy.iter().flat_map(|policy| &policy.waivers) {
            line(text, &format!("           {waiver}"));
        }
        let Some(baseline) = &self.baseline else { return };
        let (nodes, changes) = (counted(baseline.compared, "node"), counted(baseline.changes.len(), "change"));
        let drifts = baseline.drifts;
        let head = format!("baseline   {nodes} compared, {changes}, {}", drifts_among(drifts));
        let head = if baseline.differs.is_empty() {
            head
        } else {
            format!("baseline   not compared: {}", baseline.differs.join(", "))
        };
        let notes = baseline.notes.iter().map(|note| format!("           note: {note}"));
        let shown = baseline.changes.iter().take(NODES_SHOWN).map(|change| format!("           {change}"));
        std::iter::once(head).chain(notes).chain(shown).for_each(|content| line(text, &content));
    }
}

/// How most likely tokens, or the vectors of an encoder, compare.
pub(crate) fn compared(tokens: &TokenReport) -> String {
    let TokenReport { top1_equal, positions, distinct, flips_expected, .. } = tokens;
    let Some(vectors) = tokens.vectors else {
        let divergence = divergence(tokens);
        let distinct = if distinct < positions { format!("{distinct} distinct predictions; ") } else { String::new() };
        return format!(
            "most likely token equal at {top1_equal} of {positions} positions ({distinct}{flips_expected:.2} differences \
             expected); KL divergence {divergence}"
        );
    };
    match (vectors.cosine_min, tokens.logit_sigma) {
        (Some(cosine), Some(sigma)) => format!(
            "{positions} compared; smallest cosine similarity 1 - {}; RMS error {}",
            significant((1.0 - cosine).max(0.0), 3),
            significant(sigma, 3)
        ),
        (None, _) | (_, None) => format!("{positions} compared, not all finite"),
    }
}

/// The width of a column with these names of nodes.
pub(crate) fn name_width<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(|name| name.chars().count()).max().unwrap_or(0).max(NAME_WIDTH_MIN)
}

/// `mean 1.00e-4, max 2.00e-3 nats`, or that it is not finite.
pub(crate) fn divergence(tokens: &TokenReport) -> String {
    match (tokens.kl_mean, tokens.kl_max) {
        (Some(mean), Some(max)) => format!("mean {}, max {} nats", significant(mean, 3), significant(max, 3)),
        (None, _) | (_, None) => "not finite".to_owned(),
    }
}

/// How many of some changes are drifts.
pub(crate) fn drifts_among(drifts: usize) -> String {
    if drifts == 1 { "1 of them a drift".to_owned() } else { format!("{drifts} of them drifts") }
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
        Some(value) => significant(value, 2),
        None => "-".to_owned(),
    }
}

fn scientific(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| significant(value, 2))
}

fn line(text: &mut String, content: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{content}");
}
