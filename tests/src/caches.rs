//! KV caches on any device: contents survive growth and copies, and the cache may be in host memory.

use crate::fixture::fixture;
use crate::way::convert;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::runtime::device::{Cacheless, Device};
use trueup::runtime::{DeviceOptions, Entry, ModelFile, ROOM_FIRST, Session, SessionOptions, Weights, open_device};
use trueup::verify::{Outcome, Reference, VerifyOptions, verify};

/// A fixture with heads of whole blocks of a cache.
const FIXTURE: &str = "qwen3";

/// A fixture with recurrent states.
const RECURRENT: &str = "mamba2";

/// Tokens that its sequences can hold here: more than a cache has room for at first.
const CONTEXT: usize = 2 * ROOM_FIRST;

/// A fixture with layers with a sliding window.
const WINDOWED: &str = "gemma3";

/// Length of a text that does not fit into the rings of these layers if `rewind` is 0.
const PAST_RING: usize = 100;

/// Decode steps. If the cache must grow, they start shortly before it does.
const STEPS: usize = 10;

/// What is not right about caches on a device.
pub fn caches(name: &str, device: &Arc<dyn Device>) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let model = Arc::new(ModelFile::open(long_model(scratch.path())).unwrap_or_else(|error| panic!("{error}")));
    let mut wrong: Vec<String> = [DType::F16, DType::Q8_0]
        .into_iter()
        .filter(|kv| grown(&model, device, *kv, false) != grown(&model, device, *kv, true))
        .map(|kv| format!("a cache of {kv} on {name} changes when it grows"))
        .collect();
    let recurrent = scratch.path().join("recurrent.gguf");
    convert(&fixture(RECURRENT).folder, &recurrent, Some(DType::F16), None);
    let recurrent = Arc::new(ModelFile::open(recurrent).unwrap_or_else(|error| panic!("{error}")));
    let copies = [(&model, Some(DType::F16)), (&model, Some(DType::Q8_0)), (&recurrent, None)];
    let copies = copies.into_iter().filter_map(|(model, kv)| copied(model, device, kv));
    wrong.extend(copies.map(|problem| format!("{name}: {problem}")));
    let cacheless: Arc<dyn Device> = Arc::new(Cacheless::new(Arc::clone(device)));
    let windowed = scratch.path().join("windowed.gguf");
    convert(&fixture(WINDOWED).folder, &windowed, Some(DType::F16), None);
    let windowed = Arc::new(ModelFile::open(windowed).unwrap_or_else(|error| panic!("{error}")));
    for (device, place) in [(device, "the device"), (&cacheless, "the host")] {
        let sentence = verdict(&model, device, ROOM_FIRST - STEPS / 2, CONTEXT, None);
        wrong.extend(sentence.map(|sentence| format!("a cache of {name} that grows on {place}: {sentence}")));
        let sentence = verdict(&windowed, device, PAST_RING, 2 * PAST_RING, Some(0));
        wrong.extend(sentence.map(|sentence| format!("a ring of {name} on {place}: {sentence}")));
    }
    wrong
}

/// The fixture with a longer context.
fn long_model(folder: &Path) -> PathBuf {
    let source = folder.join("source");
    fs::create_dir(&source).unwrap_or_else(|error| panic!("{error}"));
    for entry in fs::read_dir(fixture(FIXTURE).folder).unwrap_or_else(|error| panic!("{error}")).flatten() {
        fs::copy(entry.path(), source.join(entry.file_name())).unwrap_or_else(|error| panic!("{error}"));
    }
    let config = source.join("config.json");
    let text = fs::read(&config).unwrap_or_else(|error| panic!("{error}"));
    let mut numbers: Value = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}"));
    numbers["max_position_embeddings"] = CONTEXT.into();
    fs::write(&config, numbers.to_string()).unwrap_or_else(|error| panic!("{error}"));
    let target = folder.join("long.gguf");
    // Not bf16, which some chips do not compute.
    convert(&source, &target, Some(DType::F16), None);
    target
}

/// Bits of the logits of two sequences, of which one outgrows the first room of the cache; with `before`, the cache has
/// grown for others.
fn grown(model: &Arc<ModelFile>, device: &Arc<dyn Device>, kv: DType, before: bool) -> Vec<u64> {
    let mut session = session(model, device, Some(kv));
    let mut bits = |tokens: std::ops::Range<usize>, sequence: usize, truncated: bool| -> Vec<u64> {
        let bits = computed(&mut session, tokens, sequence);
        if truncated {
            session.truncate(sequence, 0);
        }
        bits
    };
    if before {
        bits(0..CONTEXT, 1, true);
    }
    let ends = [(0..200, 0), (0..30, 1), (200..ROOM_FIRST + 40, 0), (30..31, 1), (ROOM_FIRST + 40..ROOM_FIRST + 41, 0)];
    ends.into_iter().flat_map(|(tokens, sequence)| bits(tokens, sequence, false)).collect()
}

fn session(model: &Arc<ModelFile>, device: &Arc<dyn Device>, kv: Option<DType>) -> Session {
    let context = Some(CONTEXT.min(model.model().spec().context_max()));
    let options = SessionOptions { context, sequences: 2, kv, ..SessionOptions::default() };
    let fallback = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let weights = Weights::new(Arc::clone(model), Arc::clone(device), Some(fallback));
    Session::new(Arc::new(weights), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// Bits of the logits of these tokens of a text.
fn computed(session: &mut Session, tokens: std::ops::Range<usize>, sequence: usize) -> Vec<u64> {
    let entry = |index: usize| Entry { token: (index * 7 % 380) as u32, sequence, wants_logits: true };
    let logits =
        session.compute(&tokens.map(entry).collect::<Vec<_>>(), None).unwrap_or_else(|error| panic!("{error}"));
    (0..logits.rows()).flat_map(|row| logits.row(row).to_vec()).map(f64::to_bits).collect()
}

/// What is not right when a sequence continues a copy of another one, or a snapshot that replaced other contents.
fn copied(model: &Arc<ModelFile>, device: &Arc<dyn Device>, kv: Option<DType>) -> Option<String> {
    let mut session = session(model, device, kv);
    computed(&mut session, 0..12, 1);
    let snapshot = session.snapshot(1).unwrap_or_else(|error| panic!("{error}"));
    let expected = computed(&mut session, 12..20, 1);
    session.fork(1, 0, 12).unwrap_or_else(|error| panic!("{error}"));
    session.truncate(1, 0);
    computed(&mut session, 100..120, 1);
    session.fork(0, 1, 12).unwrap_or_else(|error| panic!("{error}"));
    let back = computed(&mut session, 12..20, 1);
    let forked = computed(&mut session, 12..20, 0);
    session.truncate(1, 0);
    computed(&mut session, 100..120, 1);
    session.restore(1, &snapshot).unwrap_or_else(|error| panic!("{error}"));
    let restored = computed(&mut session, 12..20, 1);
    let copies = [("a fork", forked), ("a fork of a fork", back), ("a snapshot", restored)];
    let what = copies.into_iter().find(|(_, bits)| *bits != expected)?.0;
    let state = kv.map_or_else(|| "recurrent states".to_owned(), |kv| format!("a cache of {kv}"));
    Some(format!("{what} of a sequence with {state} has other bits"))
}

/// Verifies a text that makes the cache grow, or that is longer than a ring. Returns what is wrong.
fn verdict(
    model: &Arc<ModelFile>,
    device: &Arc<dyn Device>,
    prompt: usize,
    context: usize,
    rewind: Option<usize>,
) -> Option<String> {
    let fallback = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let prompt = (0..prompt).map(|index| (index * 11 % 380) as u32).collect();
    let options = VerifyOptions {
        prompts: vec![prompt],
        steps: STEPS,
        context: Some(context),
        rewind,
        fallback: Some(fallback),
        ..VerifyOptions::default()
    };
    match verify(Arc::clone(model), Arc::clone(device), Reference::Oracle, &options, &mut |_| {}) {
        Ok(report) if report.result != Outcome::Pass => Some(report.sentence),
        Ok(report) if report.coverage.checked != report.coverage.nodes => Some("not every node was judged".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}
