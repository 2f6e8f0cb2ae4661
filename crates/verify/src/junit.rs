//! The report as JUnit XML for CI systems: one test case per node, and one for each other check.
//!
//! A node that failed is a failure, one that could not be judged an error, a waived one is skipped with its reason.

use crate::report::{NodeReport, Outcome, Report};
use crate::verdict::Verdict;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

impl Report {
    /// The report as JUnit XML. Characters that XML does not allow are left out of names.
    pub fn to_junit(&self) -> Result<String, String> {
        let mut suite = TestSuite::new(format!("trueup verify {}", self.device.name));
        suite.add_property(("sentence", self.sentence.as_str()));
        suite.add_property(("model", self.model.as_str()));
        suite.add_property(("reference", self.reference.name.as_str()));
        suite.set_system_out(self.sentence.as_str());
        suite.add_test_cases(self.nodes.iter().map(|node| node_case(node, self.prompts.len())));
        suite.add_test_case(case("tokens", "logits", self.tokens.outcome(), || {
            format!("{} of {} most likely tokens differ", self.tokens.flips, self.tokens.positions)
        }));
        suite.add_test_case(case("repeat", "repeat", self.repeat.outcome(&self.tokens), || {
            "runs on the same tokens differ, or recording the nodes changes the logits".to_owned()
        }));
        if let Some(trace) = &self.trace {
            suite.add_test_case(case("trace", "trace", trace.result, || trace.sentence.clone()));
        }
        let complaints = self.complaints();
        let undecided = self.undecided();
        let asked = match (complaints.is_empty(), &undecided) {
            (false, _) => Outcome::Fail,
            (true, Some(_)) => Outcome::Inconclusive,
            (true, None) => Outcome::Pass,
        };
        let said = || complaints.iter().chain(&undecided).map(String::as_str).collect::<Vec<_>>().join("; ");
        suite.add_test_case(case("gate and baseline", "gate", asked, said));
        suite.add_test_case(case("result", "verify", self.result, || self.sentence.clone()));
        let mut junit = quick_junit::Report::new("trueup verify");
        junit.add_test_suite(suite);
        junit.to_string().map_err(|error| format!("the JUnit report cannot be created: {error}"))
    }
}

fn node_case(node: &NodeReport, prompts: usize) -> TestCase {
    let status = if let Some(reason) = &node.waived {
        let mut status = TestCaseStatus::skipped();
        status.set_message(format!("{}, waived: {reason}", node.verdict));
        status
    } else if node.verdict.passes() {
        TestCaseStatus::success()
    } else {
        let kind = if node.verdict.fails() { NonSuccessKind::Failure } else { NonSuccessKind::Error };
        let mut status = TestCaseStatus::non_success(kind);
        status.set_type(node.verdict.to_string()).set_message(message(node, prompts));
        status
    };
    let mut case = TestCase::new(node.node.as_str(), status);
    case.set_classname(node.op.as_str());
    case
}

/// What is wrong with a node, in one sentence.
fn message(node: &NodeReport, prompts: usize) -> String {
    if node.verdict == Verdict::Unchecked {
        return "was not checked".to_owned();
    }
    let Some(worst) = node.worst_phase().and_then(|phase| phase.worst.as_ref()) else {
        return node.verdict.to_string();
    };
    let cause = node.cause_sentence().map_or(String::new(), |cause| format!(". {cause}"));
    format!(
        "{} at {} of step {} of {}: expected {}, found {}{cause}",
        node.verdict,
        worst.element,
        worst.step,
        if worst.prompt < prompts { format!("prompt {}", worst.prompt) } else { "the batch of all prompts".to_owned() },
        worst.shown.expected,
        worst.shown.device
    )
}

/// A case of the whole run.
fn case(name: &str, class: &str, outcome: Outcome, what: impl Fn() -> String) -> TestCase {
    let status = match outcome {
        Outcome::Pass => TestCaseStatus::success(),
        Outcome::Fail | Outcome::Inconclusive => {
            let failed = outcome == Outcome::Fail;
            let mut status =
                TestCaseStatus::non_success(if failed { NonSuccessKind::Failure } else { NonSuccessKind::Error });
            status.set_type(if failed { "fail" } else { "inconclusive" }).set_message(what());
            status
        }
    };
    let mut case = TestCase::new(name, status);
    case.set_classname(class);
    case
}
