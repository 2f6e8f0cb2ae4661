//! Copies of what sequences hold: a sequence that continues a copy gives the bits of one that computed all its tokens.

use super::tiny_model::{CONTEXT, Kind, VOCABULARY};
use super::{bits, device, entries, model_of, prompts, session, texts};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::{Entry, GenerateOptions, ModelFile, Sampling, Session, SessionOptions, Snapshot, Weights};

/// Rows, rows of which one layer sees a window, and recurrent states.
const KINDS: [Kind; 3] = [Kind::Llama, Kind::Qwen2, Kind::Mamba2];
const DEVICES: [&str; 2] = ["cpu", "ref"];

const TEXT: [u32; 24] = [1, 5, 9, 20, 33, 47, 2, 8, 11, 40, 3, 3, 17, 29, 6, 1, 44, 12, 7, 30, 21, 4, 38, 10];
const OTHER: [u32; 5] = [4, 40, 13, 2, 2];

fn sized(sequences: usize) -> SessionOptions {
    SessionOptions { sequences, ..SessionOptions::default() }
}

fn of(sequence: usize, ids: &[u32]) -> Vec<Entry> {
    ids.iter().map(|token| Entry { token: *token, sequence, wants_logits: true }).collect()
}

/// The bits of the logits of the `last` tokens of a text that is computed alone.
fn anew(model: &Arc<ModelFile>, name: &str, text: &[u32], last: usize) -> Vec<Vec<u64>> {
    bits(&mut session(model, device(name), sized(1)), &entries(&[text.to_vec()])).split_off(text.len() - last)
}

fn refused<T: std::fmt::Debug>(result: trueup_runtime::Result<T>, part: &str) {
    let problem = result.unwrap_err().to_string();
    assert!(problem.contains(part) && !problem.contains('\n'), "expected {part:?}, found {problem}");
}

#[test]
fn a_fork_continues_with_the_bits_of_a_sequence_computed_alone() {
    for (kind, name) in KINDS.into_iter().flat_map(|kind| DEVICES.map(|name| (kind, name))) {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        for len in [0, 1, 20, TEXT.len()] {
            let mut session = session(&model, device(name), sized(3));
            bits(&mut session, &[of(0, &TEXT), of(2, &OTHER)].concat());
            session.fork(0, 2, len).unwrap();
            assert_eq!((session.tokens(0), session.tokens(2)), (&TEXT[..], &TEXT[..len]));
            let found = bits(&mut session, &of(2, &OTHER));
            let what = format!("{kind:?}, {name}, {len} tokens");
            assert_eq!(found, anew(&model, name, &[&TEXT[..len], &OTHER].concat(), OTHER.len()), "{what}");
            let source = bits(&mut session, &of(0, &OTHER));
            assert_eq!(source, anew(&model, name, &[&TEXT[..], &OTHER].concat(), OTHER.len()), "{what}");
        }
    }
}

#[test]
fn restoring_a_snapshot_restores_the_sequence() {
    for (kind, name) in KINDS.into_iter().flat_map(|kind| DEVICES.map(|name| (kind, name))) {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        let expected = anew(&model, name, &[&TEXT[..], &OTHER].concat(), OTHER.len());
        let weights = Arc::new(Weights::new(model.clone(), device(name), None));
        let mut first = Session::new(weights.clone(), &sized(2)).unwrap();
        bits(&mut first, &[of(0, &OTHER), of(1, &[&TEXT[..], &OTHER].concat())].concat());
        // The state of the first tokens is computed again where it is recurrent.
        first.truncate(1, TEXT.len());
        let snapshot = first.snapshot(1).unwrap();
        assert!(snapshot.tokens() == TEXT && snapshot.bytes() > 0, "{snapshot:?}");
        let check = |session: &mut Session, sequence: usize| {
            session.restore(sequence, &snapshot).unwrap();
            assert_eq!(bits(session, &of(sequence, &OTHER)), expected, "{kind:?}, {name}, sequence {sequence}");
        };
        check(&mut first, 1);
        check(&mut first, 0);
        let mut second = Session::new(weights, &SessionOptions { context: Some(64), ..sized(3) }).unwrap();
        check(&mut second, 2);
    }
}

#[test]
fn copies_of_quantized_and_grown_caches_are_bit_identical() {
    let (_folder, model) = model_of(Kind::Wide, 700, DType::F32);
    let text: Vec<u32> = (0..300).map(|place| place * 7 % VOCABULARY as u32).collect();
    for kv in [DType::F16, DType::F32, DType::Q8_0] {
        let options = |sequences| SessionOptions { kv: Some(kv), context: Some(640), ..sized(sequences) };
        let mut alone = session(&model, device("cpu"), options(1));
        bits(&mut alone, &of(0, &text));
        let expected = bits(&mut alone, &of(0, &OTHER));
        let mut grown = session(&model, device("cpu"), options(2));
        bits(&mut grown, &of(1, &text[..40]));
        let early = grown.snapshot(1).unwrap();
        bits(&mut grown, &of(1, &text[40..]));
        grown.fork(1, 0, text.len()).unwrap();
        assert_eq!(bits(&mut grown, &of(0, &OTHER)), expected, "{kv}");
        grown.restore(0, &early).unwrap();
        bits(&mut grown, &of(0, &text[40..]));
        assert_eq!(bits(&mut grown, &of(0, &OTHER)), expected, "{kv}");
    }
}

#[test]
fn invalid_copies_are_refused_and_change_nothing() {
    let (_folder, model) = model_of(Kind::Llama, CONTEXT, DType::F32);
    let weights = Arc::new(Weights::new(model.clone(), device("cpu"), None));
    let mut session = Session::new(weights.clone(), &sized(2)).unwrap();
    bits(&mut session, &[of(0, &TEXT), of(1, &OTHER)].concat());
    refused(session.fork(0, 1, 25), "sequence 0: expected at least 25 tokens to copy, found 24");
    refused(session.fork(0, 2, 3), "sequence 2 does not exist; the session has 2 sequences");
    refused(session.fork(5, 1, 3), "sequence 5 does not exist");
    refused(session.snapshot(2), "sequence 2 does not exist");
    let snapshot = session.snapshot(0).unwrap();
    let other = |weights: &Arc<Weights>, options: SessionOptions, snapshot: &Snapshot| {
        Session::new(weights.clone(), &options).unwrap().restore(0, snapshot)
    };
    let again = Arc::new(Weights::new(model, device("cpu"), None));
    refused(other(&again, sized(1), &snapshot), "the snapshot was taken with other weights");
    let short = SessionOptions { context: Some(20), ..sized(1) };
    refused(other(&weights, short, &snapshot), "the snapshot of 24 tokens exceeds the context of 20");
    let wide = SessionOptions { kv: Some(DType::F32), ..sized(1) };
    refused(
        other(&weights, wide, &snapshot),
        "take it in a session with the same KV cache type, activation type and context",
    );
    assert_eq!((session.tokens(0), session.tokens(1)), (&TEXT[..], &OTHER[..]));
}

/// A prompt whose beginning another sequence holds is computed from there, with the same tokens.
#[test]
fn a_prompt_takes_its_beginning_from_another_sequence() {
    for kind in KINDS {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        let prompt = prompts()[1].clone();
        let second = [&prompt[..], &OTHER].concat();
        let options = GenerateOptions { tokens_max: Some(4), sampling: Sampling::GREEDY, ..GenerateOptions::default() };
        let sized = |sequences| SessionOptions { prompt_chunk: 10, ..sized(sequences) };
        let expected = texts(&mut session(&model, device("cpu"), sized(1)), std::slice::from_ref(&second), &options);
        let mut shared = session(&model, device("cpu"), sized(2));
        bits(&mut shared, &of(1, &prompt));
        assert_eq!(shared.reuse(0, &second).unwrap(), prompt.len(), "{kind:?}");
        assert_eq!(shared.reuse(0, &OTHER).unwrap(), 0, "{kind:?}");
        let batches = shared.batches();
        let found = texts(&mut shared, &[second], &GenerateOptions { reuse: true, ..options });
        assert_eq!((found, shared.batches() - batches), (expected, 4), "{kind:?}");
    }
}
