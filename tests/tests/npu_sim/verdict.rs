//! The verdict of `verify` on a fixture, node by node on the device.

use std::path::Path;
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::runtime::ModelFile;
use trueup::runtime::device::Device;
use trueup::verify::{Outcome, Reference, VerifyOptions, verify};
use trueup_tests::Fixture;

/// Steps behind each prompt: enough for the decode phase to be seen.
const STEPS: usize = 2;

/// What is not right with a model on the device, with a KV cache of a type of its own where it is said.
pub fn verdict(device: &Arc<dyn Device>, fixture: &Fixture, model: &Path, kv: Option<DType>) -> Option<String> {
    let prompts = fixture.prompts().into_iter().take(1).map(|prompt| prompt.ids).collect();
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let options = VerifyOptions { prompts, steps: STEPS, kv, ..VerifyOptions::default() };
    match verify(model, Arc::clone(device), Reference::Oracle, &options, &mut |_| {}) {
        Ok(report) if report.result != Outcome::Pass => Some(report.sentence),
        Ok(report) if report.coverage.checked != report.coverage.nodes => {
            Some("not every node was looked at".to_owned())
        }
        Ok(report) => {
            let elsewhere = report.nodes.iter().filter(|node| node.device != device.about().name).count();
            (elsewhere > 0).then(|| format!("{elsewhere} nodes were computed elsewhere"))
        }
        Err(error) => Some(error.to_string()),
    }
}
