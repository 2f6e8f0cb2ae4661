//! What a project asks of a verification, read from a gate file, and what became of it.
//!
//! ```toml
//! coverage = 1.0            # share of the nodes that must be judged, in each phase and in each step of a trace
//! require_device = false    # whether a node that fell back makes the result inconclusive
//!
//! [budgets]                 # a number beyond its budget fails
//! kl_mean = 0.001
//!
//! [[waiver]]                # a failure that is known and accepted for a while
//! node = "kqv_out-*"        # `*` stands for any characters, `?` for one
//! op = "kv_mix"             # optional
//! verdict = "undeclared_precision"
//! reason = "sums in f16 until the kernel is replaced"
//! expires = 2027-01-31      # the last day it holds
//! ```
//!
//! A waiver that expired waives nothing and is listed, one that nothing needed is listed. Waived nodes do not count as
//! passed: where nothing else passed, the result is inconclusive.
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

use crate::date::Date;
use crate::report::{NodeReport, Report};
use crate::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::fmt;
use toml::Spanned;
use trueup_formats::{counted, significant};

/// Bytes that a gate file may have.
pub const POLICY_BYTES_MAX: u64 = 1 << 20;
/// Waivers that a gate file may hold, and characters of a pattern.
const WAIVERS_MAX: usize = 1000;
const PATTERN_MAX: usize = 256;

/// A valid gate file.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// None where the file does not say.
    coverage: Option<f64>,
    require_device: bool,
    budgets: Budgets,
    waivers: Vec<Waiver>,
}

/// The largest values that are accepted.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budgets {
    kl_mean: Option<f64>,
    kl_max: Option<f64>,
    logit_sigma: Option<f64>,
    flips: Option<f64>,
    rms_z: Option<f64>,
}

#[derive(Clone, PartialEq, Debug)]
struct Waiver {
    node: String,
    op: Option<String>,
    verdict: Verdict,
    reason: String,
    expires: Date,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    coverage: Option<Spanned<f64>>,
    #[serde(default)]
    require_device: bool,
    budgets: Option<Spanned<Budgets>>,
    #[serde(default)]
    waiver: Vec<Spanned<WaiverFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaiverFile {
    node: String,
    op: Option<String>,
    verdict: Spanned<String>,
    reason: String,
    expires: toml::value::Datetime,
}

impl Policy {
    /// Reads the text of a gate file. A fault is one sentence with its line.
    pub fn parse(text: &str) -> Result<Policy, String> {
        let line = |at: usize| text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count().saturating_add(1);
        let file: PolicyFile = toml::from_str(text).map_err(|error| {
            let place = error.span().map_or(String::new(), |span| format!("line {}: ", line(span.start)));
            let problem = plain(error.message().lines().next().unwrap_or("not a gate file"));
            let help =
                if problem.contains("expected a date, found string") { "; write the date without quotes" } else { "" };
            format!("{place}{}{help}", trueup_formats::quote(&problem))
        })?;
        let fail = |at: usize, what: &str| Err(format!("line {}: {what}", line(at)));
        if file.waiver.len() > WAIVERS_MAX {
            return Err(format!("{} waivers are more than {WAIVERS_MAX}", file.waiver.len()));
        }
        let coverage = file.coverage.as_ref().map_or(1.0, |share| *share.get_ref());
        if !(coverage > 0.0 && coverage <= 1.0) {
            let at = file.coverage.as_ref().map_or(0, |share| share.span().start);
            return fail(at, &format!("expected a coverage above 0 and up to 1, found {coverage}"));
        }
        if let Some(budgets) = &file.budgets {
            let limits = budgets.get_ref().named().into_iter().filter_map(|(name, limit)| Some((name, limit?)));
            let mut wrong = limits.filter(|(_, limit)| !limit.is_finite() || *limit < 0.0);
            if let Some((name, limit)) = wrong.next() {
                let what = format!("{name}: expected a finite budget of at least 0, found {limit}");
                return fail(budgets.span().start, &what);
            }
        }
        let mut waivers = Vec::with_capacity(file.waiver.len());
        for waiver in file.waiver {
            let (at, waiver) = (waiver.span().start, waiver.into_inner());
            let verdict_at = waiver.verdict.span().start;
            let verdict = waived_verdict(waiver.verdict.get_ref());
            let made = verdict
                .map_err(|fault| (verdict_at, fault))
                .and_then(|verdict| Waiver::new(waiver, verdict).map_err(|fault| (at, fault)));
            match made {
                Ok(waiver) => waivers.push(waiver),
                Err((at, fault)) => return fail(at, &fault),
            }
        }
        let budgets = file.budgets.map_or(Budgets::default(), Spanned::into_inner);
        let coverage = file.coverage.map(Spanned::into_inner);
        Ok(Policy { coverage, require_device: file.require_device, budgets, waivers })
    }
}

/// The verdict that a waiver names.
fn waived_verdict(name: &str) -> Result<Verdict, String> {
    match name {
        "undeclared_precision" => Ok(Verdict::UndeclaredPrecision),
        "structural_bug" => Ok(Verdict::StructuralBug),
        "not_finite" => Ok(Verdict::NotFinite),
        _ => {
            let is_unjudged = ["unchecked", "inconclusive"].contains(&name);
            let help = if is_unjudged { "; to accept nodes that could not be judged, lower `coverage`" } else { "" };
            let found = trueup_formats::quote(name);
            Err(format!(
                "verdict: expected undeclared_precision, structural_bug or not_finite, found \"{found}\"{help}"
            ))
        }
    }
}

/// A message of the parser in the form "expected X, found Y".
fn plain(problem: &str) -> String {
    let field = |prefix| problem.strip_prefix(prefix)?.strip_suffix('`');
    if let Some(field) = field("missing field `") {
        return format!("a waiver has no {field}; add the key");
    }
    let unknown = problem.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, expected "));
    if let Some((name, known)) = unknown {
        let known = known.trim_start_matches("one of ").replace('`', "");
        let known = known.rsplit_once(", ").map_or(known.clone(), |(first, last)| format!("{first} or {last}"));
        return format!("expected {known}, found {name}");
    }
    let types = problem.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "));
    types.map_or_else(
        || problem.to_owned(),
        |(found, expected)| {
            let expected = match expected {
                "a TOML datetime" => "a date",
                "f64" => "a number",
                "a boolean" => "true or false",
                other => other,
            };
            format!("expected {expected}, found {found}")
        },
    )
}

impl Budgets {
    fn named(&self) -> [(&'static str, Option<f64>); 5] {
        [
            ("kl_mean", self.kl_mean),
            ("kl_max", self.kl_max),
            ("logit_sigma", self.logit_sigma),
            ("flips", self.flips),
            ("rms_z", self.rms_z),
        ]
    }
}

impl Waiver {
    fn new(file: WaiverFile, verdict: Verdict) -> Result<Waiver, String> {
        let expires = Date::from_toml(&file.expires)
            .ok_or_else(|| format!("expires: expected a date such as 2027-01-31, found {}", file.expires))?;
        if file.reason.trim().is_empty() {
            return Err("a waiver has no reason; state why the failure is accepted".to_owned());
        }
        if file.node.is_empty() || file.node.chars().count() > PATTERN_MAX {
            return Err(format!("node must be a pattern of 1 to {PATTERN_MAX} characters"));
        }
        Ok(Waiver { node: file.node, op: file.op, verdict, reason: file.reason, expires })
    }

    fn covers(&self, node: &NodeReport) -> bool {
        let op = self.op.as_ref().is_none_or(|op| *op == node.op);
        op && self.verdict == node.verdict && matches(&self.node, &node.node)
    }
}

/// Whether the pattern, in which `*` stands for any characters and `?` for one, fits the whole name.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut pattern, mut name) = (&pattern[..], &name[..]);
    // What stands behind the last star, and the characters that it has not taken yet.
    let mut star = None;
    loop {
        match (pattern, name) {
            ([], []) => return true,
            (['*', rest @ ..], _) => {
                star = Some((rest, name));
                pattern = rest;
            }
            ([wanted, rest @ ..], [found, left @ ..]) if *wanted == '?' || wanted == found => {
                (pattern, name) = (rest, left);
            }
            (_, []) => return false,
            ([..], [_, ..]) => {
                let Some((rest, [_, left @ ..])) = star else { return false };
                star = Some((rest, left));
                (pattern, name) = (rest, left);
            }
        }
    }
}

/// What became of a gate file.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PolicyReport {
    /// The file.
    pub file: String,
    /// The share of nodes that must be judged.
    pub coverage: f64,
    /// Each budget.
    pub budgets: Vec<BudgetReport>,
    /// Each waiver.
    pub waivers: Vec<WaiverReport>,
}

/// A budget and what was found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BudgetReport {
    /// What is limited.
    pub name: String,
    /// The largest value accepted.
    pub limit: f64,
    /// The value found; null where it is no finite number.
    pub found: Option<f64>,
    /// Whether it holds.
    pub holds: bool,
    /// Why it cannot be evaluated, which is neither holding nor exceeded; null where it can.
    pub problem: Option<String>,
}

impl fmt::Display for BudgetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BudgetReport { name, limit, found, holds, problem } = self;
        let limit = significant(*limit, 6);
        match (problem, found, holds) {
            (Some(problem), _, _) => write!(f, "{name}: limit {limit}, cannot be evaluated: {problem}"),
            (None, Some(found), true) => write!(f, "{name}: {}, limit {limit}, met", significant(*found, 4)),
            (None, Some(found), false) => write!(f, "{name}: {}, limit {limit}, exceeded", significant(*found, 4)),
            (None, None, _) => write!(f, "{name}: limit {limit}, no value was measured"),
        }
    }
}

/// A waiver and what it was good for.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WaiverReport {
    /// Pattern of nodes.
    pub node: String,
    /// The operator, where one is named.
    pub op: Option<String>,
    /// The failure that is accepted.
    pub verdict: Verdict,
    /// Why.
    pub reason: String,
    /// The last day it holds.
    pub expires: String,
    /// What became of it.
    pub state: WaiverState,
    /// The nodes it fits, waived or, when it expired, not.
    pub nodes: Vec<String>,
}

impl fmt::Display for WaiverReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = self.op.as_ref().map_or(String::new(), |op| format!(" ({op})"));
        let state = match self.state {
            WaiverState::Used => format!("waives {}", self.nodes.join(", ")),
            WaiverState::Unused => "matches no failing node: remove it".to_owned(),
            WaiverState::Expired => {
                format!("expired and waives nothing (it matches {})", counted(self.nodes.len(), "node"))
            }
        };
        write!(
            f,
            "waiver of {} at {}{op} until {}: {state}; reason: {}",
            self.verdict,
            trueup_formats::quote(&self.node),
            self.expires,
            trueup_formats::quote(&self.reason)
        )
    }
}

/// What became of a waiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaiverState {
    /// It waives a failure.
    Used,
    /// Nothing needs it.
    Unused,
    /// Its day is past: it waives nothing.
    Expired,
}

impl Report {
    /// Applies the gate file `file` on day `today`: waives failures, checks budgets, and concludes anew.
    pub fn apply_policy(&mut self, policy: &Policy, file: &str, today: Date) {
        let waivers = policy.waivers.iter().map(|waiver| self.apply_waiver(waiver, today)).collect();
        self.require_device |= policy.require_device;
        self.coverage.waived = self.nodes.iter().filter(|node| node.waived.is_some()).count();
        let budgets =
            policy.budgets.named().into_iter().filter_map(|(name, limit)| self.budget(name, limit?)).collect();
        self.require_coverage = self.require_coverage.or(policy.coverage);
        let coverage = policy.coverage.unwrap_or(1.0);
        self.policy = Some(PolicyReport { file: file.to_owned(), coverage, budgets, waivers });
        self.conclude();
    }

    fn apply_waiver(&mut self, waiver: &Waiver, today: Date) -> WaiverReport {
        let mut nodes = Vec::new();
        let expired = waiver.expires < today;
        for node in self.nodes.iter_mut().filter(|node| waiver.covers(node)) {
            nodes.push(node.node.clone());
            if !expired {
                node.waived.get_or_insert_with(|| waiver.reason.clone());
            }
        }
        let state = match (expired, nodes.is_empty()) {
            (true, _) => WaiverState::Expired,
            (false, true) => WaiverState::Unused,
            (false, false) => WaiverState::Used,
        };
        WaiverReport {
            node: waiver.node.clone(),
            op: waiver.op.clone(),
            verdict: waiver.verdict,
            reason: waiver.reason.clone(),
            expires: waiver.expires.to_string(),
            state,
            nodes,
        }
    }

    fn budget(&self, name: &str, limit: f64) -> Option<BudgetReport> {
        let tokens = &self.tokens;
        let found = match name {
            "kl_mean" => tokens.kl_mean,
            "kl_max" => tokens.kl_max,
            "logit_sigma" => tokens.logit_sigma,
            "flips" => self.infinite_logits().is_none().then_some(crate::baseline::real(tokens.flips)),
            "rms_z" => {
                let worst = self.judged_phases().map(|(_, rms_z)| rms_z.unwrap_or(f64::INFINITY)).fold(0.0, f64::max);
                Some(worst).filter(|worst| worst.is_finite())
            }
            _ => return None,
        };
        let problem = match found {
            Some(_) => None,
            None if name == "rms_z" => {
                let node = self.judged_phases().find(|(_, rms_z)| rms_z.is_none());
                node.map(|(node, _)| format!("rms z of {node} is not finite"))
            }
            None => self.infinite_logits(),
        };
        let holds = found.is_some_and(|found| found <= limit);
        Some(BudgetReport { name: name.to_owned(), limit, found, holds, problem })
    }

    /// The rms of z of each phase of the nodes that are not waived.
    fn judged_phases(&self) -> impl Iterator<Item = (&str, Option<f64>)> {
        let nodes = self.nodes.iter().filter(|node| node.waived.is_none());
        nodes.flat_map(|node| node.phases.iter().map(|phase| (node.node.as_str(), phase.rms_z)))
    }

    /// How many rows of logits are not finite, in words, where any are.
    fn infinite_logits(&self) -> Option<String> {
        let (tokens, all) = (&self.tokens, self.tokens.positions);
        match (tokens.not_finite, tokens.reference_not_finite) {
            (0, 0) => None,
            (0, own) => Some(format!("the reference's logits are not finite for {own} of {all} tokens")),
            (found, _) => Some(format!("the device's logits are not finite for {found} of {all} tokens")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        let cases = [
            ("ffn_up-*", "ffn_up-12", true),
            ("ffn_up-1", "ffn_up-12", false),
            ("*-1", "ffn_up-1", true),
            ("*", "", true),
            ("?", "", false),
            ("kq?-*", "kqv-3", true),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
            ("*aaaaaaaaaaaaaaaaaaaab", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, name, fits) in cases {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn hostile_files_are_refused_with_their_line() {
        let waiver = |more: &str| format!("\n[[waiver]]\nnode = \"a\"\nverdict = \"structural_bug\"\n{more}");
        let cases = [
            ("coverage = ".to_owned(), "line 1"),
            ("\n\ncoverage = 1.5".to_owned(), "line 3: expected a coverage above 0"),
            ("coverage = nan".to_owned(), "line 1: expected a coverage above 0"),
            ("coverage = \"all\"".to_owned(), "line 1"),
            ("budget = 3".to_owned(), "line 1: expected coverage, require_device, budgets or waiver, found budget"),
            ("[budgets]\nkl_mean = -1".to_owned(), "kl_mean: expected a finite budget of at least 0, found -1"),
            (waiver("reason = \" \"\nexpires = 2027-01-31"), "line 2: a waiver has no reason"),
            (waiver("expires = 2027-01-31"), "a waiver has no reason; add the key"),
            (waiver("reason = \"r\""), "a waiver has no expires; add the key"),
            (waiver("reason = \"r\"\nexpires = 12:00:00"), "expected a date"),
            (waiver("reason = \"r\"\nexpires = \"2027-01-31\""), "; write the date without quotes"),
            (waiver("reason = \"r\"\nexpires = 2027-02-30"), "line 6"),
            (
                "[[waiver]]\nnode = \"a\"\nverdict = \"rounding\"\nreason = \"r\"\nexpires = 2027-01-31".to_owned(),
                "line 3: verdict: expected undeclared_precision, structural_bug or not_finite, found \"rounding\"",
            ),
            ("[[waiver]]\nverdict = 3".to_owned(), "line 2: expected a string, found integer `3`"),
            ("coverage = \"all\"".to_owned(), "expected a number, found string \"all\""),
            (
                "[[waiver]]\nnode = \"\"\nverdict = \"not_finite\"\nreason = \"r\"\nexpires = 2027-01-31".to_owned(),
                "pattern",
            ),
            ("a = [".repeat(100_000), "line 1"),
        ];
        for (text, part) in cases {
            let told = Policy::parse(&text).unwrap_err();
            assert!(told.contains(part) && told.lines().count() == 1, "{part}: {told}");
        }
        assert!(Policy::parse("").is_ok_and(|policy| policy.coverage.is_none() && policy.waivers.is_empty()));
    }
}
