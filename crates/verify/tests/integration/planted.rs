//! Faults planted at the device's boundary are found at the right node; the same device without a fault passes.

mod cached_blocks;
mod unsteady;

use super::{model, tiny_model, verified};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::device::Device;
use trueup_runtime::{DeviceOptions, ModelFile, Session, SessionOptions, Weights, open_device};
use trueup_verify::{Outcome, Reference, Report, Verdict, VerifyOptions, planted, verify};
use unsteady::{Fault, Faulty};

fn device(name: &str) -> Arc<dyn Device> {
    open_device(name, &DeviceOptions { threads: Some(2), ..DeviceOptions::default() }).unwrap()
}

fn options() -> VerifyOptions {
    let prompts = vec![vec![1, 5, 9, 20, 33, 47, 2], vec![40]];
    VerifyOptions { prompts, steps: 3, ..VerifyOptions::default() }
}

/// The device with this fault of the table at this node.
fn faulty(model: &ModelFile, plant: &str, node: &str) -> Arc<dyn Device> {
    planted(&format!("{plant}@{node}"), model, device("cpu")).unwrap().device
}

/// The place of a node in the graph as the device computes it.
fn node(model: &Arc<ModelFile>, name: &str) -> usize {
    let weights = Weights::new(model.clone(), device("cpu"), None);
    let plan = Session::plan(&weights, &SessionOptions::default(), 1, 1, 1).unwrap();
    plan.graph().nodes().iter().position(|node| node.name == name).unwrap_or_else(|| panic!("there is no {name}"))
}

#[test]
fn without_a_fault_every_type_of_weight_passes_and_repeats() {
    let types = [DType::F32, DType::F16, DType::Bf16, DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1];
    let mut problems = Vec::new();
    for dtype in types {
        let (_directory, model) = model(dtype);
        for kv in [None, Some(DType::F32)] {
            let report = verified(&model, device("cpu"), &VerifyOptions { kv, ..options() });
            let whole = report.coverage.checked == report.coverage.nodes && report.coverage.nodes > 30;
            let repeats = report.repeat.deterministic && report.repeat.taps_neutral;
            // The batch gives the same bits, so its positions are not compared again.
            let counted = report.tokens.positions == 7 + 1 + 2 * 3;
            if report.result != Outcome::Pass || !whole || !repeats || !counted {
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

/// Columns of one token repeat in the first layer, and those of the prompt repeat in the batch: only a result that
/// repeats too is not judged again.
#[test]
fn a_fault_in_a_column_whose_activations_repeat_is_found() {
    let (_directory, model) = model(DType::Q8_0);
    let options = VerifyOptions { prompts: vec![vec![5; 4]], ..VerifyOptions::default() };
    for (name, sequences) in [("Qcur-0", 1), ("Qcur-0", 2), ("ffn_out-1", 2)] {
        let fault = Fault::LastColumn { more: 0.5, sequences };
        let report = verified(&model, Faulty::new(device("cpu"), fault, node(&model, name)), &options);
        let failing: Vec<_> = report.nodes.iter().filter(|node| node.verdict.fails()).map(|node| &*node.node).collect();
        assert_eq!((report.result, &*failing), (Outcome::Fail, &[name][..]), "{sequences}: {}", report.to_terminal());
    }
}

#[test]
fn each_fault_is_found_at_its_node() {
    // Other nodes and types than those where `plants.rs` plants.
    let faults = [
        (DType::Q8_0, "ffn_up-1", "block-scale"),
        (DType::Q4_0, "Qcur-0", "block-scale"),
        (DType::F32, "attn_out-1", "block-scale"),
        (DType::Q5_0, "ffn_gate-0", "blocks-swapped"),
        (DType::Q8_0, "ffn_out-0", "row-unwritten"),
        (DType::F32, "result_output", "row-unwritten"),
        (DType::Q8_0, "ffn_out-1", "k-tail-1"),
        (DType::Q4_0, "ffn_gate-1", "k-tail-32"),
        (DType::F16, "Vcur-0", "k-tail-1"),
        (DType::Q8_0, "ffn_up-0", "activations-7-bit"),
        (DType::Q8_0, "attn_out-0", "sign-flip"),
        (DType::F32, "ffn_swiglu-1", "gate-exchanged"),
        (DType::Q4_1, "l_out-0", "sum-sign"),
        (DType::Q5_1, "kqv_out-1", "values-sign"),
        (DType::Q8_0, "ffn_gate-0", "gain"),
        (DType::Bf16, "kqv_out-0", "values-gain"),
        (DType::F32, "kq-1", "heads-interleaved"),
        (DType::Q4_0, "result_output", "output-f16"),
        (DType::Q8_0, "inp_embd", "token-off-by-one"),
        (DType::F32, "kq_soft_max-0", "probabilities-f16"),
        (DType::Q8_0, "ffn_inp-1", "residual-dropped"),
        (DType::F32, "Qcur_rope-0", "rope-position"),
        (DType::Q8_0, "Kcur_rope-1", "rope-position"),
        (DType::Q8_0, "Kcur_rope-0", "rope-pairs"),
        (DType::Q8_0, "cache_k-1", "kv-slot"),
        (DType::F32, "cache_v-0", "kv-slot"),
        (DType::Q8_0, "kq_soft_max-1", "mask-none"),
        (DType::F32, "kq_soft_max-0", "mask-off-by-one"),
        (DType::Q8_0, "ffn_norm-1", "norm-epsilon"),
        (DType::F32, "attn_norm-0", "norm-epsilon"),
        (DType::Q8_0, "kq-0", "sequence-ignored"),
        (DType::F32, "kqv_out-1", "sequence-ignored"),
        (DType::Q4_0, "cache_k-1", "kv-sequence"),
        (DType::F32, "cache_v-0", "kv-sequence"),
        (DType::Q8_0, "result_rows", "token-first"),
        (DType::F32, "Qcur_rope-0", "rope-first-position"),
    ];
    let mut problems = Vec::new();
    for (dtype, name, fault) in faults {
        let (_directory, model) = model(dtype);
        let report = verified(&model, faulty(&model, fault, name), &options());
        let found = report.first_bad.as_ref().map(|bad| bad.node.as_str());
        if found != Some(name) || report.result != Outcome::Fail || !report.sentence.contains(name) {
            problems.push(format!("{fault} at {name} of {dtype}, found {found:?}: {}", report.sentence));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn nodes_that_fell_back_are_counted_and_not_enough_where_the_device_is_required() {
    let (_directory, model) = model(DType::Q8_0);
    for (require_device, outcome) in [(false, Outcome::Pass), (true, Outcome::Inconclusive)] {
        let fault = Fault::Lacks("swiglu");
        let partial = Faulty::new(device("cpu"), fault, usize::MAX);
        let options = VerifyOptions { require_device, fallback: Some(device("cpu")), ..options() };
        let report = verified(&model, partial, &options);
        assert_eq!(report.result, outcome, "{}", report.to_terminal());
        assert_eq!((report.coverage.fell_back, report.coverage.on_device), (2, report.coverage.nodes - 2));
        assert_eq!(report.coverage.checked, report.coverage.nodes);
        assert!(report.to_terminal().contains("ffn_swiglu-0 fell back to cpu: there is no swiglu here"));
    }
}

#[test]
fn one_prompt_is_enough_to_see_that_sequences_are_ignored() {
    let faults = [
        ("kq-1", "sequence-ignored"),
        ("cache_v-1", "kv-sequence"),
        ("result_rows", "token-first"),
        ("Kcur_rope-0", "first positions"),
    ];
    let (_directory, model) = model(DType::Q8_0);
    let place = node(&model, "Kcur_rope-0");
    let first_positions = Faulty::new(device("cpu"), Fault::FirstPositions, place);
    for prompt in [vec![1, 5, 9, 20], vec![7]] {
        let options = VerifyOptions { prompts: vec![prompt], steps: 4, ..VerifyOptions::default() };
        let report = verified(&model, device("cpu"), &options);
        assert_eq!(report.result, Outcome::Pass, "{}", report.to_terminal());
        assert_eq!((report.batch.sequences.len(), report.batch.steps, report.batch.invariant), (2, 2, Some(true)));
        assert_ne!(report.batch.sequences[0].tokens, report.batch.sequences[1].tokens);
        for (name, fault) in faults {
            let own: Arc<dyn Device> =
                if fault == "first positions" { first_positions.clone() } else { faulty(&model, fault, name) };
            let report = verified(&model, own, &options);
            let bad = report.first_bad.as_ref().map(|bad| bad.node.as_str());
            assert_eq!(bad, Some(name), "{fault}: {}", report.to_terminal());
            assert!(report.sentence.contains("of the batch of all prompts"), "{}", report.sentence);
        }
    }
}

#[test]
fn other_bits_in_a_batch_fail_where_the_same_are_promised() {
    let (_directory, model) = model(DType::F32);
    for (promised, outcome) in [(true, Outcome::Fail), (false, Outcome::Pass)] {
        let faulty = Faulty::new(device("cpu"), Fault::DependsOnBatch(promised), node(&model, "result_output"));
        let report = verified(&model, faulty, &options());
        assert_eq!(report.result, outcome, "{}", report.to_terminal());
        assert!(report.first_bad.is_none() && report.repeat.deterministic && report.batch.promised == promised);
        assert_eq!(report.batch.invariant, Some(false));
        assert_eq!(report.tokens.positions, 7 + 1 + 2 * 3 + 2 * 3, "the positions of the batch are compared too");
        assert_eq!(
            report.sentence.contains("different bits in a batch than for a single sequence"),
            promised,
            "{}",
            report.sentence
        );
    }
}

#[test]
fn threads_that_judge_change_nothing_and_are_counted() {
    let (_directory, model) = model(DType::Q8_0);
    let run = |threads| verified(&model, device("cpu"), &VerifyOptions { threads, ..options() });
    assert_eq!(run(Some(1)), run(Some(3)));
    for threads in [0, 1 << 20] {
        let options = VerifyOptions { threads: Some(threads), ..options() };
        let error = verify(model.clone(), device("cpu"), Reference::Oracle, &options, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("expected 1 to"), "{error}");
    }
}

#[test]
fn noise_that_differs_from_run_to_run_passes_within_what_is_declared() {
    // Products of floats are declared with sums in f32, which the noise is within; those of blocks with sums in f64,
    // which it is not.
    for (dtype, units, outcome) in [
        (DType::F32, 2.0, Outcome::Pass),
        (DType::F16, 2.0, Outcome::Pass),
        (DType::F32, 3000.0, Outcome::Fail),
        (DType::Q8_0, 2.0, Outcome::Fail),
    ] {
        let (_directory, model) = model(dtype);
        let dithered = Faulty::new(device("cpu"), Fault::Dither(units), usize::MAX);
        let report = verified(&model, dithered, &options());
        assert_eq!(report.result, outcome, "{dtype}: {}", report.to_terminal());
        assert!(!report.repeat.deterministic && report.batch.invariant.is_none());
        if outcome == Outcome::Pass {
            assert!(report.sentence.contains("not deterministic: 11 nodes differ"), "{}", report.sentence);
        } else {
            let bad = report.first_bad.unwrap();
            assert_eq!(
                (bad.node.as_str(), bad.verdict),
                ("Qcur-0", Verdict::UndeclaredPrecision),
                "{dtype} {}",
                report.sentence
            );
        }
    }
}

#[test]
fn a_race_is_named_by_the_first_node_that_differs_on_the_same_inputs() {
    for (dtype, name, more) in
        [(DType::Q8_0, "ffn_swiglu-0", 0.1), (DType::F32, "l_out-0", 1e-3), (DType::Q4_0, "kqv_out-1", f32::NAN)]
    {
        let (_directory, model) = model(dtype);
        let racy = Faulty::new(device("cpu"), Fault::Wavering(more), node(&model, name));
        let report = verified(&model, racy, &options());
        assert_eq!(report.result, Outcome::Fail, "{}", report.to_terminal());
        let bad = report.first_bad.as_ref().unwrap();
        assert_eq!(bad.node, name, "{}", report.to_terminal());
        assert!(!report.repeat.deterministic && report.sentence.contains("on the same inputs"), "{}", report.sentence);
    }
}

#[test]
fn a_race_that_no_observed_run_shows_fails_when_it_is_beyond_the_noise() {
    let cases = [(1e-6, Outcome::Pass), (3.0, Outcome::Fail), (f32::NAN, Outcome::Fail)];
    for (more, outcome) in cases {
        let (_directory, model) = model(DType::Q8_0);
        // The prompt is computed three times without looking; the second time is off, the observed ones are not.
        let node = node(&model, "result_output");
        let racy = Faulty::new(device("cpu"), Fault::Race(more), node);
        let report =
            verified(&model, racy, &VerifyOptions { prompts: vec![vec![1, 5, 9]], ..VerifyOptions::default() });
        assert_eq!(report.result, outcome, "{}", report.to_terminal());
        assert!(!report.repeat.deterministic && report.repeat.taps_neutral && report.first_bad.is_none());
        let word = if outcome == Outcome::Pass { "not deterministic" } else { "data race" };
        assert!(report.sentence.contains(word), "{}", report.sentence);
    }
}

#[test]
fn weights_that_are_no_numbers_are_nobodys_fault_and_are_named() {
    let (directory, sound) = model(DType::F32);
    let path = directory.path().join("tiny.gguf");
    let mut bytes = std::fs::read(&path).unwrap();
    let weight = sound.tensor_bytes("blk.1.ffn_up.weight").unwrap().into_owned();
    let start = bytes.windows(weight.len()).position(|window| window == weight).unwrap();
    drop(sound);
    bytes[start..start + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let broken = directory.path().join("nan.gguf");
    std::fs::write(&broken, bytes).unwrap();
    let report = verified(&Arc::new(ModelFile::open(&broken).unwrap()), device("cpu"), &options());
    assert_eq!(report.result, Outcome::Inconclusive, "{}", report.to_terminal());
    let fused =
        "starting at ffn_swiglu-1 (mul_mat_swiglu, weights blk.1.ffn_gate.weight and blk.1.ffn_up.weight), exact";
    assert!(report.sentence.contains(fused), "{}", report.sentence);
    assert_eq!(report.tokens.not_finite, 0);
    assert_eq!(report.tokens.reference_not_finite, report.tokens.positions);
    assert!(!report.to_terminal().contains("-0.0"), "{}", report.to_terminal());
}

#[test]
fn without_steps_decoding_is_not_said_to_be_checked() {
    let (_directory, model) = model(DType::F32);
    let report = verified(&model, device("cpu"), &VerifyOptions { steps: 0, ..options() });
    let coverage = report.coverage;
    assert_eq!((report.result, coverage.checked_prompt, coverage.checked_decode), (Outcome::Pass, coverage.nodes, 0));
    assert!(report.sentence.contains("decoding was not checked"), "{}", report.sentence);
    let report = verified(&model, device("cpu"), &options());
    assert_eq!((report.coverage.checked_decode, report.sentence.contains("decod")), (report.coverage.nodes, false));
}

#[test]
fn one_token_over_and_over_is_one_sample() {
    for dtype in [DType::Q8_0, DType::F16, DType::Bf16] {
        let (_directory, model) = model(dtype);
        for token in [3, 17, 29, 40] {
            let options = VerifyOptions { prompts: vec![vec![token; 40]], steps: 2, ..VerifyOptions::default() };
            let report = verified(&model, device("cpu"), &options);
            assert_eq!(report.result, Outcome::Pass, "token {token} of {dtype}\n{}", report.to_terminal());
        }
    }
}

#[test]
fn another_device_as_the_reference_changes_no_verdict() {
    let (_directory, model) = model(DType::Q8_0);
    let run = |reference| verify(model.clone(), device("cpu"), reference, &options(), &mut |_| {}).unwrap();
    let (oracle, other) = (run(Reference::Oracle), run(Reference::Device(device("cpu"))));
    let verdicts = |report: &Report| -> Vec<Verdict> { report.nodes.iter().map(|node| node.verdict).collect() };
    assert_eq!(verdicts(&oracle), verdicts(&other));
    assert_eq!((other.tokens.kl_max, other.tokens.flips), (Some(0.0), 0));
    assert!(other.nodes.iter().all(|node| node.total == Some(0.0) || node.total.is_none()), "{}", other.to_terminal());
}

#[test]
fn the_report_is_json_without_surprises() {
    let (_directory, model) = model(DType::Q8_0);
    let faulty = faulty(&model, "not-a-number", "Qcur-0");
    let mut seen = Vec::new();
    let options = VerifyOptions { prompts: vec![vec![3, 4]], steps: 1, ..VerifyOptions::default() };
    let report =
        verify(model.clone(), faulty, Reference::Oracle, &options, &mut |progress| seen.push(progress.done)).unwrap();
    assert_eq!(seen, [0, 1, 2, 3, 0, 1, 2, 3], "the prompt, then the batch");
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["result"], "fail");
    assert_eq!(json["first_bad"]["node"], "Qcur-0");
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
    let options = VerifyOptions { prompts: vec![vec![1]], steps: usize::MAX, ..VerifyOptions::default() };
    let error = verify(model.clone(), device("cpu"), Reference::Oracle, &options, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("exceeds the context"), "{error}");
}
