//! LongRoPE: the length of a text chooses its factors, however the text is divided into batches.

use std::path::Path;
use std::sync::Arc;
use trueup::runtime::{DeviceOptions, Entry, ModelFile, Session, SessionOptions, Weights, open_device};
use trueup::verify::{Outcome, Reference, VerifyOptions, verify};
use trueup_tests::{convert, root};

/// The context that the fixture was trained with first.
const ORIGINAL: usize = 16;

const TEXT: [u32; 20] = [5, 6, 7, 1, 9, 10, 11, 12, 13, 14, 150, 200, 5, 6, 7, 300, 9, 10, 11, 12];

fn model(scratch: &Path) -> Arc<ModelFile> {
    let path = scratch.join("model.gguf");
    convert(&root().join("fixtures/models/phi4-long"), &path, None, None);
    Arc::new(ModelFile::open(&path).unwrap_or_else(|error| panic!("{error}")))
}

fn session(model: &Arc<ModelFile>, sequences: usize, prompt_chunk: usize) -> Session {
    let device = open_device("ref", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let options = SessionOptions { sequences, prompt_chunk, ..SessionOptions::default() };
    Session::new(Arc::new(Weights::new(Arc::clone(model), device, None)), &options)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn entries(tokens: &[u32], sequence: usize) -> Vec<Entry> {
    tokens.iter().map(|token| Entry { token: *token, sequence, wants_logits: true }).collect()
}

/// The logits after the last of these entries.
fn last(session: &mut Session, entries: &[Entry]) -> Vec<f64> {
    let logits = session.compute(entries, None).unwrap_or_else(|error| panic!("{error}"));
    logits.row(logits.rows() - 1).to_vec()
}

fn assert_equal(found: &[f64], expected: &[f64], what: &str) {
    let difference = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(difference < 1e-9, "{what}: logits differ by {difference:e}");
}

#[test]
fn a_text_that_becomes_long_is_computed_again() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let model = model(scratch.path());
    let whole = |length: usize| last(&mut session(&model, 1, 512), &entries(&TEXT[..length], 0));
    let mut stepwise = session(&model, 1, 512);
    for (place, entry) in entries(&TEXT, 0).into_iter().enumerate() {
        assert_equal(&last(&mut stepwise, &[entry]), &whole(place + 1), &format!("{} tokens", place + 1));
    }
    // Shortened, it has the short factors again.
    stepwise.truncate(0, ORIGINAL - 1);
    assert_equal(&last(&mut stepwise, &entries(&TEXT[ORIGINAL - 1..ORIGINAL], 0)), &whole(ORIGINAL), "after a cut");
    assert_eq!((stepwise.common(0, &TEXT[..ORIGINAL]), stepwise.common(0, &TEXT)), (ORIGINAL - 1, 0));
    // In parts, all of which want logits.
    let mut parts = session(&model, 1, 512);
    parts.expect_length(0, TEXT.len());
    let first = parts.compute(&entries(&TEXT[..4], 0), None).unwrap_or_else(|error| panic!("{error}"));
    let all = session(&model, 1, 512).compute(&entries(&TEXT, 0), None).unwrap_or_else(|error| panic!("{error}"));
    assert_equal(first.row(3), all.row(3), "the first part of a long text");
    assert_equal(&last(&mut session(&model, 1, 3), &entries(&TEXT, 0)), all.row(TEXT.len() - 1), "chunks of 3 tokens");
}

#[test]
fn a_batch_of_long_and_short_texts_gives_each_its_factors() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let model = model(scratch.path());
    let texts = [&TEXT[..], &TEXT[..5], &TEXT[..ORIGINAL]];
    let mut together = session(&model, 3, 512);
    let all: Vec<Entry> = texts.iter().enumerate().flat_map(|(sequence, text)| entries(text, sequence)).collect();
    let logits = together.compute(&all, None).unwrap_or_else(|error| panic!("{error}"));
    let mut end = 0;
    for (sequence, text) in texts.iter().enumerate() {
        end += text.len();
        let alone = last(&mut session(&model, 1, 512), &entries(text, 0));
        assert_equal(logits.row(end - 1), &alone, &format!("sequence {sequence}"));
    }
    // One more token makes the third long.
    let step: Vec<Entry> = (0..3).flat_map(|sequence| entries(&[40], sequence)).collect();
    let logits = together.compute(&step, None).unwrap_or_else(|error| panic!("{error}"));
    for (sequence, text) in texts.iter().enumerate() {
        let alone = last(&mut session(&model, 1, 512), &entries(&[text, &[40][..]].concat(), 0));
        assert_equal(logits.row(sequence), &alone, &format!("sequence {sequence} after a step"));
    }
}

/// The reference refuses a graph with other factors than those of the text's length after all steps, in the batch too.
#[test]
fn verify_judges_short_and_long_texts() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let model = model(scratch.path());
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let prompts = vec![TEXT[..5].to_vec(), TEXT[..ORIGINAL - 1].to_vec()];
    let options = VerifyOptions { prompts, steps: 4, ..VerifyOptions::default() };
    let report =
        verify(model, device, Reference::Oracle, &options, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
}
