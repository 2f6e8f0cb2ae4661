//! The types with blocks of 256, and their relatives, on a whole model: a mixture of experts with rows of 256.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use trueup::blocks::DType;
use trueup::quantize::Layout;
use trueup::runtime::ModelFile;
use trueup::runtime::device::Device;
use trueup::verify::{Outcome, Reference, VerifyOptions, verify};
use trueup_tests::{convert, fell_back, fixture, quantize, verdict, write_wide};

/// The types. A run verifies the third of them that its seed draws, or all.
const TYPES: [DType; 11] = [
    DType::Q2K,
    DType::Mxfp4,
    DType::Iq4Nl,
    DType::Q3K,
    DType::Nvfp4,
    DType::Iq4Xs,
    DType::Q4K,
    DType::Tq1_0,
    DType::Q5K,
    DType::Q6K,
    DType::Tq2_0,
];

/// One type in this number is drawn.
const ONE_OF: u64 = 3;

/// Tokens of a short prompt, which the kernels of decoding process.
const TOKENS: usize = 2;

/// What is wrong with the verdicts on the model: with a short prompt in the drawn types, or with a whole one in all.
pub fn wide(device: &Arc<dyn Device>, all: bool, seed: u64) -> Vec<String> {
    let (scratch, started) = (tempfile::tempdir().expect("a scratch directory"), Instant::now());
    let source = scratch.path().join("wide.gguf");
    write_wide(&scratch.path().join("wide"));
    convert(&scratch.path().join("wide"), &source, None, None);
    let drawn = (0u64..).zip(TYPES).filter(|(place, _)| all || place % ONE_OF == seed % ONE_OF);
    let types: Vec<DType> = drawn.map(|(_, dtype)| dtype).collect();
    let one = |dtype: &DType| {
        let model = scratch.path().join(format!("{dtype}.gguf"));
        quantize(&source, &model, *dtype, Layout::Block);
        let problem = if all { verified(device, &model) } else { verified_shortly(device, &model) };
        problem.map(|problem| format!("wide model as {dtype}: {problem}"))
    };
    let wrong: Vec<String> = types.iter().filter_map(one).collect();
    let names: Vec<&str> = types.iter().map(|dtype| dtype.name()).collect();
    let seconds = started.elapsed().as_secs();
    println!("cuda-sim, simulated: wide model as {}, {} not right, {seconds} s", names.join(", "), wrong.len());
    wrong
}

/// Every node is computed on the card, and passes.
fn verified(device: &Arc<dyn Device>, model: &Path) -> Option<String> {
    match verdict(device, &fixture("mixtral"), model, true, None) {
        Ok(report) => fell_back(&report).next(),
        Err(problem) => Some(problem),
    }
}

/// The same of a short prompt and one step.
fn verified_shortly(device: &Arc<dyn Device>, model: &Path) -> Option<String> {
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let prompts = fixture("mixtral").prompts().into_iter().take(1).map(|prompt| prompt.ids[..TOKENS].to_vec());
    let options = VerifyOptions { prompts: prompts.collect(), steps: 1, ..VerifyOptions::default() };
    match verify(model, Arc::clone(device), Reference::Oracle, &options, &mut |_| {}) {
        Ok(report) if report.result != Outcome::Pass => Some(report.sentence),
        Ok(report) if report.coverage.checked != report.coverage.nodes => Some("not every node was checked".to_owned()),
        Ok(report) => fell_back(&report).next(),
        Err(error) => Some(error.to_string()),
    }
}
