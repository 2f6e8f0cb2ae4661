//! The operator suite: every operator alone on a device, on the shapes, types and values of [`Op::cases`], judged like
//! the nodes of models.
//!
//! ```text
//! Op::cases ─ fill ─▶ stage: weights, states, guarded arena ─ two runs ─▶ run: guards, repetition, bound ─▶ result
//!                                   └ many nodes in one call ─▶ perf: time, GB/s, FLOP/s, share of the limit
//! ```
//!
//! A case passes if all of these hold: the verdict on its elements passes; nothing outside the result changed; a
//! second run, into memory with another pattern, gives the same bits; a case of small integers is exact; and, if only
//! f32 is involved, the NMSE is below [`NMSE_MAX`].

mod fill;
mod list;
mod perf;
mod result;
mod run;
mod stage;

pub use list::{Answer, list};
pub use perf::{PerfReport, PerfResult, perf};
use regex::Regex;
pub use result::{CaseResult, Status, SuiteReport};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use trueup_graph::{Case, Op};
use trueup_runtime::device::Device;
use trueup_runtime::{Error, Result};

/// Largest NMSE of a case in which only f32 is involved.
pub const NMSE_MAX: f64 = 1e-6;

/// The default seed.
pub const SEED_DEFAULT: u64 = 1;

/// A case and what it is called.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// The operator's name and the case's number among the operator's, from 0: `add/17`.
    pub name: String,
    /// What is computed.
    pub case: Case,
}

/// All cases, operator by operator.
pub fn candidates() -> Vec<Candidate> {
    named(Op::cases())
}

/// Names for cases.
fn named(cases: Vec<Case>) -> Vec<Candidate> {
    let mut counts: HashMap<&'static str, usize> = HashMap::new();
    let name = |case: Case| {
        let count = counts.entry(case.op.name()).or_default();
        let name = format!("{}/{count}", case.op.name());
        *count += 1;
        Candidate { name, case }
    };
    cases.into_iter().map(name).collect()
}

/// Which cases are wanted.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    operators: Option<Regex>,
    case: Option<String>,
    one_of: Option<u64>,
}

impl Selection {
    /// Cases of operators whose whole name matches the regular expression `operators`, and only the one called `case`.
    /// Fails where one of them selects nothing that is known.
    pub fn new(operators: Option<&str>, case: Option<&str>) -> Result<Selection> {
        let refuse = |sentence: String| Err(Error::Request(sentence));
        let quote = trueup_formats::quote;
        let pattern = operators.unwrap_or_default();
        // The pattern is tested alone, so that positions in its error are those that the user typed.
        let whole = |pattern: &str| Regex::new(pattern).and_then(|_| Regex::new(&format!("^(?:{pattern})$")));
        let operators = match operators.map(|pattern| (pattern, whole(pattern))) {
            None => None,
            Some((_, Ok(regex))) if Op::names().iter().any(|name| regex.is_match(name)) => Some(regex),
            Some((pattern, Ok(_))) => {
                return refuse(format!(
                    "--op: expected the name of an operator or a pattern such as mul_.*, found {}; \
                     `trueup ops list` shows all names",
                    quote(pattern)
                ));
            }
            Some((pattern, Err(error))) => {
                let reason = trueup_formats::regex_reason(&error.to_string());
                return refuse(format!(
                    "--op: expected a regular expression such as add|mul_.*, found {}: {reason}",
                    quote(pattern)
                ));
            }
        };
        let selection = Selection { operators, case: case.map(str::to_owned), one_of: None };
        match case.filter(|_| !candidates().iter().any(|candidate| selection.takes(candidate))) {
            None => Ok(selection),
            Some(case) if candidates().iter().any(|candidate| candidate.name == case) => {
                let (case, pattern) = (quote(case), quote(pattern));
                refuse(format!("--case {case}: the operator does not match --op {pattern}; remove --op or --case"))
            }
            Some(case) => refuse(format!(
                "--case: expected a case such as add/0, found {}; `trueup ops test --op NAME --json -` shows all cases of \
                 an operator",
                quote(case)
            )),
        }
    }

    /// Runs about one of N cases, sampled with the seed. 0 and 1 run all cases. A case that is selected by name always
    /// runs.
    #[must_use]
    pub fn one_of(self, count: u64) -> Selection {
        Selection { one_of: (count > 1).then_some(count), ..self }
    }

    /// Whether the seed draws a case. Each has the same chance, whichever others there are.
    fn draws(&self, candidate: &Candidate, seed: u64) -> bool {
        self.case.is_some()
            || self.one_of.is_none_or(|count| {
                let mut hasher = Sha256::new();
                hasher.update(seed.to_le_bytes());
                hasher.update(&candidate.name);
                let [first, ..] = *hasher.finalize().as_chunks::<8>().0 else { return true };
                u64::from_le_bytes(first).is_multiple_of(count)
            })
    }

    fn takes(&self, candidate: &Candidate) -> bool {
        self.takes_operator(candidate.case.op.name()) && self.case.as_ref().is_none_or(|case| *case == candidate.name)
    }

    fn takes_operator(&self, name: &str) -> bool {
        self.operators.as_ref().is_none_or(|operators| operators.is_match(name))
    }
}

/// Computes all selected cases on a device and judges them; `tell` hears of each when it is done.
///
/// A device that fails, or computes wrongly, fails the case; nothing is an error.
pub fn test(device: &dyn Device, selection: &Selection, seed: u64, tell: &mut dyn FnMut(&CaseResult)) -> SuiteReport {
    let selected = candidates()
        .into_iter()
        .filter(|candidate| selection.takes(candidate) && selection.draws(candidate, seed))
        .collect();
    test_cases(device, selected, seed, tell)
}

fn test_cases(
    device: &dyn Device,
    candidates: Vec<Candidate>,
    seed: u64,
    tell: &mut dyn FnMut(&CaseResult),
) -> SuiteReport {
    let about = device.about();
    let run = |candidate: Candidate| {
        let result = run::run(device, &candidate, seed);
        tell(&result);
        result
    };
    let results: Vec<CaseResult> = candidates.into_iter().map(run).collect();
    let count = |status: Status| results.iter().filter(|result| result.status == status).count();
    SuiteReport {
        device: about.name,
        description: about.description,
        seed,
        cases: results.len(),
        passed: count(Status::Pass),
        failed: count(Status::Fail),
        skipped: count(Status::Skip),
        results,
    }
}

#[cfg(test)]
mod mutants;
#[cfg(test)]
mod tests;
