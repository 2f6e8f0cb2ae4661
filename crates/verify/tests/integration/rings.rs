//! Texts that are longer than the rings of layers with a sliding window.

use super::tiny_model::{self, Kind};
use super::{device, verified};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::ModelFile;
use trueup_verify::{Outcome, VerifyOptions, planted};

/// More tokens than the 64 rows of a ring.
fn options() -> VerifyOptions {
    let prompt = (0..150u32).map(|place| 1 + place * place % 40).collect();
    VerifyOptions { prompts: vec![prompt], steps: 2, rewind: Some(0), ..VerifyOptions::default() }
}

fn model(kind: Kind) -> (tempfile::TempDir, Arc<ModelFile>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tiny.gguf");
    tiny_model::write_kind(&path, kind, 256, DType::F32, false);
    let model = ModelFile::open(&path).unwrap();
    (directory, Arc::new(model))
}

#[test]
fn reused_ring_rows_pass() {
    for (kind, fusion) in [(Kind::Qwen2, true), (Kind::Qwen3, false)] {
        let (_directory, model) = model(kind);
        let report = verified(&model, device(), &VerifyOptions { fusion, ..options() });
        assert_eq!(report.result, Outcome::Pass, "{kind:?}, fusion {fusion}: {}", report.sentence);
    }
}

#[test]
fn faults_in_rings_are_found() {
    for name in ["attention-window", "attention-window-off-by-one", "kv-slot", "kv-negated"] {
        let (_directory, model) = model(Kind::Qwen3);
        let fault = planted(name, &model, device()).unwrap();
        let report = verified(&model, fault.device, &options());
        let found = report.first_bad.as_ref().map(|bad| bad.node.as_str());
        assert_eq!((report.result, found), (Outcome::Fail, Some(fault.node.as_str())), "{name}: {}", report.sentence);
    }
}
