//! Planted faults are explained: by the arithmetic that the device has, or by the pattern that its errors have; and
//! shown alone.

use super::{device, model, verified};
use std::sync::{Arc, Mutex};
use trueup_blocks::DType;
use trueup_runtime::device::{Decorator, Device, Step};
use trueup_runtime::{DeviceOptions, ModelFile, Session, SessionOptions, Weights, open_device};
use trueup_verify::{PLANTS, Repro, VerifyOptions, planted};

fn options() -> VerifyOptions {
    VerifyOptions { prompts: vec![vec![1, 5, 9, 20, 33, 47, 2]], steps: 1, ..VerifyOptions::default() }
}

/// The place of a node in the graph as the device computes it.
fn node(model: &Arc<ModelFile>, name: &str) -> usize {
    let weights = Weights::new(model.clone(), device(), None);
    let plan = Session::plan(&weights, &SessionOptions::default(), 1, 1, 1).unwrap();
    plan.graph().nodes().iter().position(|node| node.name == name).unwrap_or_else(|| panic!("there is no {name}"))
}

/// The device with this fault at this node.
fn faulty(model: &ModelFile, plant: &str, node: &str) -> Arc<dyn Device> {
    planted(&format!("{plant}@{node}"), model, device()).unwrap().device
}

/// Type of the weights, node, fault, and what the cause must say. Other nodes and types than those where `plants.rs`
/// plants.
const FAULTS: [(DType, &str, &str, &str); 24] = [
    (DType::Q8_0, "ffn_up-1", "block-scale", "of row 0 act as if multiplied by 1.0"),
    (DType::F32, "attn_out-1", "block-scale", "of row 0 acts as if multiplied by 1.0"),
    (DType::Q5_0, "ffn_gate-0", "blocks-swapped", "are swapped"),
    (DType::Q4_1, "ffn_out-1", "neighbor-scale", "it is the scale of the next block"),
    (DType::Q8_0, "ffn_out-0", "row-unwritten", "nothing was written to row"),
    (DType::Q8_0, "ffn_out-1", "k-tail-1", "the last element of"),
    (DType::Q4_0, "ffn_gate-1", "k-tail-32", "the last 32 elements of"),
    (DType::F32, "ffn_up-0", "activations-7-bit", "quantizes activations to 7 bits per 32, but declares"),
    (DType::Q8_0, "attn_out-0", "sign-flip", "opposite sign"),
    (DType::F32, "kqv_out-1", "values-sign", "opposite sign"),
    (DType::Q5_1, "ffn_gate-1", "not-a-number", "1 NaN in"),
    (DType::Q8_0, "ffn_gate-0", "gain", "a factor of 1.001 on the whole result"),
    (DType::Q4_0, "result_output", "output-f16", "rounds results to f16, but declares"),
    (DType::Q8_0, "ffn_swiglu-1", "gate-stale", "zeros in the whole result"),
    (DType::F32, "Qcur_rope-0", "rope-position", "uses positions that are one too large"),
    (
        DType::Q8_0,
        "Kcur_rope-0",
        "rope-pairs",
        "rotates the wrong pairs (adjacent instead of halves, or the \
        reverse)",
    ),
    (DType::Q8_0, "cache_k-1", "kv-slot", "rows are written 1 row after their index"),
    (DType::Q8_0, "kq_soft_max-1", "mask-none", "ignores the mask"),
    (DType::F32, "kq_soft_max-0", "mask-off-by-one", "attends to one position more than the mask allows"),
    (DType::Q8_0, "ffn_norm-1", "norm-epsilon", "uses ten times the epsilon"),
    (DType::F32, "attn_norm-0", "norm-epsilon", "uses ten times the epsilon"),
    (DType::Q4_1, "kq_soft_max-1", "soft-max-row-rest", "instead of 1"),
    (DType::Q5_0, "cache_v-0", "kv-negated", "the opposite sign in"),
    (DType::F16, "Vcur-0", "accumulator-half2", "in pairs of f16 (half2)"),
];

#[test]
fn each_fault_is_explained_at_its_node() {
    let mut problems = Vec::new();
    for (dtype, name, fault, expected) in FAULTS {
        let (_directory, model) = model(dtype);
        let faulty = faulty(&model, fault, name);
        let report = verified(&model, faulty, &options());
        let bad = report.first_bad.as_ref().unwrap();
        let cause = bad.cause.clone().unwrap_or_default();
        let found = report.nodes.iter().find(|node| node.node == name).unwrap();
        let place = bad.worst.as_ref().unwrap();
        let mut explained = found.explanations.iter().filter(|explanation| explanation.cause == cause);
        let one_step = explained.any(|found| (found.prompt, found.step) == (place.prompt, place.step));
        if bad.node != name || !cause.contains(expected) || !report.sentence.contains(&cause) || !one_step {
            problems.push(format!("{fault:?} at {name} of {dtype}: {} {cause}", bad.node));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn each_fault_is_shown_alone_and_a_clean_device_passes_the_same_file() {
    let mut problems = Vec::new();
    for (dtype, name, fault, _) in FAULTS {
        let (directory, model) = model(dtype);
        let faulty = faulty(&model, fault, name);
        let options = VerifyOptions { repro_folder: Some(directory.path().join("repro")), ..options() };
        let report = verified(&model, faulty.clone(), &options);
        let Some(file) = report.first_bad.as_ref().and_then(|bad| bad.repro.clone()) else {
            problems.push(format!("{fault:?} at {name} of {dtype}: no file"));
            continue;
        };
        let repro = Repro::open(&file).unwrap();
        let (again, clean) = (repro.run(&*faulty).unwrap(), repro.run(&*device()).unwrap());
        if !again.verdict.fails() || !clean.verdict.passes() || !report.sentence.contains("trueup repro") {
            problems.push(format!("{fault:?} at {name} of {dtype}: {} and {}", again.sentence, clean.sentence));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// A file of a node whose activations are quantized although the device declares none of that.
fn repro_file(directory: &std::path::Path, model: &Arc<ModelFile>) -> (Arc<dyn Device>, std::path::PathBuf) {
    let faulty = faulty(model, "activations-7-bit", "ffn_up-0");
    let options = VerifyOptions { repro_folder: Some(directory.join("repro")), ..options() };
    let report = verified(model, faulty.clone(), &options);
    let file = report.first_bad.unwrap().repro.unwrap();
    assert!(file.ends_with("ffn_up-0.repro.safetensors"), "{file}");
    (faulty, file.into())
}

#[test]
fn a_file_is_cut_as_small_as_it_still_fails_and_names_the_cause_again() {
    let (directory, model) = model(DType::F32);
    let (faulty, file) = repro_file(directory.path(), &model);
    let repro = Repro::open(&file).unwrap();
    assert_eq!((repro.node(), repro.path()), ("ffn_up-0", file.as_path()));
    assert!(repro.input_elements() <= 2 * 32, "{} elements", repro.input_elements());
    let result = repro.run(&*faulty).unwrap();
    assert_eq!((result.node.as_str(), result.op.as_str()), ("ffn_up-0", "mul_mat"));
    assert!(result.verdict.fails() && result.explanation.is_some(), "{}", result.sentence);
    let oracle = open_device("ref", &DeviceOptions::default()).unwrap();
    assert!(repro.run(&*oracle).unwrap().verdict.passes());
}

#[test]
fn a_file_says_what_was_found_and_which_fault_was_planted() {
    let (directory, model) = model(DType::F32);
    let planted = planted("row-unwritten@ffn_up-0", &model, device()).unwrap();
    let (repro_folder, facts) = (Some(directory.path().join("repro")), Some(planted.facts()));
    let report = verified(&model, planted.device.clone(), &VerifyOptions { repro_folder, planted: facts, ..options() });
    let bad = report.first_bad.as_ref().unwrap();
    assert_eq!(report.planted.as_ref().map(|planted| planted.name.as_str()), Some("row-unwritten"));
    let repro = Repro::open(bad.repro.as_ref().unwrap()).unwrap();
    let recorded = repro.recorded();
    assert_eq!((recorded.verdict, recorded.device.as_str()), (bad.verdict, "cpu"));
    assert_eq!((recorded.planted.as_deref(), recorded.reproduced), (Some("row-unwritten"), true));
    let said = recorded.to_string();
    assert!(said.starts_with("recorded: structural bug, worst z") && said.contains("row-unwritten injected"));
    let (clean, faulty) = (repro.run(&*device()).unwrap(), repro.planted("row-unwritten", device()).unwrap());
    assert!(clean.verdict.passes() && clean.recorded == recorded, "{}", clean.sentence);
    assert!(repro.run(&*faulty).unwrap().verdict.fails());
    for (name, part) in
        [("no-such", "unknown fault \"no-such\""), ("rope-base", "the fault rope-base does not apply to this mul_mat")]
    {
        let problem = repro.planted(name, device()).err().unwrap().to_string();
        assert!(problem.contains(part), "{problem}");
    }
    let oracle = open_device("ref", &DeviceOptions::default()).unwrap();
    assert!(repro.planted("row-unwritten", oracle).is_err());
    // Whatever fits can be computed, however small the file was cut.
    let fitting = PLANTS.iter().filter_map(|plant| repro.planted(plant.name, device()).ok());
    let computed = fitting.map(|device| repro.run(&*device).unwrap().verdict.fails());
    let failing = computed.filter(|fails| *fails).count();
    assert!(failing >= 5, "{failing} faults show");
}

#[test]
fn a_damaged_file_is_refused_in_one_sentence() {
    let (directory, model) = model(DType::F32);
    let (_, file) = repro_file(directory.path(), &model);
    let bytes = std::fs::read(&file).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();

    // Each replacement keeps the length of the header.
    let cases = [
        ("trueup.repro", "trueup.other", "found a safetensors file without trueup.repro in its header"),
        ("\\\"version\\\":1", "\\\"version\\\":7", "expected version 1"),
        ("\\\"MulMat\\\"", "\\\"MulMut\\\"", "cannot be read"),
        ("\\\"lanes\\\":", "\\\"lanez\\\":", "cannot be read"),
        ("\\\"shape\\\":[32,", "\\\"shape\\\":[64,", "their lengths must be equal"),
        ("\\\"shape\\\":[32,", "\\\"shape\\\":[0 ,", "expected a tensor of 1 to"),
        ("input.0", "input.9", "expected an array input.0, found none"),
    ];
    for (from, to, expected) in cases {
        let place = bytes.windows(from.len()).position(|window| window == from.as_bytes());
        let place = place.unwrap_or_else(|| panic!("{from} is not in {}", &text[..800]));
        let mut damaged = bytes.clone();
        damaged[place..place + from.len()].copy_from_slice(to.as_bytes());
        let path = directory.path().join("damaged.safetensors");
        std::fs::write(&path, damaged).unwrap();
        let error = Repro::open(&path).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{from} to {to}: {error}");
    }
    let cut = directory.path().join("cut.safetensors");
    for len in (0..bytes.len()).step_by(bytes.len() / 40 + 1) {
        std::fs::write(&cut, &bytes[..len]).unwrap();
        assert!(Repro::open(&cut).is_err(), "the first {len} bytes");
    }
}

#[test]
fn a_file_with_a_flipped_byte_is_refused_or_computed_and_never_a_panic() {
    let (directory, model) = model(DType::F32);
    let (_, file) = repro_file(directory.path(), &model);
    let bytes = std::fs::read(&file).unwrap();
    let clean = device();
    let path = directory.path().join("flipped.safetensors");
    let mut opened = 0;
    for place in 8..bytes.len().min(2500) {
        for letter in [b'0', b'9', bytes[place] ^ 1] {
            let mut flipped = bytes.clone();
            flipped[place] = letter;
            std::fs::write(&path, flipped).unwrap();
            let Ok(repro) = Repro::open(&path) else { continue };
            opened += 1;
            // What is computed of it is another matter: that it ends is enough.
            let _ = repro.run(&*clean);
        }
    }
    assert!(opened > 0, "numbers among the data may be anything");
}

#[test]
fn explanations_are_in_the_report() {
    let (_directory, model) = model(DType::F32);
    let faulty = faulty(&model, "output-f16", "ffn_up-1");
    let report = verified(&model, faulty, &options());
    assert!(report.to_terminal().contains("prompt: the device rounds results to f16"), "{}", report.to_terminal());
    let json = serde_json::to_value(&report).unwrap();
    let nodes = json["nodes"].as_array().unwrap();
    let bad = nodes.iter().find(|node| node["node"] == "ffn_up-1").unwrap();
    let fingerprint = &bad["explanations"][0]["fingerprint"];
    assert_eq!(fingerprint["explained_by"], "rounds results to f16");
    assert_eq!(fingerprint["kind"], "precision");
    assert!(fingerprint["candidates"].as_array().unwrap().len() > 20);
    assert!(
        nodes
            .iter()
            .filter(|node| node["node"] != "ffn_up-1")
            .all(|node| node["explanations"] == serde_json::json!([]))
    );
    assert_eq!(json["first_bad"]["cause"], bad["explanations"][0]["cause"]);
}

/// A device that gives, at one node, every second time what it gave the time before, for results of one token.
struct Replaying {
    device: Arc<dyn Device>,
    node: usize,
    before: Mutex<Option<Vec<u8>>>,
}

impl Decorator for Replaying {
    fn device(&self) -> &dyn Device {
        &*self.device
    }

    fn execute(&self, steps: &[Step]) -> trueup_runtime::Result<()> {
        for step in steps {
            self.device.execute(std::slice::from_ref(step))?;
            if step.node == self.node && step.output.ty.shape[1] == 1 {
                let mut before = self.before.lock().unwrap();
                match before.take() {
                    Some(bytes) => self.device.upload(&bytes, &step.output)?,
                    None => {
                        let mut bytes = vec![0; step.output.ty.bytes()];
                        self.device.download(&step.output, &mut bytes)?;
                        *before = Some(bytes);
                    }
                }
            }
        }
        Ok(())
    }
}

#[test]
fn the_result_of_the_step_before_is_recognised() {
    let (_directory, model) = model(DType::Q8_0);
    let replaying = Replaying { device: device(), node: node(&model, "ffn_swiglu-0"), before: Mutex::default() };
    let report = verified(&model, Arc::new(replaying), &VerifyOptions { steps: 2, ..options() });
    let bad = report.first_bad.unwrap();
    let cause = bad.cause.unwrap();
    assert_eq!(bad.node, "ffn_swiglu-0");
    assert_eq!(cause, "the result is bit for bit that of the previous step");
}
