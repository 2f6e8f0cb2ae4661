//! A KV cache that grows with the sequences: what it held stays, bit for bit, and what finds no memory leaves the session as it was.

use super::tiny_model::{Kind, VOCABULARY};
use super::{bits, device, model_of};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_runtime::device::{About, Buffer, Decorator, Device, Usage};
use trueup_runtime::{Entry, Error, ModelFile, ROOM_FIRST, Result, Session, SessionOptions, Weights};

const CONTEXT: usize = 700;

fn ids(sequence: usize, len: usize) -> Vec<u32> {
    (0..len).map(|index| ((index * (7 + 4 * sequence) + sequence) % VOCABULARY) as u32).collect()
}

fn sized(sequences: usize, kv: DType) -> SessionOptions {
    SessionOptions {
        context: Some(CONTEXT),
        sequences,
        kv: Some(kv),
        prompt_chunk: CONTEXT,
        ..SessionOptions::default()
    }
}

fn entries(sequence: usize, ids: &[u32]) -> Vec<Entry> {
    ids.iter().map(|token| Entry { token: *token, sequence, wants_logits: true }).collect()
}

/// Logits of one sequence in one batch, for which the cache grows while it is empty.
fn at_once(model: &Arc<ModelFile>, name: &str, kv: DType, ids: &[u32]) -> Vec<Vec<u64>> {
    let mut session = super::session(model, device(name), sized(1, kv));
    bits(&mut session, &entries(0, ids))
}

/// Logits of sequences that take turns, some tokens at a time.
fn in_turns(session: &mut Session, all: &[Vec<u32>], tokens: usize) -> Vec<Vec<Vec<u64>>> {
    let mut logits: Vec<Vec<Vec<u64>>> = all.iter().map(|_| Vec::new()).collect();
    let mut from = 0;
    while all.iter().any(|ids| from < ids.len()) {
        for (sequence, ids) in all.iter().enumerate().filter(|(_, ids)| from < ids.len()) {
            let piece = &ids[from..ids.len().min(from + tokens)];
            logits[sequence].extend(bits(session, &entries(sequence, piece)));
        }
        from += tokens;
    }
    logits
}

#[test]
fn what_a_growing_cache_holds_keeps_its_bits() {
    let (_folder, model) = model_of(Kind::Wide, CONTEXT, DType::F32);
    let cases = [("cpu", DType::F16), ("cpu", DType::F32), ("cpu", DType::Q8_0), ("ref", DType::F64)];
    for (name, kv) in cases {
        let longest = if name == "ref" { 300 } else { CONTEXT };
        let all: Vec<Vec<u32>> = [290, longest, 3].into_iter().enumerate().map(|(n, len)| ids(n, len)).collect();
        let mut session = super::session(&model, device(name), sized(3, kv));
        let found = in_turns(&mut session, &all, 50);
        for (ids, found) in all.iter().zip(found) {
            assert!(found == at_once(&model, name, kv, ids), "{name} {kv}, {} tokens", ids.len());
        }
    }
}

#[test]
fn plans_say_how_large_the_cache_is_and_becomes() {
    let (_folder, model) = model_of(Kind::Llama, CONTEXT, DType::F32);
    let weights = Weights::new(model, device("cpu"), None);
    let bytes = |length| {
        let plan = Session::plan(&weights, &sized(2, DType::F32), 1, 1, length).unwrap();
        let report = plan.report();
        let device = &report.devices[0];
        assert!(report.to_string().contains(&format!("{} of KV cache ({} when", device.kv_bytes, device.kv_bytes_max)));
        (device.kv_bytes, device.kv_bytes_max)
    };
    let (first, most) = bytes(1);
    assert_eq!((first / ROOM_FIRST, first % ROOM_FIRST), (most / 704, 0), "rows are as long as before");
    assert_eq!(bytes(ROOM_FIRST), (first, most));
    assert_eq!(bytes(ROOM_FIRST + 1), (first / 4 * 5, most));
    assert_eq!(bytes(CONTEXT), (most, most));
}

/// The processor, which has memory for a tensor of a cache, or has none, as a list says; behind its end it has some.
struct Scripted {
    inner: Arc<dyn Device>,
    answers: Mutex<VecDeque<bool>>,
}

impl Decorator for Scripted {
    fn device(&self) -> &dyn Device {
        &*self.inner
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        if usage == Usage::State && self.answers.lock().unwrap().pop_front() == Some(false) {
            return Err(Error::Device { device: "scripted".to_owned(), problem: "has no memory left".to_owned() });
        }
        self.inner.alloc(ty, usage)
    }
}

/// The model has two layers, hence four tensors of a cache.
#[test]
fn a_cache_that_cannot_grow_stays_as_it_was() {
    let (_folder, model) = model_of(Kind::Llama, CONTEXT, DType::F32);
    let all = [ids(0, 40), ids(1, 300)];
    let expected = all.each_ref().map(|ids| at_once(&model, "cpu", DType::F16, ids));
    let cases: [(&[bool], bool); 5] = [
        (&[false], false),
        (&[true, false], false),
        (&[true, true, true, false, true, true, true], false),
        (&[true, false, false], true),
        (&[true, true, false, true, false], true),
    ];
    for (answers, is_lost) in cases {
        let scripted = Arc::new(Scripted { inner: device("cpu"), answers: Mutex::default() });
        let weights = Weights::new(model.clone(), scripted.clone(), None);
        let mut session = Session::new(Arc::new(weights), &sized(2, DType::F16)).unwrap();
        in_turns(&mut session, &[all[0].clone(), all[1][..250].to_vec()], 100);
        scripted.answers.lock().unwrap().extend(answers);
        let error = session.compute(&entries(1, &all[1][250..]), None).unwrap_err().to_string();
        assert_eq!(error, "device scripted: has no memory left", "{answers:?}");
        let lengths = [0, 1].map(|sequence| session.len(sequence));
        assert_eq!(lengths, if is_lost { [0, 0] } else { [40, 250] }, "{answers:?}");
        let rest = bits(&mut session, &entries(1, &all[1][lengths[1]..]));
        assert!(rest == expected[1][lengths[1]..], "{answers:?}");
    }
}

/// The processor, of whose memory so much is free.
struct Small {
    inner: Arc<dyn Device>,
    free: AtomicU64,
}

impl Decorator for Small {
    fn device(&self) -> &dyn Device {
        &*self.inner
    }

    fn about(&self) -> About {
        About { memory: Some((1 << 40, self.free.load(Ordering::SeqCst))), ..self.inner.about() }
    }
}

#[test]
fn a_cache_grows_by_less_where_there_is_less_memory() {
    let (_folder, model) = model_of(Kind::Llama, CONTEXT, DType::F32);
    let small = Arc::new(Small { inner: device("cpu"), free: AtomicU64::new(1 << 40) });
    let weights = Weights::new(model.clone(), small.clone(), None);
    let mut session = Session::new(Arc::new(weights), &sized(1, DType::F16)).unwrap();
    let ids = ids(0, 400);
    let before = bits(&mut session, &entries(0, &ids[..250]));
    // Four tensors of rows of 32 halves: 64 positions more, and one tensor a second time.
    let needed = 4 * 64 * 64 + 256 * 64;
    small.free.store(needed - 1, Ordering::SeqCst);
    let error = session.compute(&entries(0, &ids[250..270]), None).unwrap_err().to_string();
    let part = format!("a KV cache of 320 positions needs {needed} bytes of memory more, and {} are free", needed - 1);
    assert!(error.contains(&part), "{error}");
    assert_eq!(session.len(0), 250);
    small.free.store(1 << 40, Ordering::SeqCst);
    let rest = bits(&mut session, &entries(0, &ids[250..]));
    assert!([before, rest].concat() == at_once(&model, "cpu", DType::F16, &ids));
}
