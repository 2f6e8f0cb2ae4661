//! The verdict of `verify` on a fixture, for devices that may lack operators.

use crate::Fixture;
use std::path::Path;
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::runtime::device::Device;
use trueup::runtime::{DeviceOptions, ModelFile, Session, SessionOptions, Weights, open_device};
use trueup::verify::{NodeReport, Outcome, Reference, Report, VerifyOptions, verify};

/// Tokens decoded after each prompt: enough to check the decode phase.
const STEPS: usize = 2;

/// A plan with more segments than this is a fault.
const SEGMENTS_MAX: usize = 100;

/// The types that every fixture is verified in.
pub const VERIFIED_TYPES: [DType; 4] = [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0];

/// Verifies the first prompt of a fixture whose file is `model` on the device. Every node must be checked, a node that
/// another device computed must name the missing operator, and the plan must have few segments.
///
/// # Errors
/// What is wrong, as one sentence.
pub fn verdict(
    device: &Arc<dyn Device>,
    fixture: &Fixture,
    model: &Path,
    fusion: bool,
    kv: Option<DType>,
) -> Result<Report, String> {
    let first = fixture.prompts().into_iter().next().ok_or("the fixture has no prompt")?;
    let model = Arc::new(ModelFile::open(model).map_err(|error| error.to_string())?);
    let fallback = open_device("cpu", &DeviceOptions::default()).map_err(|error| error.to_string())?;
    let weights = Weights::new(Arc::clone(&model), Arc::clone(device), Some(Arc::clone(&fallback)));
    let session = SessionOptions { fusion, kv, ..SessionOptions::default() };
    let tokens = first.ids.len();
    let plan = Session::plan(&weights, &session, tokens, 1, tokens).map_err(|error| error.to_string())?;
    let of_encoder = Session::encoder_plan(&weights, &session, tokens).map_err(|error| error.to_string())?;
    for plan in [Some(plan), of_encoder].into_iter().flatten() {
        let segments = plan.report().pieces;
        if segments > SEGMENTS_MAX {
            return Err(format!("a plan has {segments} segments"));
        }
    }
    let decoder_prompts = Some(first.decoder_ids).filter(|ids| !ids.is_empty()).into_iter().collect();
    let options = VerifyOptions {
        prompts: vec![first.ids],
        decoder_prompts,
        steps: STEPS,
        fallback: Some(fallback),
        fusion,
        kv,
        ..VerifyOptions::default()
    };
    let report = verify(model, Arc::clone(device), Reference::Oracle, &options, &mut |_| {});
    let report = report.map_err(|error| error.to_string())?;
    if report.result != Outcome::Pass {
        return Err(report.sentence);
    }
    if report.coverage.checked != report.coverage.nodes {
        return Err("not every node was checked".to_owned());
    }
    let elsewhere = report.nodes.iter().filter(|node| node.device != device.name());
    let is_named = |node: &&NodeReport| node.fell_back.as_ref().is_some_and(|reason| !reason.is_empty());
    match elsewhere.filter(|node| !is_named(node)).count() {
        0 => Ok(report),
        unnamed => Err(format!("{unnamed} nodes were computed on another device without a reason")),
    }
}

/// The operators that fell back, each with the reason.
pub fn fell_back(report: &Report) -> impl Iterator<Item = String> {
    report.nodes.iter().filter_map(|node| Some(format!("{}: {}", node.op, node.fell_back.as_ref()?)))
}
