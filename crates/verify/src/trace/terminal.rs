//! The comparison with a trace on a few lines of a terminal.

use super::{TraceNode, TraceReport};
use crate::terminal::name_width;
use std::fmt::Write;
use trueup_formats::{quote, significant};

/// Nodes that are shown; the rest are in the JSON.
const NODES_SHOWN: usize = 8;

impl TraceReport {
    /// Lines for a terminal.
    pub(crate) fn to_terminal(&self) -> String {
        let mut text = String::new();
        let device = self.device.as_ref().map_or(String::new(), |device| format!(", device {}", quote(device)));
        let model = match self.same_model {
            Some(true) => ", of the same tensors",
            Some(false) => ", of other tensors than this file's",
            None => "",
        };
        let (file, program) = (quote(&self.file), quote(&self.program));
        line(&mut text, &format!("\ntrace      {file}, by {program}{device}{model}"));
        let (values, unknown) = (self.coverage.values, self.unknown);
        let words = self.coverage.in_words();
        line(&mut text, &format!("           {words}; {values} values compared; {unknown} names in it are not nodes"));
        self.missing_line(&mut text);
        self.node_lines(&mut text);
        text
    }

    fn missing_line(&self, text: &mut String) {
        let missing = &self.untraced;
        let more = |count: usize, shown: usize| if count > shown { ", ..." } else { "" };
        let nodes: Vec<&str> = missing.nodes.iter().take(NODES_SHOWN).map(String::as_str).collect();
        if !nodes.is_empty() {
            line(text, &format!("           not in it: {}{}", nodes.join(", "), more(missing.count, nodes.len())));
        }
        let steps: Vec<String> = missing.steps.iter().take(NODES_SHOWN).map(usize::to_string).collect();
        if !steps.is_empty() {
            line(
                text,
                &format!("           nothing of steps {}{}", steps.join(", "), more(missing.steps_count, steps.len())),
            );
        }
    }

    fn node_lines(&self, text: &mut String) {
        let mut nodes: Vec<&TraceNode> = self.nodes.iter().filter(|node| node.elements > 0).collect();
        let severity = |node: &TraceNode| node.worst_z.unwrap_or(f64::INFINITY);
        nodes.sort_by(|a, b| b.verdict.fails().cmp(&a.verdict.fails()).then(severity(b).total_cmp(&severity(a))));
        nodes.truncate(NODES_SHOWN);
        let width = name_width(nodes.iter().map(|node| node.node.as_str()));
        let title = "worst nodes";
        line(text, &format!("  {title:width$} operator       verdict               max |z|   device's distance"));
        for node in nodes {
            let z = node.worst_z.map_or("-".to_owned(), |z| format!("{z:.2}"));
            let distance = self.free.distance(&node.node).map_or("-".to_owned(), |distance| significant(distance, 2));
            let verdict = node.verdict.to_string();
            line(text, &format!("  {:width$} {:14} {verdict:20} {z:>8} {distance:>19}", node.node, node.op));
        }
    }
}

fn line(text: &mut String, content: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{content}");
}
