//! Layers with a sliding window keep the last positions in a ring of rows: the results are those of a cache of all
//! positions, and sequences are computed again where a ring has lost what they need.

use super::tiny_model::{Kind, VOCABULARY, WINDOW};
use super::{bits, device, model_of, session};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::Node;
use trueup_runtime::{Entry, Error, ModelFile, Observer, Result, Seen, Session, SessionOptions, Weights};

const CONTEXT: usize = 500;
/// Models with two layers: one of them has a sliding window, or both.
const KINDS: [Kind; 2] = [Kind::Qwen2, Kind::Qwen3];
/// The ring has 64 rows: the window and a rewind of 20 positions, rounded up to the unit of capacity.
const REWIND_MAX: usize = 64 - WINDOW + 1;

fn ids(len: usize) -> Vec<u32> {
    (0..len).map(|place| ((place * place * 3 + place * 7 + 1) % VOCABULARY) as u32).collect()
}

fn sized(sequences: usize, prompt_chunk: usize, rewind: usize) -> SessionOptions {
    SessionOptions { context: Some(CONTEXT), sequences, prompt_chunk, rewind, ..SessionOptions::default() }
}

fn ring(sequences: usize) -> SessionOptions {
    sized(sequences, 20, 20)
}

fn of(sequence: usize, ids: &[u32]) -> Vec<Entry> {
    ids.iter().map(|token| Entry { token: *token, sequence, wants_logits: true }).collect()
}

/// Logits of tokens of an empty sequence of a new session.
fn anew(model: &Arc<ModelFile>, name: &str, options: SessionOptions, ids: &[u32]) -> Vec<Vec<u64>> {
    bits(&mut session(model, device(name), options), &of(0, ids))
}

/// `|a - b|^2 / |b|^2`.
fn distance(a: &[Vec<u64>], b: &[Vec<u64>]) -> f64 {
    let numbers = |rows: &[Vec<u64>]| rows.iter().flatten().map(|bits| f64::from_bits(*bits)).collect::<Vec<f64>>();
    let (a, b) = (numbers(a), numbers(b));
    assert_eq!(a.len(), b.len());
    a.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / b.iter().map(|b| b * b).sum::<f64>()
}

#[test]
fn a_ring_gives_the_results_of_a_cache_of_all_positions() {
    let text = ids(260);
    for (kind, (name, most)) in KINDS.into_iter().flat_map(|kind| [("ref", 1e-24), ("cpu", 1e-11)].map(|of| (kind, of)))
    {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        let all = anew(&model, name, sized(1, 512, CONTEXT), &text);
        let found = anew(&model, name, ring(1), &text);
        let apart = distance(&found, &all);
        assert!(apart < most, "{kind:?}, {name}: {apart:e}");
        assert_eq!(found[..WINDOW], all[..WINDOW], "{kind:?}, {name}: the ring is not full yet");
    }
}

#[test]
fn chunks_and_other_sequences_change_no_bits() {
    let text = ids(200);
    for (kind, name) in KINDS.into_iter().flat_map(|kind| ["ref", "cpu"].map(|name| (kind, name))) {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        let expected = anew(&model, name, ring(1), &text);
        for chunk in [1, 7, 48] {
            assert_eq!(anew(&model, name, sized(1, chunk, 48), &text), expected, "{kind:?}, {name}, chunks of {chunk}");
        }
        let mut together = session(&model, device(name), ring(3));
        let mut found = Vec::new();
        for (place, token) in text.iter().enumerate() {
            let others = [of(0, &text[..place % 3]), of(2, &[*token])].concat();
            found.push(bits(&mut together, &[others, of(1, &[*token])].concat()).pop().unwrap());
        }
        assert_eq!(found, expected, "{kind:?}, {name}, with other sequences");
    }
}

#[test]
fn a_ring_takes_the_memory_of_the_window() {
    let bytes = |kind: Kind, rewind: usize| {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        let weights = Weights::new(model, device("cpu"), None);
        let plan = Session::plan(&weights, &sized(1, 20, rewind), 1, 1, 1).unwrap();
        plan.report().devices[0].kv_bytes_max
    };
    let [half, whole] = KINDS.map(|kind| (bytes(kind, 20), bytes(kind, CONTEXT)));
    assert_eq!((half.0 / (64 + 512), whole.0 / (2 * 64)), (half.1 / (2 * 512), whole.1 / (2 * 512)), "bytes of a row");
    assert_eq!(whole.0 * 8, whole.1);
}

#[test]
fn a_truncated_sequence_continues_with_the_same_bits() {
    let (text, other) = (ids(150), &ids(400)[300..330]);
    for (kind, name) in KINDS.into_iter().flat_map(|kind| ["ref", "cpu"].map(|name| (kind, name))) {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        for len in [0, 10, 100, 150 - REWIND_MAX, 149] {
            let mut session = session(&model, device(name), ring(1));
            bits(&mut session, &of(0, &text));
            let next = [&text[..len], other].concat();
            let kept = session.common(0, &next);
            let expected = if 150 - len <= REWIND_MAX { len } else { 0 };
            assert_eq!(kept, expected, "{kind:?}, {name}, {len} tokens");
            session.truncate(0, len);
            let found = bits(&mut session, &of(0, other));
            let fresh = anew(&model, name, ring(1), &next).split_off(len);
            assert_eq!(found, fresh, "{kind:?}, {name}, {len} tokens");
            // Truncates again; the ring was overwritten up to the earlier, longer length.
            session.truncate(0, len.saturating_sub(5));
            let found = bits(&mut session, &of(0, other));
            let fresh = anew(&model, name, ring(1), &[&text[..len.saturating_sub(5)], other].concat());
            assert_eq!(found, fresh[len.saturating_sub(5)..], "{kind:?}, {name}, {len} tokens, again");
        }
    }
}

#[test]
fn copies_of_rings_continue_with_the_same_bits() {
    let (text, other) = (ids(150), &ids(400)[300..330]);
    for kind in KINDS {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        let weights = Arc::new(Weights::new(model.clone(), device("cpu"), None));
        for len in [30, 90, 140, 150] {
            let expected = anew(&model, "cpu", ring(1), &[&text[..len], other].concat()).split_off(len);
            let mut first = Session::new(weights.clone(), &ring(3)).unwrap();
            bits(&mut first, &of(1, &text));
            first.fork(1, 0, len).unwrap();
            assert_eq!(bits(&mut first, &of(0, other)), expected, "{kind:?}, {len} tokens, forked");
            first.truncate(1, len);
            let snapshot = first.snapshot(1).unwrap();
            bits(&mut first, &of(1, &ids(90)));
            let mut second = Session::new(weights.clone(), &ring(2)).unwrap();
            let check = |session: &mut Session, sequence: usize| {
                session.restore(sequence, &snapshot).unwrap();
                assert_eq!(bits(session, &of(sequence, other)), expected, "{kind:?}, {len} tokens, restored");
            };
            check(&mut first, 1);
            check(&mut second, 1);
            check(&mut second, 0);
            let mut larger = Session::new(weights.clone(), &sized(1, 20, 200)).unwrap();
            let refused = larger.restore(0, &snapshot).map_err(|error| error.to_string());
            if len > 64 {
                assert!(refused.unwrap_err().contains("the same `rewind`"), "{kind:?}, {len} tokens");
            }
        }
    }
}

/// What was cut off a sequence does not matter, but a ring of another length does.
#[test]
fn snapshots_of_cut_sequences_are_restored_into_new_sessions() {
    let (text, other) = (ids(400), &ids(460)[430..]);
    for kind in KINDS {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        let weights = Arc::new(Weights::new(model.clone(), device("cpu"), None));
        // Rings that were never full, that have been, and that hold tokens which were cut off.
        for (computed, len, rewind) in [(300, 100, 400), (400, 380, 300), (300, 200, 240)] {
            let options = sized(1, 20, rewind);
            let mut first = Session::new(weights.clone(), &options).unwrap();
            bits(&mut first, &of(0, &text[..computed]));
            first.truncate(0, len);
            let snapshot = first.snapshot(0).unwrap();
            let mut second = Session::new(weights.clone(), &options).unwrap();
            second.restore(0, &snapshot).unwrap();
            let found = bits(&mut second, &of(0, other));
            let expected = anew(&model, "cpu", options, &[&text[..len], other].concat()).split_off(len);
            assert_eq!(found, expected, "{kind:?}, {len} of {computed} tokens");
        }
        let mut first = Session::new(weights.clone(), &sized(1, 20, 240)).unwrap();
        bits(&mut first, &of(0, &text[..300]));
        first.truncate(0, 200);
        let snapshot = first.snapshot(0).unwrap();
        let mut larger = Session::new(weights.clone(), &sized(1, 20, 300)).unwrap();
        assert!(larger.restore(0, &snapshot).unwrap_err().to_string().contains("the same `rewind`"), "{kind:?}");
    }
}

/// Fails at the second step of a layer.
struct Stops(usize);

impl Observer for Stops {
    fn wants(&self, node: &Node) -> bool {
        node.layer == Some(1)
    }

    fn saw(&mut self, _: &Seen<'_>) -> Result<()> {
        self.0 += 1;
        if self.0 == 2 { Err(Error::Request("stopped".to_owned())) } else { Ok(()) }
    }
}

#[test]
fn a_failed_computation_changes_no_later_result() {
    let (text, other) = (ids(150), &ids(400)[300..330]);
    for kind in KINDS {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        let expected = anew(&model, "cpu", ring(1), &[&text[..], other].concat()).split_off(text.len());
        let mut session = session(&model, device("cpu"), ring(1));
        bits(&mut session, &of(0, &text));
        for _ in 0..4 {
            let error = session.compute(&of(0, &ids(20)), Some(&mut Stops(0))).unwrap_err();
            assert_eq!((error.to_string(), session.len(0)), ("stopped".to_owned(), text.len()), "{kind:?}");
        }
        assert_eq!(bits(&mut session, &of(0, other)), expected, "{kind:?}");
    }
}
