//! Faults injected into a node whose result is the first to use its memory: `verify` finds them, and the simulator
//! reports no misuse.

use std::path::Path;
use std::sync::Arc;
use trueup::runtime::ModelFile;
use trueup::runtime::device::Device;
use trueup::verify::{Outcome, Reference, Verdict, VerifyOptions, planted, verify};

/// A node that is the widest of its model: memory for it was not written by a node before it.
const NODE: &str = "ffn_up-0";

/// Faults in the result, the input and the weight, and those that leave old contents in the result.
const FAULTS: [(&str, Option<Verdict>); 5] = [
    ("gain", None),
    ("k-tail-1", None),
    ("rows-shifted", None),
    ("row-unwritten", Some(Verdict::StructuralBug)),
    ("block-unwritten", Some(Verdict::StructuralBug)),
];

/// What is not right.
pub fn planted_faults(device: &Arc<dyn Device>, model: &Path, ids: &[u32]) -> Vec<String> {
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let found = |(fault, expected): &(&str, Option<Verdict>)| {
        let choice = format!("{fault}@{NODE}");
        let faulty = planted(&choice, &model, Arc::clone(device)).map_err(|error| error.to_string())?;
        let options = VerifyOptions { prompts: vec![ids.to_vec()], steps: 2, ..VerifyOptions::default() };
        let report = verify(Arc::clone(&model), faulty.device, Reference::Oracle, &options, &mut |_| {});
        let report = report.map_err(|error| format!("{choice}: {error}"))?;
        let is_first = report.sentence.starts_with(&format!("First faulty node: {NODE} "));
        let verdict = report.nodes.iter().find(|node| node.node == NODE).map(|node| node.verdict);
        let as_expected = verdict.is_some_and(|found| found.fails() && expected.is_none_or(|wanted| found == wanted));
        match report.result == Outcome::Fail && is_first && as_expected {
            true => Ok(()),
            false => Err(format!("{choice}: {}", report.sentence)),
        }
    };
    FAULTS.iter().filter_map(|fault| found(fault).err()).collect()
}
