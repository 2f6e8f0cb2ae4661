//! What a device answers about each operator on each combination of types that the suite tries.

use super::{Candidate, Selection, candidates};
use serde::Serialize;
use trueup_graph::{Op, TensorType};
use trueup_runtime::device::Device;
use trueup_runtime::profile::Profile;

/// One answer of a device: how it computes an operator on these types, or why it does not.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Answer {
    /// The operator's name.
    pub op: String,
    /// Data types of inputs and result, `q4_0, f32 -> f32`; empty where the suite has no case of the operator.
    pub types: String,
    /// How many cases of these types get this answer.
    pub cases: usize,
    /// How the device computes them.
    pub profile: Option<Profile>,
    /// Why it does not.
    pub reason: Option<String>,
}

/// What a device answers about the selected operators, in the order of the list of operators.
pub fn list(device: &dyn Device, selection: &Selection) -> Vec<Answer> {
    let candidates = candidates();
    let names = Op::names().into_iter().filter(|name| selection.takes_operator(name));
    let of = |name: &'static str| {
        let cases = candidates.iter().filter(|candidate| candidate.case.op.name() == name);
        let mut answers: Vec<Answer> = Vec::new();
        for found in cases.map(|candidate| answer(device, candidate)) {
            let same = |known: &&mut Answer| Answer { cases: found.cases, ..(**known).clone() } == found;
            match answers.iter_mut().find(same) {
                Some(known) => known.cases += 1,
                None => answers.push(found),
            }
        }
        if answers.is_empty() {
            let reason = Some("unknown: the suite has no case for it".to_owned());
            answers.push(Answer { op: name.to_owned(), types: String::new(), cases: 0, profile: None, reason });
        }
        answers
    };
    names.flat_map(of).collect()
}

fn answer(device: &dyn Device, candidate: &Candidate) -> Answer {
    let case = &candidate.case;
    let types: Vec<TensorType> = case.inputs.iter().map(|(ty, _)| *ty).collect();
    let names = types.iter().map(|ty| ty.dtype.name()).collect::<Vec<_>>().join(", ");
    let (types, answer) = match case.op.infer(&types) {
        Ok(output) => (format!("{names} -> {}", output.dtype), device.supports(&case.op, &types, &output)),
        Err(problem) => (names, Err(problem)),
    };
    let op = case.op.name().to_owned();
    match answer {
        Ok(profile) => Answer { op, types, cases: 1, profile: Some(profile), reason: None },
        Err(reason) => Answer { op, types, cases: 1, profile: None, reason: Some(reason) },
    }
}
