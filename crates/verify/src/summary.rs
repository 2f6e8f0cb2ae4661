//! The report as Markdown for the summary of a CI step, and as one annotation.
//!
//! Names from a model's file are shown as they are, but nothing in them can end a table, start a link or hide text.

use crate::report::{NodeReport, Outcome, Report};
use crate::terminal::{compared, drifts_among};
use std::fmt::Write;
use trueup_formats::{counted, significant};

/// Rows of a table.
const ROWS_MAX: usize = 20;

impl Report {
    /// Markdown of at most some tens of lines.
    pub fn to_summary(&self) -> String {
        let mut text = String::new();
        line(&mut text, &format!("### {} {}", sign(self.result), word(self.result)));
        line(&mut text, "");
        line(&mut text, &clean(&self.sentence));
        line(&mut text, "");
        self.facts(&mut text);
        self.bad_nodes(&mut text);
        self.asked(&mut text);
        self.changed(&mut text);
        text
    }

    /// One workflow command that marks a failed step; none for a pass.
    pub fn to_annotation(&self) -> Option<String> {
        let title = match self.result {
            Outcome::Pass => return None,
            Outcome::Fail => "trueup verify failed",
            Outcome::Inconclusive => "trueup verify is inconclusive",
        };
        // Of workflow commands, only these three end the text or a line.
        let text = self.sentence.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
        Some(format!("::error title={title}::{text}"))
    }

    fn facts(&self, text: &mut String) {
        let (coverage, tokens) = (&self.coverage, &self.tokens);
        line(text, "| | |");
        line(text, "|---|---|");
        let mut row = |name: &str, value: String| line(text, &format!("| {name} | {value} |"));
        row("model", clean(&self.model));
        let simulated = if self.device.simulated { ", simulated" } else { "" };
        row("device", format!("{} ({}{simulated})", clean(&self.device.name), clean(&self.device.description)));
        row("reference", clean(&self.reference.name));
        row(
            "coverage",
            format!(
                "{} of {} nodes judged, {} fell back, {} waived",
                coverage.checked, coverage.nodes, coverage.fell_back, coverage.waived
            ),
        );
        row(if tokens.vectors.is_some() { "vectors" } else { "tokens" }, compared(tokens));
        if let Some(trace) = &self.trace {
            row("trace", format!("{} of {}: {}", clean(&trace.file), clean(&trace.program), trace.coverage.in_words()));
        }
        row("environment", format!("trueup {}, {}", self.environment.version, self.environment.system));
        line(text, "");
    }

    fn bad_nodes(&self, text: &mut String) {
        let bad: Vec<&NodeReport> = self.nodes.iter().filter(|node| !node.verdict.passes()).collect();
        if bad.is_empty() {
            return;
        }
        line(text, "| node | operator | verdict | max z | rms z | |");
        line(text, "|---|---|---|--:|--:|---|");
        for node in bad.iter().take(ROWS_MAX) {
            let phase = node.worst_phase();
            let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| significant(value, 4));
            let waived = node.waived.as_ref().map_or(String::new(), |reason| format!("waived: {}", clean(reason)));
            let numbers = [phase.and_then(|phase| phase.worst_z), phase.and_then(|phase| phase.rms_z)].map(number);
            let (name, op) = (clean(&node.node), clean(&node.op));
            line(text, &format!("| {name} | {op} | {} | {} | {} | {waived} |", node.verdict, numbers[0], numbers[1]));
        }
        if bad.len() > ROWS_MAX {
            line(text, &format!("| and {} more | | | | | |", bad.len() - ROWS_MAX));
        }
        line(text, "");
    }

    fn asked(&self, text: &mut String) {
        let Some(policy) = &self.policy else { return };
        for budget in &policy.budgets {
            let mark = if budget.holds { "" } else { "**" };
            line(text, &format!("- budget {mark}{}{mark}", clean(&budget.to_string())));
        }
        for waiver in policy.waivers.iter().take(ROWS_MAX) {
            line(text, &format!("- {}", clean(&waiver.to_string())));
        }
        line(text, "");
    }

    fn changed(&self, text: &mut String) {
        let Some(baseline) = &self.baseline else { return };
        let (nodes, changes) = (counted(baseline.compared, "node"), counted(baseline.changes.len(), "change"));
        if !baseline.differs.is_empty() {
            let differs = clean(&baseline.differs.join(", "));
            line(text, &format!("**Not compared** with {}: {differs}.", clean(&baseline.file)));
            return;
        }
        line(
            text,
            &format!(
                "Against the baseline {}: {nodes} compared, {changes}, {}.",
                clean(&baseline.file),
                drifts_among(baseline.drifts)
            ),
        );
        for note in &baseline.notes {
            line(text, &format!("- note: {}", clean(note)));
        }
        for change in baseline.changes.iter().take(ROWS_MAX) {
            line(text, &format!("- {}", clean(&change.to_string())));
        }
    }
}

/// The result in capitals.
pub(crate) fn word(result: Outcome) -> &'static str {
    match result {
        Outcome::Pass => "PASS",
        Outcome::Fail => "FAIL",
        Outcome::Inconclusive => "INCONCLUSIVE",
    }
}

fn sign(result: Outcome) -> &'static str {
    match result {
        Outcome::Pass => "✓",
        Outcome::Fail => "✕",
        Outcome::Inconclusive => "?",
    }
}

/// Text in which Markdown and HTML mean nothing: control and bidirectional characters escaped, punctuation that means
/// something behind a backslash or as an entity.
fn clean(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let quoted = trueup_formats::quote(c.encode_utf8(&mut [0; 4]));
        if quoted.chars().count() > 1 {
            shown.push_str(&quoted);
            continue;
        }
        match c {
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '&' => shown.push_str("&amp;"),
            // A reference to a person or an issue, or an address that becomes a link.
            '@' => shown.push_str("&#64;"),
            '#' => shown.push_str("&#35;"),
            ':' => shown.push_str("&#58;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' | '$' => {
                shown.push('\\');
                shown.push(c);
            }
            c => shown.push(c),
        }
    }
    shown
}

fn line(text: &mut String, content: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn nothing_in_a_name_is_markup() {
        let hostile = "a|b\n<img src=x onerror=alert(1)> [l](http://x) `c` @you #1 \u{202e}\\|";
        let shown = clean(hostile);
        let bare = |c: char| shown.match_indices(c).any(|(at, _)| !shown[..at].ends_with('\\'));
        assert!(!shown.contains(['\n', '<', '>', '@', '\u{202e}']), "{shown}");
        for c in ['|', '[', ']', '`'] {
            assert!(!bare(c), "{c} in {shown}");
        }
        assert!(!shown.contains("://"), "{shown}");
    }
}
