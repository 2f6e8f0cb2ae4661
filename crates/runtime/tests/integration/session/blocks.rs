//! A KV cache of q8_0 is used as one of floats is: batches, chunks, threads, sequences that are cut and begun anew.

use super::tiny_model::{CONTEXT, Kind};
use super::{bits, device, entries, model_of, prompts, session};
use std::sync::Arc;
use tempfile::TempDir;
use trueup_blocks::DType;
use trueup_runtime::{Entry, ModelFile, Session, SessionOptions, Weights};

const KINDS: [&str; 2] = ["ref", "cpu"];

fn model() -> (TempDir, Arc<ModelFile>) {
    model_of(Kind::Wide, CONTEXT, DType::Q8_0)
}

fn options() -> SessionOptions {
    SessionOptions { kv: Some(DType::Q8_0), sequences: 4, ..SessionOptions::default() }
}

#[test]
fn neither_batches_nor_chunks_change_a_bit() {
    let (_folder, model) = model();
    for name in KINDS {
        let of = |prompt_chunk| {
            let options = SessionOptions { prompt_chunk, ..options() };
            bits(&mut session(&model, device(name), options), &entries(&prompts()))
        };
        let together = of(512);
        assert_eq!(together, of(13), "{name}");
        let mut alone = Vec::new();
        for prompt in prompts() {
            let mut session = session(&model, device(name), options());
            let entry = |token: &u32| Entry { token: *token, sequence: 2, wants_logits: true };
            alone.extend(prompt.iter().flat_map(|token| bits(&mut session, &[entry(token)])));
        }
        assert_eq!(together, alone, "{name}");
    }
}

#[test]
fn a_sequence_that_is_cut_continues_as_if_nothing_had_been() {
    let (_folder, model) = model();
    for name in KINDS {
        let mut session = session(&model, device(name), options());
        let all = entries(&prompts()[1..2]);
        let first = bits(&mut session, &all);
        session.truncate(0, 37);
        assert_eq!(bits(&mut session, &all[37..]), first[37..], "{name}");
        session.truncate(0, 0);
        assert_eq!(bits(&mut session, &all), first, "{name}: begun anew over what the cache holds");
    }
}

/// A row of 64 elements is two blocks of 34 bytes where f16 takes 128.
#[test]
fn it_takes_about_half_the_memory_of_f16_and_is_near_it() {
    let (_folder, model) = model();
    let of = |kv| {
        let options = SessionOptions { kv: Some(kv), ..options() };
        let mut session = session(&model, device("cpu"), options);
        let plan = Session::plan(session.weights(), &options, 1, 1, 1).unwrap();
        let logits = session.compute(&entries(&prompts()[1..2]), None).unwrap();
        let logits: Vec<f64> = (0..logits.rows()).flat_map(|row| logits.row(row).to_vec()).collect();
        (plan.report().devices[0].kv_bytes, logits)
    };
    let ((blocks, narrow), (halves, wide)) = (of(DType::Q8_0), of(DType::F16));
    assert_eq!((blocks, halves), (2 * 2 * 4 * 192 * 68, 2 * 2 * 4 * 192 * 128));
    let power: f64 = wide.iter().map(|y| y * y).sum();
    let noise: f64 = wide.iter().zip(&narrow).map(|(y, x)| (x - y) * (x - y)).sum();
    // Another cache, so other logits, but of the same model.
    assert!(noise > 0.0 && noise / power < 1e-2, "{:e}", noise / power);
}

#[test]
fn what_is_no_cache_is_refused_before_anything_is_allocated() {
    let (_folder, model) = model_of(Kind::Wide, CONTEXT, DType::F32);
    for (kv, part) in [(DType::Q4_0, "floating point or q8_0, not q4_0"), (DType::Q6K, "a multiple of 256")] {
        let weights = Arc::new(Weights::new(model.clone(), device("cpu"), None));
        let error = Session::new(weights, &SessionOptions { kv: Some(kv), ..options() }).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
}
