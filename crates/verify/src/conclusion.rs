//! From everything that was found to one result: what failed, whether enough was looked at, and the sentence.

use crate::explain::{Explanation, cause_sentence, raced};
use crate::policy::BudgetReport;
use crate::report::{BadNode, NodeReport, Outcome, PhaseReport, Report};
use crate::sentence::sentence;
use crate::trace::TraceReport;
use trueup_formats::significant;

impl NodeReport {
    /// The phase with the worst verdict, of several the one with the worst element; what has no finite measure is
    /// worst.
    pub fn worst_phase(&self) -> Option<&PhaseReport> {
        self.phases.iter().max_by(|a, b| {
            let badness = |phase: &PhaseReport| phase.worst_z.unwrap_or(f64::INFINITY);
            a.verdict.cmp(&b.verdict).then(badness(a).total_cmp(&badness(b)))
        })
    }

    /// Whether it failed and is not waived.
    pub fn fails(&self) -> bool {
        self.verdict.fails() && self.waived.is_none()
    }

    /// The explanation that says most: one that names a cause, a race last, of a phase with the worst verdict rather
    /// than of another.
    pub(crate) fn explanation(&self) -> Option<&Explanation> {
        let worst = |explanation: &Explanation| {
            let mut phases = self.phases.iter().filter(|phase| phase.phase == explanation.phase);
            phases.any(|phase| phase.verdict == self.verdict)
        };
        let says = |explanation: &Explanation| (explanation.known, !explanation.is_race(), worst(explanation));
        // Of equals the first.
        self.explanations.iter().rev().max_by_key(|explanation| says(explanation))
    }

    /// What it likely comes from. A race may show in another step than in the first that failed.
    pub(crate) fn cause(&self) -> Option<String> {
        let sum = |count: fn(&PhaseReport) -> u64| self.phases.iter().map(count).sum::<u64>();
        let raced_elements = sum(|phase| phase.raced);
        let explained = self.explanation().map(|explanation| explanation.cause.clone());
        let race = || (raced_elements > 0).then(|| raced(raced_elements, sum(|phase| phase.elements)));
        let known = self.explanation().is_some_and(|explanation| explanation.known);
        if known { explained } else { race().or(explained) }
    }

    /// The cause as a sentence without its full stop.
    pub(crate) fn cause_sentence(&self) -> Option<String> {
        self.cause().map(|cause| cause_sentence(cause, self.is_cause()))
    }

    /// Whether [`NodeReport::cause`] is one, and not only a description of the errors.
    fn is_cause(&self) -> bool {
        let is_raced = self.phases.iter().any(|phase| phase.raced > 0);
        self.explanation().is_none_or(|explanation| explanation.is_cause() || (!explanation.known && is_raced))
    }

    /// The cause and the place are of one step, where there is a cause.
    fn as_bad(&self) -> BadNode {
        let explained = self.explanation().and_then(|explanation| explanation.worst.clone());
        BadNode {
            node: self.node.clone(),
            layer: self.layer,
            op: self.op.clone(),
            verdict: self.verdict,
            tensor: self.tensor.clone(),
            worst: explained.or_else(|| self.worst_phase().and_then(|phase| phase.worst.clone())),
            cause: self.cause(),
            is_cause: self.is_cause(),
            repro: self.explanations.iter().find_map(|explanation| explanation.repro.clone()),
        }
    }
}

impl BadNode {
    /// The cause as a sentence without its full stop.
    pub(crate) fn cause_sentence(&self) -> Option<String> {
        self.cause.clone().map(|cause| cause_sentence(cause, self.is_cause))
    }
}

impl Report {
    /// What a gate file or a baseline finds wrong, one sentence without its full stop each.
    pub fn complaints(&self) -> Vec<String> {
        let budgets = self.policy.iter().flat_map(|policy| &policy.budgets).filter(|budget| !budget.holds);
        let budgets = budgets.filter_map(|budget| {
            let found = budget.found.filter(|_| budget.problem.is_none())?;
            let [found, limit] = [found, budget.limit].map(|value| significant(value, 4));
            Some(format!("{} is {found}, above its budget of {limit}", budget.name))
        });
        let drifts = self.baseline.iter().flat_map(|baseline| &baseline.changes).filter(|change| change.drift);
        let drifts = drifts.map(|change| {
            let node = if change.node.is_empty() { String::new() } else { format!("{}: ", change.node) };
            format!("{node}{} went from {} to {} since the baseline", change.what, change.before, change.now)
        });
        budgets.chain(drifts).collect()
    }

    /// What a gate file or a baseline asks and nothing here can answer, in a clause without a full stop.
    pub(crate) fn undecided(&self) -> Option<String> {
        let budgets = self.policy.iter().flat_map(|policy| &policy.budgets);
        let unknown = |budget: &BudgetReport| {
            let problem = budget.problem.as_ref()?;
            Some(format!("the budget of {} cannot be evaluated: {problem}", budget.name))
        };
        let baseline = self.baseline.as_ref().filter(|baseline| !baseline.differs.is_empty()).map(|baseline| {
            let (file, differs) = (trueup_formats::quote(&baseline.file), baseline.differs.join(", and "));
            format!(
                "{file} cannot be used as a baseline: {differs}; use another baseline, or create a new one with --json"
            )
        });
        budgets.filter_map(unknown).next().or(baseline)
    }

    /// Asks for a share of the nodes to be judged, in each phase and in each step of a trace; counts before a gate
    /// file's.
    pub fn require_coverage(&mut self, share: f64) {
        self.require_coverage = Some(share);
        self.conclude();
    }

    /// The share of nodes that must be judged.
    pub(crate) fn coverage_wanted(&self) -> f64 {
        self.require_coverage.unwrap_or(1.0)
    }

    /// Whether enough nodes were judged.
    pub(crate) fn is_covered(&self, count: usize) -> bool {
        count as f64 >= self.coverage_wanted() * self.coverage.nodes as f64
    }

    /// Whether enough nodes were judged while decoding.
    pub(crate) fn is_decode_covered(&self) -> bool {
        let coverage = &self.coverage;
        coverage.checked_decode as f64 >= self.coverage_wanted() * coverage.nodes_decode as f64
    }

    /// Whether any node passed: waived ones do not.
    pub(crate) fn something_passes(&self) -> bool {
        self.nodes.iter().any(|node| node.verdict.passes())
    }

    /// Sets the result, the first bad node and the sentence from everything else.
    pub(crate) fn conclude(&mut self) {
        self.first_bad = self.nodes.iter().find(|node| node.fails()).map(NodeReport::as_bad);
        let others = [self.tokens.outcome(), self.repeat.outcome(&self.tokens), self.batch.outcome()];
        let failed = self.first_bad.is_some() || others.contains(&Outcome::Fail) || !self.complaints().is_empty();
        let coverage = &self.coverage;
        let enough = coverage.nodes > 0
            && self.something_passes()
            && self.is_covered(coverage.checked)
            && self.is_covered(coverage.checked_prompt)
            && (self.is_decode_covered() || self.steps == 0)
            && (coverage.fell_back == 0 || !self.require_device)
            && !others.contains(&Outcome::Inconclusive)
            && self.undecided().is_none()
            && !self.missed_planted();
        self.result = match (failed, enough) {
            (true, _) => Outcome::Fail,
            (false, true) => Outcome::Pass,
            (false, false) => Outcome::Inconclusive,
        };
        self.sentence = sentence(self);
        if let Some(mut trace) = self.trace.take() {
            trace.conclude(self.require_coverage);
            self.conclude_with(&trace);
            self.trace = Some(trace);
        }
    }

    /// The worse of the device's result and the trace's is the result of both.
    fn conclude_with(&mut self, trace: &TraceReport) {
        match (self.result, trace.result) {
            (Outcome::Fail, _) => {}
            (_, Outcome::Fail) | (Outcome::Pass, Outcome::Inconclusive) => {
                self.result = trace.result;
                self.sentence.clone_from(&trace.sentence);
                self.first_bad.clone_from(&trace.first_bad);
            }
            (Outcome::Pass | Outcome::Inconclusive, _) => {
                self.sentence = format!("{} {}", self.sentence, trace.sentence);
            }
        }
    }
}
