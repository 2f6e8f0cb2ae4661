//! What the suite says about a case, and about all of them.

use super::Candidate;
use crate::statistics::Statistics;
use crate::verdict::Verdict;
use serde::Serialize;
use std::fmt;
use trueup_formats::{counted, significant};
use trueup_runtime::profile::Profile;

/// How a case ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Everything is as it should be.
    Pass,
    /// Something is not.
    Fail,
    /// The device does not compute this.
    Skip,
}

/// One case on one device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CaseResult {
    /// The operator's name and the case's number among the operator's: `add/17`.
    pub name: String,
    /// The operator's name.
    pub op: String,
    /// The operator with its parameters.
    pub parameters: String,
    /// The types of the inputs.
    pub inputs: Vec<String>,
    /// The type of the result; empty where the inputs have none.
    pub output: String,
    /// The seed of the run; with it and the name the case can be computed again on the same numbers.
    pub seed: u64,
    /// How it ended.
    pub status: Status,
    /// What the result's elements say; null where there is no result.
    pub verdict: Option<Verdict>,
    /// The largest |z|; null where it is infinite or nothing was compared.
    pub z: Option<f64>,
    /// The largest share of the hard bound; null as above.
    pub b: Option<f64>,
    /// Normalised mean square error against the exact result; null as above.
    pub nmse: Option<f64>,
    /// What the device declares; null where it does not compute this.
    pub profile: Option<Profile>,
    /// What is not as it should be, one sentence each.
    pub problems: Vec<String>,
    /// Why the device does not compute this.
    pub skipped: Option<String>,
}

impl CaseResult {
    /// A result without any finding yet.
    pub(super) fn new(candidate: &Candidate, seed: u64) -> CaseResult {
        CaseResult {
            name: candidate.name.clone(),
            op: candidate.case.op.name().to_owned(),
            parameters: format!("{:?}", candidate.case.op),
            inputs: candidate.case.inputs.iter().map(|(ty, _)| ty.to_string()).collect(),
            output: String::new(),
            seed,
            status: Status::Fail,
            verdict: None,
            z: None,
            b: None,
            nmse: None,
            profile: None,
            problems: Vec::new(),
            skipped: None,
        }
    }

    /// The case did not come to a result.
    pub(super) fn broken(mut self, problem: String) -> CaseResult {
        self.problems.push(problem);
        self
    }

    /// The device does not compute this.
    pub(super) fn skipped(self, reason: String) -> CaseResult {
        CaseResult { status: Status::Skip, skipped: Some(reason), ..self }
    }

    /// Takes what the result's elements say.
    pub(super) fn measured(&mut self, verdict: Verdict, statistics: &Statistics) {
        let finite = |value: f64| value.is_finite().then_some(value);
        self.verdict = Some(verdict);
        self.z = statistics.worst_z.and_then(|worst| finite(worst.ratio));
        self.b = statistics.worst_bound.and_then(|worst| finite(worst.ratio));
        self.nmse = finite(statistics.nmse()).filter(|_| statistics.elements > 0);
    }
}

impl fmt::Display for CaseResult {
    /// One line, and one more for each problem:
    /// `pass add/3 f32[31, 7], f32[31] -> f32[31, 7], seed 1: exact, |z| 0.00, b 0.00, NMSE 0.0e0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = match self.status {
            Status::Pass => "pass",
            Status::Fail => "FAIL",
            Status::Skip => "skip",
        };
        write!(f, "{status} {} {} -> {}, seed {}", self.name, self.inputs.join(", "), self.output, self.seed)?;
        if let Some(reason) = &self.skipped {
            return write!(f, ": {reason}");
        }
        if let Some(verdict) = self.verdict {
            write!(f, ": {verdict}")?;
            let mut measure = |name: &str, value: Option<String>| match value {
                Some(value) => write!(f, ", {name} {value}"),
                None => Ok(()),
            };
            measure("|z|", self.z.map(|z| format!("{z:.2}")))?;
            measure("b", self.b.map(|b| format!("{b:.2}")))?;
            measure("NMSE", self.nmse.map(|nmse| significant(nmse, 2)))?;
        }
        if self.status == Status::Fail {
            write!(f, "\n     {}", self.parameters)?;
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\n     {problem}"))
    }
}

/// All cases on one device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SuiteReport {
    /// The device's name.
    pub device: String,
    /// What the device is.
    pub description: String,
    /// The seed of all cases.
    pub seed: u64,
    /// How many cases were asked for.
    pub cases: usize,
    /// How many of them are as they should be.
    pub passed: usize,
    /// How many are not.
    pub failed: usize,
    /// How many the device does not compute.
    pub skipped: usize,
    /// One entry a case, in the order of the operators.
    pub results: Vec<CaseResult>,
}

impl SuiteReport {
    /// What is said in one line.
    pub fn summary(&self) -> String {
        let SuiteReport { device, cases, passed, failed, skipped, seed, .. } = self;
        let cases = counted(*cases, "case");
        format!("{device}: {cases}, {passed} passed, {failed} failed, {skipped} skipped, seed {seed}")
    }

    /// Whether anything was computed.
    pub fn ran(&self) -> bool {
        self.passed + self.failed > 0
    }
}
