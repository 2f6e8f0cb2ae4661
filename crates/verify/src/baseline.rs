//! Differences to an earlier report, node by node.
//!
//! What drifted, and fails: a node whose verdict got worse (passing, not judged, failing, failing worse), a node whose
//! rms of z is more than 1.3 times the larger of 1 and what it was, a node that is no longer there, and fewer nodes
//! that were checked. The rms counts where it is gated, at sums of many roundings; of few roundings it says little.
//! Other changes are listed.
//!
//! A report of another model, device, input or cache is no baseline: nothing is compared, and the result is
//! inconclusive. Another version of this program or another machine is a note.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

use crate::record::Phase;
use crate::report::{NodeReport, Report, VERSION};
use crate::verdict::{Gate, RMS_MAX, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fmt;
use trueup_formats::{quote, significant};

/// Bytes that a report that serves as a baseline may have.
pub const BASELINE_BYTES_MAX: u64 = 256 << 20;

/// An earlier report, as far as it is compared.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Baseline {
    version: u32,
    model: String,
    model_id: Option<String>,
    device: Device,
    reference: Option<Device>,
    environment: Option<Version>,
    prompts: Vec<Vec<u32>>,
    steps: usize,
    kv: Option<String>,
    planted: Option<Planted>,
    coverage: Checked,
    tokens: Tokens,
    nodes: Vec<Node>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Device {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    simulated: bool,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Version {
    version: String,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Planted {
    name: String,
    node: String,
}

#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
struct Checked {
    checked: usize,
}

#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
struct Tokens {
    logit_sigma: Option<f64>,
    kl_mean: Option<f64>,
    flips: usize,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Node {
    node: String,
    verdict: Verdict,
    /// What it was fused of; reports of versions without fusion do not say.
    #[serde(default)]
    fused: Vec<String>,
    phases: Vec<NodePhase>,
}

#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
struct NodePhase {
    phase: Phase,
    rms_z: Option<f64>,
    nmse: Option<f64>,
}

/// What changed since an earlier report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BaselineReport {
    /// The earlier report.
    pub file: String,
    /// Why the two reports cannot be compared: another model, device, input or cache. Nothing is compared then.
    pub differs: Vec<String>,
    /// What else is different: another version of this program, another machine.
    pub notes: Vec<String>,
    /// Nodes that are in both.
    pub compared: usize,
    /// Changes that fail.
    pub drifts: usize,
    /// What changed, the drifts first.
    pub changes: Vec<Change>,
    /// Numbers of the whole run, before and now.
    pub numbers: Vec<NumberChange>,
}

/// One change.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// The node; empty where the whole report is meant.
    pub node: String,
    /// What is different, in words.
    pub what: String,
    /// As it was.
    pub before: String,
    /// As it is.
    pub now: String,
    /// Whether it fails.
    pub drift: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.node.is_empty() { "" } else { " " };
        let drift = if self.drift { " (drift)" } else { "" };
        write!(f, "{}{space}{}: {} to {}{drift}", self.node, self.what, self.before, self.now)
    }
}

/// A number of the whole run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NumberChange {
    /// What it is.
    pub name: String,
    /// As it was; null where it was not finite.
    pub before: Option<f64>,
    /// As it is.
    pub now: Option<f64>,
}

impl Baseline {
    /// Reads the JSON of an earlier report. A fault is one sentence.
    pub fn parse(text: &[u8]) -> Result<Baseline, String> {
        let baseline: Baseline = serde_json::from_slice(text).map_err(|error| {
            let reason = quote(&error.to_string());
            format!("expected a report of `trueup verify --json`, found invalid JSON: {reason}")
        })?;
        if baseline.version != VERSION {
            let version = baseline.version;
            return Err(format!("expected report version {VERSION}, found {version}; create it again with --json"));
        }
        if baseline.nodes.is_empty() {
            return Err("expected a report with nodes to compare, found none; create it again with --json".to_owned());
        }
        Ok(baseline)
    }

    /// Nodes that were checked, those in fused ones counted one by one.
    fn covered(&self) -> usize {
        let held = self.nodes.iter().map(|node| held(&node.fused));
        held.fold(self.coverage.checked, usize::saturating_add)
    }
}

/// Nodes that a node stands for beside itself.
fn held(fused: &[String]) -> usize {
    fused.len().saturating_sub(1)
}

impl Report {
    /// Compares with the earlier report `file`, where the two can be compared, and concludes anew.
    pub fn compare_with(&mut self, baseline: &Baseline, file: &str) {
        let differs = self.differs(baseline);
        let mut changes = if differs.is_empty() { self.changes(baseline) } else { Vec::new() };
        changes.sort_by_key(|change| !change.drift);
        let before: HashSet<&str> = baseline.nodes.iter().map(|node| node.node.as_str()).collect();
        let common = self.nodes.iter().filter(|node| before.contains(node.node.as_str()));
        self.baseline = Some(BaselineReport {
            file: file.to_owned(),
            compared: if differs.is_empty() { common.count() } else { 0 },
            differs,
            notes: self.notes(baseline),
            drifts: changes.iter().filter(|change| change.drift).count(),
            changes,
            numbers: self.numbers(baseline),
        });
        self.conclude();
    }

    /// What became of a node that is there no longer: it may be a part of another one now.
    fn gone(&self, node: &str) -> Change {
        let holder = self.nodes.iter().find(|held| held.fused.iter().any(|piece| piece == node));
        match holder {
            Some(holder) => change(&quote(node), "node", "there", &format!("fused into {}", holder.node), false),
            None => change(&quote(node), "node", "there", "missing", true),
        }
    }

    /// What changed, node by node.
    fn changes(&self, baseline: &Baseline) -> Vec<Change> {
        let before: HashMap<&str, &Node> = baseline.nodes.iter().map(|node| (node.node.as_str(), node)).collect();
        let now: HashSet<&str> = self.nodes.iter().map(|node| node.node.as_str()).collect();
        let mut changes = Vec::new();
        for node in &self.nodes {
            match before.get(node.node.as_str()) {
                Some(before) => compare(before, node, &mut changes),
                None => changes.push(change(&node.node, "node", "missing", "there", false)),
            }
        }
        for gone in baseline.nodes.iter().filter(|node| !now.contains(node.node.as_str())) {
            changes.push(self.gone(&gone.node));
        }
        let covered =
            self.nodes.iter().map(|node| held(&node.fused)).fold(self.coverage.checked, usize::saturating_add);
        if covered < baseline.covered() {
            let (before, now) = (baseline.covered().to_string(), covered.to_string());
            changes.push(change("", "nodes checked", &before, &now, true));
        }
        changes
    }

    /// Why the two cannot be compared, a clause each.
    fn differs(&self, baseline: &Baseline) -> Vec<String> {
        let mut differs = Vec::new();
        let mut add = |is_other: bool, what: &str, before: &str, now: &str| {
            if is_other {
                differs.push(format!("its {what} is {}, not {}", quote(before), quote(now)));
            }
        };
        let (before, now) = (file_name(&baseline.model), file_name(&self.model));
        match &baseline.model_id {
            Some(id) if before == now => add(*id != self.model_id, "model", "a different file with the same name", now),
            Some(id) => add(*id != self.model_id, "model", before, now),
            None => add(before != now, "model", before, now),
        }
        let device = |name: &str, simulated: bool| format!("{}{name}", if simulated { "simulated " } else { "" });
        let before = device(&baseline.device.name, baseline.device.simulated);
        let now = device(&self.device.name, self.device.simulated);
        add(before != now, "device", &before, &now);
        let before = baseline.reference.as_ref().map_or(self.reference.name.as_str(), |device| device.name.as_str());
        add(before != self.reference.name, "reference", before, &self.reference.name);
        let kv = |kv: &Option<String>| kv.clone().unwrap_or_else(|| "the default".to_owned());
        let (before, now) = (kv(&baseline.kv), kv(&self.kv));
        add(before != now, "type of the KV cache", &before, &now);
        let (before, now) = (baseline.steps.to_string(), self.steps.to_string());
        add(before != now, "number of steps", &before, &now);
        if self.prompts != baseline.prompts {
            differs.push("its prompts differ".to_owned());
        }
        let same = |fault: &&Planted| self.planted.as_ref().is_some_and(|own| own.name == fault.name);
        if let Some(Planted { name, node }) = baseline.planted.as_ref().filter(|fault| !same(fault)) {
            differs.push(format!("its device had the fault {} injected at {}", quote(name), quote(node)));
        }
        differs
    }

    fn notes(&self, baseline: &Baseline) -> Vec<String> {
        let mut notes = Vec::new();
        let own = &self.environment.version;
        if let Some(Version { version }) = baseline.environment.as_ref().filter(|before| before.version != *own) {
            notes.push(format!("the baseline was made by trueup {}, this report by {own}", quote(version)));
        }
        let (before, now) = (&baseline.device.description, &self.device.description);
        if before != now && !before.is_empty() {
            notes.push(format!("the baseline's device was {}", quote(before)));
        }
        notes
    }

    fn numbers(&self, baseline: &Baseline) -> Vec<NumberChange> {
        let (now, before) = (&self.tokens, &baseline.tokens);
        let number =
            |name: &str, before: Option<f64>, now: Option<f64>| NumberChange { name: name.to_owned(), before, now };
        vec![
            number("logit error, rms", before.logit_sigma, now.logit_sigma),
            number("divergence, mean", before.kl_mean, now.kl_mean),
            number("flips", Some(real(before.flips)), Some(real(now.flips))),
        ]
    }
}

/// The nearest f64.
#[allow(clippy::as_conversions, reason = "a count above 2^53 may be rounded here")]
pub(crate) fn real(count: usize) -> f64 {
    count as f64
}

/// The last part of a path of either kind.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

fn change(node: &str, what: &str, before: &str, now: &str, drift: bool) -> Change {
    Change { node: node.to_owned(), what: what.to_owned(), before: before.to_owned(), now: now.to_owned(), drift }
}

/// Verdicts by how bad they are: those that pass are alike, for which of them it is may change with the last bit of an
/// input.
fn kind(verdict: Verdict) -> Verdict {
    if verdict.passes() { Verdict::Exact } else { verdict }
}

/// What changed at a node.
fn compare(before: &Node, now: &NodeReport, changes: &mut Vec<Change>) {
    if before.verdict != now.verdict {
        let worse = kind(now.verdict) > kind(before.verdict) && now.waived.is_none();
        changes.push(change(&now.node, "verdict", &before.verdict.to_string(), &now.verdict.to_string(), worse));
    }
    for phase in [Phase::Prompt, Phase::Decode] {
        let of = |rms: &dyn Fn(&NodePhase) -> Option<f64>| {
            before.phases.iter().filter(|found| found.phase == phase).filter_map(rms).reduce(f64::max)
        };
        let own = || now.phases.iter().filter(|found| found.phase == phase);
        let rms = [of(&|phase| phase.rms_z), own().filter_map(|phase| phase.rms_z).reduce(f64::max)];
        if let [Some(was), Some(is)] = rms
            && (is > RMS_MAX * was.max(1.0) || was > RMS_MAX * is.max(1.0))
        {
            let what = format!("rms z, {phase}");
            let gated = own().any(|phase| phase.gate == Gate::Noise);
            let drift = is > was && gated && now.waived.is_none();
            changes.push(change(&now.node, &what, &format!("{was:.3}"), &format!("{is:.3}"), drift));
        }
        let nmse = [of(&|phase| phase.nmse), own().filter_map(|phase| phase.nmse).reduce(f64::max)];
        if let [Some(was), Some(is)] = nmse
            && (is > 2.0 * was || was > 2.0 * is)
        {
            let what = format!("mean square error, {phase}");
            changes.push(change(&now.node, &what, &significant(was, 3), &significant(is, 3), false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_report_is_refused_in_one_sentence() {
        let deep = "[".repeat(100_000);
        let other = r#"{"version":9,"model":"m","device":{"name":"cpu"},"prompts":[],"steps":0,"coverage":{"checked":0},
            "tokens":{"logit_sigma":0,"kl_mean":0,"flips":0},"nodes":[]}"#;
        for (text, part) in [
            ("", "expected a report of `trueup verify --json`"),
            ("{}", "missing field"),
            (&deep, "expected a report of `trueup verify --json`"),
            (other, "found 9"),
            (&other.replace("9,", "1,"), "nodes to compare, found none"),
        ] {
            let told = Baseline::parse(text.as_bytes()).unwrap_err();
            assert!(told.contains(part) && told.lines().count() == 1, "{told}");
        }
    }
}
