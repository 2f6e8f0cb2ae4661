//! The verdict on every fixture: right kernels pass in every type, a planted fault is named.

use std::sync::Arc;
use trueup::blocks::DType;
use trueup::quantize::Layout;
use trueup::runtime::{DeviceOptions, ModelFile, open_device};
use trueup::verify::{Outcome, Reference, Report, VerifyOptions, verify};
use trueup_tests::{Fixture, convert, fixtures, quantize, stories};

/// Steps behind each prompt: enough for the decode phase to be seen.
const STEPS: usize = 3;

fn verdict(fixture: &Fixture, model: &std::path::Path) -> Report {
    let prompts = fixture.prompts().into_iter().take(2).map(|prompt| prompt.ids).collect();
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let options = VerifyOptions { prompts, steps: STEPS, ..VerifyOptions::default() };
    verify(model, device, Reference::Oracle, &options, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn right_kernels_pass_on_every_fixture_in_every_type() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let mut alarms = Vec::new();
    for fixture in fixtures().into_iter().chain([stories()]) {
        let source = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &source, None, None);
        for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0] {
            let target = scratch.path().join(format!("{}-{dtype}.gguf", fixture.name));
            quantize(&source, &target, dtype, Layout::Block);
            let report = verdict(&fixture, &target);
            if report.result != Outcome::Pass {
                alarms.push(format!("{} as {dtype}: {}", fixture.name, report.sentence));
            }
            let coverage = report.coverage;
            assert_eq!(coverage.checked, coverage.nodes, "{} as {dtype}: every node is looked at", fixture.name);
        }
    }
    assert!(alarms.is_empty(), "{}", alarms.join("\n"));
}
