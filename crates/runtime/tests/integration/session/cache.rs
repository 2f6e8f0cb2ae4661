//! A KV cache that grows with the sequences: what it held stays, bit for bit, and what finds no memory leaves the
//! session as it was.

use super::tiny_model::{Kind, VOCABULARY};
use super::{bits, device, model_of};
use std::any::Any;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_runtime::device::{About, Bounded, Buffer, Decorator, Device, Usage};
use trueup_runtime::{
    Entry, Error, GenerateOptions, ModelFile, ROOM_FIRST, Result, Sampling, Session, SessionOptions, Watch, Weights,
    generate_each,
};

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

/// A batch of several pieces, of which the last one finds no memory.
#[test]
fn a_batch_that_is_cut_is_computed_whole_or_not_at_all() {
    let (_folder, model) = model_of(Kind::Llama, CONTEXT, DType::F32);
    let scripted = Arc::new(Scripted { inner: device("cpu"), answers: Mutex::default() });
    let options = SessionOptions { prompt_chunk: 100, ..sized(2, DType::F16) };
    let weights = Weights::new(model, scripted.clone(), None);
    let mut session = Session::new(Arc::new(weights), &options).unwrap();
    session.compute(&entries(1, &ids(1, 7)), None).unwrap();
    scripted.answers.lock().unwrap().push_back(false);
    let error = session.compute(&entries(0, &ids(0, 290)), None).unwrap_err();
    assert!(matches!(error, Error::NoRoom(_)), "{error}");
    assert_eq!([0, 1].map(|sequence| session.len(sequence)), [0, 7]);
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
    let part = format!(
        "a KV cache of 320 positions needs another {needed} bytes of memory, but only {} are available",
        needed - 1
    );
    assert!(error.contains(&part), "{error}");
    assert_eq!(session.len(0), 250);
    small.free.store(1 << 40, Ordering::SeqCst);
    let rest = bits(&mut session, &entries(0, &ids[250..]));
    assert!([before, rest].concat() == at_once(&model, "cpu", DType::F16, &ids));
}

fn texts(session: &mut Session, prompts: &[Vec<u32>], tokens: usize) -> Vec<Result<Vec<u32>>> {
    let options = GenerateOptions {
        tokens_max: Some(tokens),
        ignore_eos: true,
        sampling: Sampling::GREEDY,
        ..GenerateOptions::default()
    };
    let each = generate_each(session, prompts, &options, &mut Silent).unwrap();
    each.into_iter().map(|result| result.map(|generated| generated.ids)).collect()
}

/// Someone who only waits.
struct Silent;

impl Watch for Silent {
    fn saw_token(&mut self, _: usize, _: u32) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Texts of which one outgrows what there is memory for: it ends alone, and the others, those that wait too, go on.
#[test]
fn a_cache_that_cannot_grow_ends_the_texts_that_need_it() {
    let (_folder, model) = model_of(Kind::Llama, CONTEXT, DType::F32);
    let prompts = [ids(0, 20), ids(1, ROOM_FIRST - 5), ids(2, 100), ids(3, ROOM_FIRST + 9), ids(4, 30)];
    let mut alone = super::session(&model, device("cpu"), sized(1, DType::F16));
    let expected: Vec<Vec<u32>> = texts(&mut alone, &prompts, 40).into_iter().map(Result::unwrap).collect();
    for sequences in [1, 2, 5] {
        let scripted = Arc::new(Scripted { inner: device("cpu"), answers: Mutex::default() });
        let weights = Weights::new(model.clone(), scripted.clone(), None);
        let mut session = Session::new(Arc::new(weights), &sized(sequences, DType::F16)).unwrap();
        scripted.answers.lock().unwrap().extend([false; 1000]);
        let found = texts(&mut session, &prompts, 40);
        for (number, (found, expected)) in found.into_iter().zip(&expected).enumerate() {
            match found {
                Ok(ids) => assert!(![1, 3].contains(&number) && ids == *expected, "{sequences}, prompt {number}"),
                Err(error) => {
                    assert!([1, 3].contains(&number), "{sequences}, prompt {number}: {error}");
                    assert_eq!(error.to_string(), "device scripted: has no memory left");
                }
            }
        }
        scripted.answers.lock().unwrap().clear();
        let later: Vec<Vec<u32>> = texts(&mut session, &prompts, 40).into_iter().map(Result::unwrap).collect();
        assert_eq!(later, expected, "{sequences}: when there is memory again");
    }
}

/// Rows that are lost end the texts whose rows they were, and no other.
#[test]
fn a_lost_cache_ends_the_texts_in_it() {
    let (_folder, model) = model_of(Kind::Llama, CONTEXT, DType::F32);
    let scripted = Arc::new(Scripted { inner: device("cpu"), answers: Mutex::default() });
    let weights = Weights::new(model.clone(), scripted.clone(), None);
    let mut session = Session::new(Arc::new(weights), &sized(2, DType::F16)).unwrap();
    scripted.answers.lock().unwrap().extend([true, false, false]);
    let prompts = [ids(0, 20), ids(1, ROOM_FIRST - 5), ids(2, 100)];
    let mut found = texts(&mut session, &prompts, 40);
    let mut alone = super::session(&model, device("cpu"), sized(1, DType::F16));
    assert_eq!(found.pop().unwrap().unwrap(), texts(&mut alone, &prompts[2..], 40).remove(0).unwrap());
    assert!(found.iter().all(Result::is_err), "{found:?}");
}

/// The processor, and how many bytes of inputs there were at most.
struct Counting {
    inner: Arc<dyn Device>,
    inputs: Mutex<Vec<(Weak<dyn Any + Send + Sync>, usize)>>,
    most: AtomicU64,
}

impl Decorator for Counting {
    fn device(&self) -> &dyn Device {
        &*self.inner
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        let buffer = self.inner.alloc(ty, usage)?;
        if usage == Usage::Input {
            let mut inputs = self.inputs.lock().unwrap();
            inputs.retain(|(buffer, _)| buffer.strong_count() > 0);
            inputs.push((Arc::downgrade(&buffer.0), ty.bytes()));
            let bytes: usize = inputs.iter().map(|(_, bytes)| bytes).sum();
            self.most.fetch_max(bytes as u64, Ordering::SeqCst);
        }
        Ok(buffer)
    }
}

/// Masks of long prompts are the larger the further they are; four pieces, of 4, 8, 12 and 16 MiB.
#[test]
fn inputs_of_plans_that_are_kept_take_little_memory() {
    let context = 4096;
    let (_folder, model) = model_of(Kind::Llama, context, DType::F32);
    let options = SessionOptions { context: Some(context), prompt_chunk: 1024, ..SessionOptions::default() };
    let text = entries(0, &ids(0, context));
    let twice = |device: Arc<dyn Device>| {
        let mut session = Session::new(Arc::new(Weights::new(model.clone(), device, None)), &options)?;
        for _ in 0..2 {
            session.truncate(0, 0);
            let last = text.len() - 1;
            let wants = |(index, entry): (usize, &Entry)| Entry { wants_logits: index == last, ..*entry };
            session.compute(&text.iter().enumerate().map(wants).collect::<Vec<Entry>>(), None)?;
        }
        Result::Ok(session)
    };
    let counting = Arc::new(Counting { inner: device("cpu"), inputs: Mutex::default(), most: AtomicU64::new(0) });
    let session = twice(counting.clone()).unwrap();
    let plan = Session::plan(session.weights(), &options, 1024, 1, context).unwrap().report();
    let planned = &plan.devices[0];
    let most = counting.most.load(Ordering::SeqCst);
    assert!(most <= planned.input_bytes as u64 + (16 << 20), "{most} bytes, planned {}", planned.input_bytes);
    // Where there is memory for what is planned and little else, none are kept.
    let needed = planned.weight_bytes + planned.kv_bytes_max + planned.input_bytes + planned.arena_bytes;
    twice(Arc::new(Bounded::new(device("cpu"), needed as u64 + (1 << 20)))).map(drop).unwrap();
}
