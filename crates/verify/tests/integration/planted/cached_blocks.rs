//! A KV cache of q8_0: right devices pass, and faults in what is stored in it and read from it are found.

use super::{device, faulty, options, tiny_model, verified};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::{DeviceOptions, ModelFile, open_device};
use trueup_verify::{Outcome, Verdict, VerifyOptions};

fn model(dtype: DType) -> (tempfile::TempDir, Arc<ModelFile>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wide.gguf");
    tiny_model::write_kind(&path, tiny_model::Kind::Wide, tiny_model::CONTEXT, dtype, false);
    let model = ModelFile::open(&path).unwrap();
    (directory, Arc::new(model))
}

fn blocks() -> VerifyOptions {
    let long = (0..70).map(|place| 1 + 7 * place % 40).collect();
    VerifyOptions { kv: Some(DType::Q8_0), prompts: [options().prompts, vec![long]].concat(), ..options() }
}

#[test]
fn right_devices_pass_and_the_loss_of_the_cache_is_said() {
    let mut problems = Vec::new();
    for dtype in [DType::F32, DType::Q8_0, DType::Q4_0] {
        let (_directory, model) = model(dtype);
        for isa in [None, Some("scalar".to_owned())] {
            let device = open_device("cpu", &DeviceOptions { isa, ..DeviceOptions::default() }).unwrap();
            let report = verified(&model, device, &blocks());
            let whole = report.coverage.checked == report.coverage.nodes && report.coverage.nodes > 30;
            let verdicts = report.nodes.iter().filter(|node| node.op == "kv_store").map(|node| node.verdict);
            let said =
                verdicts.clone().count() == 4 && verdicts.clone().all(|verdict| verdict == Verdict::DeclaredLoss);
            if report.result != Outcome::Pass || !whole || !said || report.batch.invariant != Some(true) {
                problems.push(format!("{dtype}\n{}", report.to_terminal()));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_oracle_agrees_with_itself() {
    let (_directory, model) = model(DType::Q8_0);
    let report = verified(&model, device("ref"), &blocks());
    assert_eq!((report.result, report.tokens.flips), (Outcome::Pass, 0), "{}", report.to_terminal());
    let read = |op: &str| matches!(op, "kv_scores" | "kv_mix");
    assert!(report.nodes.iter().filter(|node| read(&node.op)).all(|node| node.verdict == Verdict::Exact));
}

#[test]
fn each_fault_is_found_at_its_node() {
    let faults = [
        ("cache_k-1", "kv-slot", "rows are written 1 row after their index"),
        ("cache_v-0", "kv-sequence", "rows of every sequence are written to the cache of the first sequence"),
        ("cache_k-0", "kv-bf16", "rounds inputs to bf16"),
        ("cache_v-1", "kv-negated", "the opposite sign in"),
        ("kq-0", "heads-interleaved", "interleaves the query heads that share a KV head instead of grouping them"),
        ("kq-1", "sequence-ignored", ""),
        ("kqv_out-0", "sequence-ignored", ""),
        ("kqv_out-1", "values-sign", ""),
        ("kqv_out-0", "values-gain", ""),
    ];
    let mut problems = Vec::new();
    for dtype in [DType::F32, DType::Q8_0] {
        let (_directory, model) = model(dtype);
        for (name, fault, cause) in faults {
            let report = verified(&model, faulty(&model, fault, name), &blocks());
            let found = report.first_bad.as_ref().map(|bad| bad.node.as_str());
            if found != Some(name) || report.result != Outcome::Fail || !report.to_terminal().contains(cause) {
                problems.push(format!("{fault} at {name} of {dtype}, found {found:?}: {}", report.to_terminal()));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
