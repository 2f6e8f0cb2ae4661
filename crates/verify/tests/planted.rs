//! Faults planted at the device's boundary are found at the right node; the same device without a fault passes.

#[path = "planted/faulty.rs"]
mod faulty;
#[allow(dead_code, reason = "the runtime's tests use more of it")]
#[path = "../../runtime/tests/tiny_model/mod.rs"]
mod tiny_model;

use faulty::{Fault, Faulty};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_models::Batch;
use trueup_runtime::device::Device;
use trueup_runtime::{DeviceOptions, ModelFile, open_device};
use trueup_verify::{Outcome, Reference, Report, Verdict, VerifyOptions, verify};

fn model(dtype: DType) -> (tempfile::TempDir, Arc<ModelFile>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tiny.gguf");
    tiny_model::write(&path, dtype, false);
    let model = ModelFile::open(&path).unwrap();
    (directory, Arc::new(model))
}

fn device(name: &str) -> Arc<dyn Device> {
    open_device(name, &DeviceOptions { threads: Some(2), ..DeviceOptions::default() }).unwrap()
}

fn options() -> VerifyOptions {
    let prompts = vec![vec![1, 5, 9, 20, 33, 47, 2], vec![40]];
    VerifyOptions { prompts, steps: 3, ..VerifyOptions::default() }
}

fn verified(model: &Arc<ModelFile>, device: Arc<dyn Device>, options: &VerifyOptions) -> Report {
    verify(model.clone(), device, Reference::Oracle, options, &mut |_| {}).unwrap()
}

/// The place of a node in the model's graph.
fn node(model: &ModelFile, name: &str) -> usize {
    let batch = Batch {
        tokens: 1,
        outputs: 1,
        capacity: 64,
        context: 64,
        sequences: 1,
        activation: DType::F32,
        kv: DType::F16,
    };
    let graph = model.model().graph(&batch).unwrap();
    graph.nodes().iter().position(|node| node.name == name).unwrap_or_else(|| panic!("there is no {name}"))
}

#[test]
fn without_a_fault_every_type_of_weight_passes_and_repeats() {
    let types = [DType::F32, DType::F16, DType::Bf16, DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1];
    let mut problems = Vec::new();
    for dtype in types {
        let (_directory, model) = model(dtype);
        for kv in [None, Some(DType::F32)] {
            let report = verified(&model, device("cpu"), &VerifyOptions { kv, ..options() });
            let whole = report.coverage.checked == report.coverage.nodes && report.coverage.nodes > 40;
            let repeats = report.repeat.deterministic && report.repeat.taps_neutral;
            if report.result != Outcome::Pass || !whole || !repeats {
                problems.push(format!("{dtype}, cache {kv:?}\n{}", report.to_terminal()));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_oracle_agrees_with_itself_exactly() {
    let (_directory, model) = model(DType::Q4_0);
    let report = verified(&model, device("ref"), &options());
    let inexact: Vec<_> = report.nodes.iter().filter(|node| node.verdict != Verdict::Exact).collect();
    assert!(inexact.is_empty(), "{}\n{inexact:#?}", report.to_terminal());
    assert_eq!((report.result, report.tokens.flips), (Outcome::Pass, 0));
    assert!(report.nodes.iter().all(|node| node.total.unwrap_or(0.0) < 1e-12), "{}", report.to_terminal());
}

#[test]
fn each_fault_is_found_at_its_node() {
    let faults = [
        (DType::Q8_0, "ffn_up-1", Fault::BlockScale("blk.1.ffn_up.weight")),
        (DType::Q4_0, "Qcur-0", Fault::BlockScale("blk.0.attn_q.weight")),
        (DType::F32, "attn_out-1", Fault::BlockScale("blk.1.attn_output.weight")),
        (DType::Q5_0, "ffn_gate-0", Fault::SwappedBlocks("blk.0.ffn_gate.weight")),
        (DType::Q8_0, "ffn_out-0", Fault::UnwrittenRow),
        (DType::F32, "result_output", Fault::UnwrittenRow),
        (DType::Q8_0, "ffn_out-1", Fault::DroppedTail(1)),
        (DType::Q4_0, "ffn_gate-1", Fault::DroppedTail(32)),
        (DType::F16, "Vcur-0", Fault::DroppedTail(1)),
        (DType::Q8_0, "ffn_up-0", Fault::SevenBits),
        (DType::Q8_0, "attn_out-0", Fault::SignFlip),
        (DType::F32, "ffn_swiglu-1", Fault::SignFlip),
        (DType::Q4_1, "l_out-0", Fault::SignFlip),
        (DType::Q5_1, "kqv_out-1", Fault::NotANumber),
        (DType::Q8_0, "ffn_gate-0", Fault::Gain),
        (DType::Bf16, "kqv_out-0", Fault::Gain),
        (DType::F32, "kq-1", Fault::RoundedToF16),
        (DType::Q4_0, "result_output", Fault::RoundedToF16),
        (DType::Q8_0, "inp_embd", Fault::SwappedRows),
        (DType::F32, "kq_soft_max-0", Fault::SwappedRows),
        (DType::Q8_0, "ffn_inp-1", Fault::Stale),
        (DType::F32, "Qcur_rope-0", Fault::OneOff),
        (DType::Q8_0, "Kcur_rope-1", Fault::OneOff),
        (DType::Q8_0, "Kcur_rope-0", Fault::OtherPairs),
        (DType::Q8_0, "cache_k-1", Fault::OneOff),
        (DType::F32, "cache_v-0", Fault::OneOff),
        (DType::Q8_0, "kq_soft_max-1", Fault::NoMask),
        (DType::F32, "kq_soft_max-0", Fault::MaskOneOff),
        (DType::Q8_0, "ffn_norm-1", Fault::Epsilon),
        (DType::F32, "result_norm", Fault::Epsilon),
    ];
    let mut problems = Vec::new();
    for (dtype, name, fault) in faults {
        let (_directory, model) = model(dtype);
        let node = node(&model, name);
        let faulty = Arc::new(Faulty { device: device("cpu"), model: model.clone(), fault, node });
        let report = verified(&model, faulty, &options());
        let found = report.first_bad.as_ref().map(|bad| bad.node.as_str());
        if found != Some(name) || report.result.exit_code() != 1 || !report.sentence.contains(name) {
            problems.push(format!("{fault:?} at {name} of {dtype}, found {found:?}: {}", report.sentence));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn nodes_that_fell_back_are_counted_and_not_enough_where_the_device_is_required() {
    let (_directory, model) = model(DType::Q8_0);
    for (require_device, outcome) in [(false, Outcome::Pass), (true, Outcome::Inconclusive)] {
        let fault = Fault::Lacks("swiglu");
        let partial = Arc::new(Faulty { device: device("cpu"), model: model.clone(), fault, node: usize::MAX });
        let options = VerifyOptions { require_device, fallback: Some(device("cpu")), ..options() };
        let report = verified(&model, partial, &options);
        assert_eq!(report.result, outcome, "{}", report.to_terminal());
        assert_eq!((report.coverage.fell_back, report.coverage.on_device), (2, report.coverage.nodes - 2));
        assert_eq!(report.coverage.checked, report.coverage.nodes);
        assert!(report.to_terminal().contains("ffn_swiglu-0 fell back to cpu: there is no swiglu here"));
        assert_eq!(report.result.exit_code(), if require_device { 3 } else { 0 });
    }
}

#[test]
fn another_device_as_the_reference_changes_no_verdict() {
    let (_directory, model) = model(DType::Q8_0);
    let run = |reference| verify(model.clone(), device("cpu"), reference, &options(), &mut |_| {}).unwrap();
    let (oracle, other) = (run(Reference::Oracle), run(Reference::Device(device("cpu"))));
    let verdicts = |report: &Report| -> Vec<Verdict> { report.nodes.iter().map(|node| node.verdict).collect() };
    assert_eq!(verdicts(&oracle), verdicts(&other));
    assert_eq!((other.tokens.kl_max, other.tokens.flips), (0.0, 0));
    assert!(other.nodes.iter().all(|node| node.total == Some(0.0) || node.total.is_none()), "{}", other.to_terminal());
}

#[test]
fn the_report_is_json_without_surprises() {
    let (_directory, model) = model(DType::Q8_0);
    let node = node(&model, "kq-0");
    let faulty = Arc::new(Faulty { device: device("cpu"), model: model.clone(), fault: Fault::NotANumber, node });
    let mut seen = Vec::new();
    let options = VerifyOptions { prompts: vec![vec![3, 4]], steps: 1, ..VerifyOptions::default() };
    let report =
        verify(model.clone(), faulty, Reference::Oracle, &options, &mut |progress| seen.push(progress.done)).unwrap();
    assert_eq!(seen, [0, 1, 2, 3]);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["result"], "fail");
    assert_eq!(json["first_bad"]["node"], "kq-0");
    assert_eq!(json["first_bad"]["layer"], 0);
    assert_eq!(json["first_bad"]["verdict"], "not_finite");
    assert_eq!(json["coverage"]["nodes"], json["nodes"].as_array().unwrap().len());
    assert_eq!(json["coverage"]["on_device"], json["coverage"]["nodes"]);
    assert_eq!(json["device"]["simulated"], false);
    assert_eq!(json["prompts"][0], serde_json::json!([3, 4]));
}

#[test]
fn what_cannot_be_run_is_an_error() {
    let (_directory, model) = model(DType::F32);
    let long = vec![1; tiny_model::CONTEXT];
    for prompts in [vec![], vec![vec![]], vec![long]] {
        let options = VerifyOptions { prompts, steps: 1, ..VerifyOptions::default() };
        assert!(verify(model.clone(), device("cpu"), Reference::Oracle, &options, &mut |_| {}).is_err());
    }
}
