//! Published models, which `scripts/real_models.py` fetches. Without their files, these tests pass without checking
//! anything, and the test `skips` lists them.

use ndarray::Array2;
use std::path::Path;
use std::sync::Arc;
use trueup::convert::Agreement;
use trueup::convert::doctor::diagnose;
use trueup::quantize::NoProgress;
use trueup::runtime::{DeviceOptions, ModelFile, Session, SessionOptions, Weights, open_device};
use trueup::verify::{Outcome, Reference, VerifyOptions, verify};
use trueup_tests::{Fixture, convert, downloaded_model, nmse, say};

/// llama.cpp rounds the activations of quantized products differently.
const NMSE_MAX: f64 = 1e-2;

/// The doctor finds nothing, the tokens are those of llama.cpp, its logits are close, and `verify` passes.
fn check_against_llama_cpp(name: &str) {
    let Some(folder) = downloaded_model(name) else { return };
    let path = folder.join("model.gguf");
    let diagnosis = diagnose(&path, None, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
    assert!(diagnosis.findings.is_empty(), "{:?}", diagnosis.findings);

    let fixture = Fixture::load(folder);
    let prompt = fixture.prompts().into_iter().next().expect("a prompt");
    let tokenizer = trueup::text::open_tokenizer(&path, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(tokenizer.encode(&prompt.text, true).expect("ids"), prompt.ids);
    assert!(!prompt.greedy_ids.is_empty(), "the golden has no tokens");
    let said = say(&path, "cpu", std::slice::from_ref(&prompt.ids), prompt.greedy_ids.len(), true).remove(0);
    assert_eq!(said.ids, prompt.greedy_ids);
    let last = |logits: &Array2<f64>| logits.rows().into_iter().next_back().expect("a row").to_vec();
    let error = nmse(&last(&said.prompt_logits), &last(&fixture.logits("logits_0")));
    assert!(error < NMSE_MAX, "NMSE {error} of the logits after the prompt");

    let model = Arc::new(ModelFile::open(&path).unwrap_or_else(|error| panic!("{error}")));
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let options = VerifyOptions { prompts: vec![prompt.ids], steps: 1, ..VerifyOptions::default() };
    let report = verify(model, device, Reference::Oracle, &options, &mut |_| {});
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
}

#[test]
fn gemma_3_270m_matches_llama_cpp() {
    check_against_llama_cpp("gemma-3-270m-q4_k_m");
}

#[test]
fn smollm2_135m_matches_llama_cpp() {
    check_against_llama_cpp("smollm2-135m-instruct-q4_1");
}

/// The vector of a text.
fn embedding(session: &mut Session, ids: &[u32]) -> Vec<f64> {
    let rows = session.compute_text(ids).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rows.rows(), 1, "one pooled vector");
    rows.row(0).to_vec()
}

fn encoder(path: &Path) -> Session {
    let model = Arc::new(ModelFile::open(path).unwrap_or_else(|error| panic!("{error}")));
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let weights = Arc::new(Weights::new(model, device, None));
    Session::new(weights, &SessionOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The checkpoint of sentence-transformers converts exactly, and gives the vectors of transformers and the IDs of its
/// tokenizer.
#[test]
fn minilm_gives_the_vectors_of_transformers() {
    let Some(folder) = downloaded_model("all-minilm-l6-v2") else { return };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = scratch.path().join("minilm.gguf");
    let checks = convert(&folder, &path, None, None);
    assert!(checks.len() > 100 && checks.iter().all(|check| check.agreement == Agreement::Exact), "{checks:?}");
    let fixture = Fixture::load(folder);
    let tokenizer = trueup::text::open_tokenizer(&path, None).unwrap_or_else(|error| panic!("{error}"));
    let mut session = encoder(&path);
    assert_eq!(fixture.prompts().len(), 7);
    for (number, prompt) in fixture.prompts().iter().enumerate() {
        assert_eq!(tokenizer.encode(&prompt.text, true).expect("ids"), prompt.ids, "{:?}", prompt.text);
        let expected = fixture.logits(&format!("pooled_{number}")).into_raw_vec_and_offset().0;
        let got = embedding(&mut session, &prompt.ids);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let cosine = dot(&got, &expected) / (dot(&got, &got) * dot(&expected, &expected)).sqrt();
        assert!(1.0 - cosine < 1e-5, "{:?}: cosine {cosine}", prompt.text);
    }
}
