//! Weights in blocks that no chip has operators for: they are stored as f16, the plan and its memory say so, and every
//! node of a mixture of experts is computed on the card within what it declares.

use crate::open_one_of;
use crate::peer::{downloaded, tensor};
use std::path::Path;
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::graph::TensorType;
use trueup::quantize::Layout;
use trueup::runtime::device::{Device, Tensor, Usage};
use trueup::runtime::{ModelFile, Session, SessionOptions, Weights};
use trueup::verify::{Reference, VerifyOptions, planted, verify};
use trueup_tests::{convert, fell_back, fixture, quantize, verdict, write_wide};

/// The parts, and their chips.
pub const DECODED: [(&str, &str); 2] = [("decoded 910b", "910b"), ("decoded 310p", "310p")];

/// The types. A run tries the one that its seed draws, or all.
const TYPES: [DType; 14] = [
    DType::Q4K,
    DType::Mxfp4,
    DType::Q2K,
    DType::Q3K,
    DType::Q5K,
    DType::Q6K,
    DType::Iq4Nl,
    DType::Iq4Xs,
    DType::Nvfp4,
    DType::Tq1_0,
    DType::Tq2_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
];

/// The type and the node of a weight with a fault.
const FAULTY_TYPE: DType = DType::Q5K;
const FAULTY_NODE: &str = "Qcur-0";

/// Bytes that an allocation may be rounded up by.
const ALIGNMENT_BYTES: u64 = 4096;

/// What is not right.
pub fn decoded(chip: &str, all: bool, seed: u64) -> Vec<String> {
    let card = open_one_of(chip, "", 1, 0).unwrap_or_else(|error| panic!("{error}"));
    let device: Arc<dyn Device> = Arc::new(card);
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let source = scratch.path().join("wide.gguf");
    write_wide(&scratch.path().join("wide"));
    convert(&scratch.path().join("wide"), &source, None, None);
    // A chip without 4-bit products stores q4_0 as f16 too.
    let more = (chip != "910b").then_some(DType::Q4_0);
    let types: Vec<DType> = TYPES.into_iter().chain(more).collect();
    // Each chip draws another type.
    let drawn = ((seed + chip.bytes().map(u64::from).sum::<u64>()) % types.len() as u64) as usize;
    let mut wrong = refusals(&*device);
    // Faults are in f16 weights on both chips.
    if all || chip == "910b" {
        let faulty = scratch.path().join("faulty.gguf");
        quantize(&source, &faulty, FAULTY_TYPE, Layout::Block);
        wrong.extend(fault_is_found(&device, &faulty));
    }
    for (place, dtype) in types.iter().enumerate() {
        if all || place == drawn {
            let model = scratch.path().join(format!("{dtype}.gguf"));
            quantize(&source, &model, *dtype, Layout::Block);
            let problems = [memory(&device, *dtype), planned(&device, &model, *dtype), verified(&device, &model)];
            wrong.extend(problems.into_iter().flatten().map(|problem| format!("{dtype} on {chip}: {problem}")));
            std::fs::remove_file(model).expect("the file was written");
        }
    }
    println!("npu-sim, simulated, {chip}: types stored as f16, {} wrong", wrong.len());
    wrong
}

/// A weight takes the memory that is forecast.
fn memory(device: &Arc<dyn Device>, dtype: DType) -> Option<String> {
    let ty = TensorType::new(dtype, &[4096, 4096]);
    let forecast = device.weight_bytes(&ty, true);
    if device.weight_type(dtype) != DType::F16 || forecast < 2 * 4096 * 4096 {
        return Some(format!("is forecast as {forecast} bytes of {}", device.weight_type(dtype)));
    }
    let free = || device.about().memory.expect("the card says it").1;
    let before = free();
    let _weight = tensor(&**device, ty, Usage::Weight);
    let taken = before - free();
    (taken.abs_diff(forecast) > ALIGNMENT_BYTES).then(|| format!("takes {taken} bytes, and {forecast} are forecast"))
}

/// The plan lists the type, and the memory before and after decoding.
fn planned(device: &Arc<dyn Device>, model: &Path, dtype: DType) -> Option<String> {
    let file = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let weights = Weights::new(Arc::clone(&file), Arc::clone(device), None);
    let plan = Session::plan(&weights, &SessionOptions::default(), 1, 1, 1);
    let report = match plan {
        Ok(plan) => plan.report(),
        Err(error) => return Some(error.to_string()),
    };
    let [of_type] = report.devices[0].decoded.iter().filter(|decoded| decoded.dtype == dtype).collect::<Vec<_>>()[..]
    else {
        return Some("is missing in the plan".to_owned());
    };
    let tensors = || file.tensors().iter().filter(|tensor| tensor.dtype == dtype);
    let elements: u64 = tensors().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
    let bytes: u64 = tensors().map(|tensor| tensor.bytes).sum();
    if of_type.bytes != bytes || of_type.device_bytes < 2 * elements || of_type.stored_as != DType::F16 {
        return Some(format!("has {bytes} bytes and {elements} elements, and the plan says {of_type:?}"));
    }
    let sentence = format!("{dtype} weights are stored as f16: ");
    (!report.to_string().contains(&sentence)).then(|| format!("the plan does not say: {sentence}"))
}

/// Every node is computed on the card, and passes.
fn verified(device: &Arc<dyn Device>, model: &Path) -> Option<String> {
    match verdict(device, &fixture("mixtral"), model, true, None) {
        Ok(report) => fell_back(&report).next(),
        Err(problem) => Some(problem),
    }
}

/// A fault injected in a weight is found and named.
fn fault_is_found(device: &Arc<dyn Device>, model: &Path) -> Option<String> {
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let prompts: Vec<Vec<u32>> = fixture("mixtral").prompts().into_iter().take(1).map(|prompt| prompt.ids).collect();
    let verified = |fault: &str| {
        let faulty = planted(&format!("{fault}@{FAULTY_NODE}"), &model, Arc::clone(device))?;
        let options = VerifyOptions { prompts: prompts.clone(), steps: 1, ..VerifyOptions::default() };
        verify(Arc::clone(&model), faulty.device, Reference::Oracle, &options, &mut |_| {})
    };
    let named = format!("First faulty node: {FAULTY_NODE} ");
    let found = |fault: &str| match verified(fault) {
        Ok(report) if report.sentence.starts_with(&named) => None,
        Ok(report) => Some(format!("{fault}: {}", report.sentence)),
        Err(error) => Some(format!("{fault}: {error}")),
    };
    ["rows-shifted", "k-tail-1"].into_iter().find_map(found)
}

/// Blocks cannot be read back, and values that f16 does not hold are refused. Parts are written where they belong.
fn refusals(device: &dyn Device) -> Vec<String> {
    let mut wrong = Vec::new();
    let ty = TensorType::new(DType::Mxfp4, &[32, 4]);
    let weight = tensor(device, ty, Usage::Weight);
    // Exponents of 2^-1, then of 2^40.
    let mut blocks = vec![0x77; ty.bytes()];
    blocks.iter_mut().step_by(17).for_each(|exponent| *exponent = 127);
    let mut check = |what: &str, done: Result<(), trueup::runtime::Error>, expected: Option<&str>| {
        let said = done.err().map(|error| error.to_string());
        let fits = match (&said, expected) {
            (Some(said), Some(expected)) => said.contains(expected),
            (said, expected) => said.is_none() && expected.is_none(),
        };
        if !fits {
            wrong.push(format!("{what}: {said:?}"));
        }
    };
    check("an upload", device.upload(&blocks, &weight), None);
    let row = Tensor { offset_bytes: 17, ty: TensorType::new(DType::Mxfp4, &[32, 1]), ..weight.clone() };
    check("a row", device.upload(&blocks[..17], &row), None);
    check("a download", device.download(&weight, &mut blocks.clone()), Some("its blocks cannot be read back"));
    blocks[17] = 167;
    check("large values", device.upload(&blocks, &weight), Some("which is beyond the range of f16"));
    let plain = tensor(device, TensorType::new(DType::F16, &[8]), Usage::Weight);
    check("f16", device.upload(&[1; 16], &plain), None);
    if downloaded(device, &plain) != [1; 16] {
        wrong.push("f16 does not come back".to_owned());
    }
    wrong
}
