//! The verdict on every fixture: right kernels pass in every type, a planted fault is named.

use std::path::Path;
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::quantize::Layout;
use trueup::runtime::{DeviceOptions, ModelFile, open_device};
use trueup::verify::{Outcome, Reference, Report, VerifyOptions, verify};
use trueup_tests::{Fixture, convert, fixtures, quantize, stories};

/// Steps behind each prompt: enough for the decode phase to be seen.
const STEPS: usize = 3;

fn verdict(fixture: &Fixture, model: &Path) -> Report {
    let prompts = fixture.prompts().into_iter().take(2).map(|prompt| prompt.ids).collect();
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let options = VerifyOptions { prompts, steps: STEPS, ..VerifyOptions::default() };
    verify(model, device, Reference::Oracle, &options, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn right_kernels_pass_on_every_fixture_in_every_type() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixtures: Vec<Fixture> = fixtures().into_iter().chain([stories()]).collect();
    // The models are small: two at a time take little more than half of the time.
    let (first, second) = fixtures.split_at(fixtures.len() / 2);
    let alarms = std::thread::scope(|scope| {
        let other = scope.spawn(|| alarms(second, scratch.path()));
        let mut all = alarms(first, scratch.path());
        all.extend(other.join().expect("the other half ends"));
        all
    });
    assert!(alarms.is_empty(), "{}", alarms.join("\n"));
}

/// The fixtures and types that do not pass.
fn alarms(fixtures: &[Fixture], scratch: &Path) -> Vec<String> {
    let mut alarms = Vec::new();
    for fixture in fixtures {
        let source = scratch.join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &source, None, None);
        for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0] {
            let target = scratch.join(format!("{}-{dtype}.gguf", fixture.name));
            quantize(&source, &target, dtype, Layout::Block);
            let report = verdict(fixture, &target);
            if report.result != Outcome::Pass {
                alarms.push(format!("{} as {dtype}: {}", fixture.name, report.sentence));
            }
            let coverage = report.coverage;
            assert_eq!(coverage.checked, coverage.nodes, "{} as {dtype}: every node is checked", fixture.name);
        }
    }
    alarms
}
