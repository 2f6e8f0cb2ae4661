//! Encoders, as transformers wrote and computed them: hidden states and pooled vectors, single and in batches, on the
//! oracle and on the processor.

use std::path::Path;
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::convert::doctor::diagnose;
use trueup::convert::{Agreement, Options};
use trueup::formats::{Checkpoint, Gguf, OpenOptions, open};
use trueup::quantize::{Layout, NoProgress};
use trueup::runtime::{DeviceOptions, Entry, ModelFile, Session, SessionOptions, Weights, open_device};
use trueup::verify::{Outcome, Reference, VerifyOptions, verify};
use trueup_tests::{Fixture, VERIFIED_TYPES, convert, encoders, nmse, quantize};

/// What results of a device may differ from those that transformers computed in f64 and stored as f32.
fn nmse_max(device: &str) -> f64 {
    if device == "ref" { 1e-9 } else { 1e-7 }
}

fn weights(model: &Path, device: &str) -> Arc<Weights> {
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let device = open_device(device, &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(Weights::new(model, device, None))
}

fn session(model: &Path, device: &str, sequences: usize) -> Session {
    let options = SessionOptions { sequences, ..SessionOptions::default() };
    Session::new(weights(model, device), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// All rows of a text, one after the other.
fn rows(session: &mut Session, ids: &[u32]) -> Vec<f64> {
    let rows = session.compute_text(ids).unwrap_or_else(|error| panic!("{error}"));
    (0..rows.rows()).flat_map(|row| rows.row(row).to_vec()).collect()
}

/// Converts a checkpoint with another pooling than its own.
fn convert_with_pooling(folder: &Path, target: &Path, number: u32) {
    let source = open(folder, &OpenOptions::default()).expect("a fixture");
    let pooling = format!("bert.pooling_type={number}").parse().expect("a key and a value");
    let options = Options { overrides: vec![pooling], ..Options::default() };
    let report = trueup::convert::convert(source.as_ref(), target, &options, &NoProgress);
    assert!(report.is_ok(), "{report:?}");
}

fn golden(fixture: &Fixture, name: &str) -> Vec<f64> {
    fixture.logits(name).iter().copied().collect()
}

#[test]
fn hidden_states_and_vectors_are_those_of_transformers() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut faults = Vec::new();
    for fixture in encoders() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        let hidden = scratch.path().join(format!("{}-hidden.gguf", fixture.name));
        let checks = convert(&fixture.folder, &model, None, None);
        assert!(checks.iter().all(|check| check.agreement == Agreement::Exact), "{checks:?}");
        convert_with_pooling(&fixture.folder, &hidden, 0);
        for device in ["ref", "cpu"] {
            for (file, key) in [(&model, "pooled"), (&hidden, "hidden")] {
                let mut session = session(file, device, 1);
                for (number, prompt) in fixture.prompts().iter().enumerate() {
                    let error = nmse(&rows(&mut session, &prompt.ids), &golden(&fixture, &format!("{key}_{number}")));
                    if error >= nmse_max(device) {
                        faults.push(format!("{} on {device}, {key} {number}: NMSE {error:e}", fixture.name));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Both prompts in one batch, with their tokens in turns: each has the bits of the text alone.
#[test]
fn texts_of_a_batch_do_not_see_each_other() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for fixture in encoders() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &model, None, None);
        let prompts = fixture.prompts();
        let alone: Vec<Vec<f64>> =
            prompts.iter().map(|prompt| rows(&mut session(&model, "cpu", 1), &prompt.ids)).collect();
        let mut session = session(&model, "cpu", 2);
        let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(0);
        let turns = (0..longest).flat_map(|place| [1, 0].map(|sequence| (place, sequence)));
        let entry = |(place, sequence): (usize, usize)| {
            let token = *prompts[sequence].ids.get(place)?;
            Some(Entry { token, sequence, wants_logits: true })
        };
        let entries: Vec<Entry> = turns.filter_map(entry).collect();
        let together = session.compute(&entries, None).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(together.rows(), 2);
        assert_eq!(together.row(0), alone[1], "{}", fixture.name);
        assert_eq!(together.row(1), alone[0], "{}", fixture.name);
        let again = session.compute(&entries, None).expect_err("the texts are complete").to_string();
        assert!(again.contains("truncate it to 0 tokens first"), "{again}");
    }
}

#[test]
fn encoders_are_verified_in_each_type() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for fixture in encoders() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &model, Some(DType::F32), None);
        for dtype in VERIFIED_TYPES {
            let path = scratch.path().join(format!("{}-{dtype}.gguf", fixture.name));
            quantize(&model, &path, dtype, Layout::Block);
            let types = Gguf::open(&path).expect("it was just written");
            for name in ["token_types.weight", "position_embd.weight"] {
                let table = types.tensors().iter().find(|tensor| tensor.name == name).expect("a table");
                assert_eq!(table.dtype, DType::F32, "other programs add only f32");
            }
            let prompts = fixture.prompts().into_iter().map(|prompt| prompt.ids).collect();
            // As many steps as a language model would have: an encoder has none.
            let options = VerifyOptions { prompts, steps: 8, ..VerifyOptions::default() };
            let device = open_device("cpu", &DeviceOptions::default()).expect("the processor");
            let file = Arc::new(ModelFile::open(&path).unwrap_or_else(|error| panic!("{error}")));
            let report = verify(file, device, Reference::Oracle, &options, &mut |_| {});
            let report = report.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(report.result, Outcome::Pass, "{}", report.to_terminal());
            assert!(report.steps == 0 && report.tokens.vectors.is_some(), "{}", report.to_terminal());
        }
    }
}

#[test]
fn an_encoder_generates_no_text() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = encoders().remove(0);
    let path = scratch.path().join("model.gguf");
    convert(&fixture.folder, &path, None, None);
    let model = trueup::Model::open(&path, "cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let error = model.logits(&[2, 5, 3]).expect_err("there are no logits").to_string();
    assert!(error.contains("found an encoder (bert)"), "{error}");
    let vector = model.embed(&[2, 5, 3]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(vector.dim(), (1, 64));
    assert!(model.embed(&[]).is_err() && model.embed(&[2; 129]).is_err());
    let refused = session(&path, "cpu", 2).fork(0, 1, 0).expect_err("nothing is kept").to_string();
    assert!(refused.contains("an encoder keeps no states that could be copied"), "{refused}");
}

#[test]
fn the_doctor_has_nothing_to_say_about_an_encoder() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for fixture in encoders() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &model, None, None);
        for path in [&fixture.folder, &model] {
            let diagnosis = diagnose(path, None, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
            assert!(diagnosis.findings.is_empty(), "{:?}", diagnosis.findings);
        }
    }
}
