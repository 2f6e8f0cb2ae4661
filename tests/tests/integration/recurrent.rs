//! Recurrent states: batches do not mix them, a cut sequence is computed again, and a state that is not carried is
//! found.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use trueup::blocks::DType;
use trueup::formats::{Checkpoint, Gguf};
use trueup::graph::TensorType;
use trueup::runtime::device::{Buffer, Decorator, Device, Usage};
use trueup::runtime::{DeviceOptions, Entry, Error, ModelFile, Session, SessionOptions, Weights, open_device};
use trueup::verify::{Outcome, Reference, VerifyOptions, planted, verify};
use trueup_tests::{convert, root};

/// Fixtures whose layers keep recurrent states.
const NAMES: [&str; 2] = ["mamba", "mamba2"];

fn model(name: &str, scratch: &tempfile::TempDir) -> Arc<ModelFile> {
    let path = scratch.path().join(format!("{name}.gguf"));
    convert(&root().join("fixtures/models").join(name), &path, None, None);
    open(&path)
}

fn open(path: &Path) -> Arc<ModelFile> {
    Arc::new(ModelFile::open(path).unwrap_or_else(|error| panic!("{error}")))
}

fn session(model: &Arc<ModelFile>, options: SessionOptions) -> Session {
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    Session::new(Arc::new(Weights::new(Arc::clone(model), device, None)), &options)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn compute(session: &mut Session, entries: &[(u32, usize)]) -> Vec<Vec<f64>> {
    let entry = |(token, sequence): &(u32, usize)| Entry { token: *token, sequence: *sequence, wants_logits: true };
    let entries: Vec<Entry> = entries.iter().map(entry).collect();
    let logits = session.compute(&entries, None).unwrap_or_else(|error| panic!("{error}"));
    (0..logits.rows()).map(|row| logits.row(row).to_vec()).collect()
}

/// The logits after each token of a text alone, in a separate session.
fn alone(model: &Arc<ModelFile>, text: &[u32]) -> Vec<Vec<f64>> {
    let entries: Vec<(u32, usize)> = text.iter().map(|token| (*token, 0)).collect();
    compute(&mut session(model, SessionOptions::default()), &entries)
}

const TEXTS: [&[u32]; 3] = [&[5, 9, 40, 7, 300, 11, 12, 13, 77, 2, 8], &[17, 4], &[60, 61, 5, 9, 40]];

/// Of each layer the state of one sequence and one of zeros, whatever the context is.
#[test]
fn states_are_planned_at_the_size_that_they_keep() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for name in NAMES {
        let model = model(name, &scratch);
        let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let weights = Weights::new(model, device, None);
        let sizes = |context: usize| {
            let options = SessionOptions { context: Some(context), ..SessionOptions::default() };
            let plan = Session::plan(&weights, &options, 1, 1, 1).unwrap_or_else(|error| panic!("{error}"));
            let device = &plan.report().devices[0];
            (device.kv_bytes, device.kv_bytes_max)
        };
        let (now, most) = sizes(16);
        assert!(now > 0 && now == most, "{name}: {now} bytes, {most} at most");
        assert_eq!(sizes(256), (now, most), "{name}");
    }
}

/// Counts the inputs that plans allocate.
struct Counted {
    device: Arc<dyn Device>,
    inputs: AtomicUsize,
}

impl Decorator for Counted {
    fn device(&self) -> &dyn Device {
        &*self.device
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer, Error> {
        if usage == Usage::Input {
            self.inputs.fetch_add(1, Ordering::Relaxed);
        }
        self.device.alloc(ty, usage)
    }
}

/// A text that grows past several multiples of 64 tokens is computed by the plan of its first token.
#[test]
fn a_longer_text_needs_no_new_plan() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for name in NAMES {
        let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let counted = Arc::new(Counted { device, inputs: AtomicUsize::new(0) });
        let weights = Weights::new(model(name, &scratch), Arc::clone(&counted) as Arc<dyn Device>, None);
        let options = SessionOptions { context: Some(512), ..SessionOptions::default() };
        let mut session = Session::new(Arc::new(weights), &options).unwrap_or_else(|error| panic!("{error}"));
        let inputs = || counted.inputs.load(Ordering::Relaxed);
        compute(&mut session, &[(5, 0)]);
        let first = inputs();
        (0..400).for_each(|token| drop(compute(&mut session, &[(token % 300, 0)])));
        assert!(first > 0 && inputs() == first, "{name}: {first} inputs, then {}", inputs());
    }
}

/// llama.cpp reads these tables as f32 only.
#[test]
fn tables_of_scans_and_convolutions_are_f32_in_every_file() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for name in NAMES {
        let folder = root().join("fixtures/models").join(name);
        for dtype in [None, Some(DType::F16), Some(DType::Q8_0)] {
            let path = scratch.path().join("model.gguf");
            convert(&folder, &path, dtype, None);
            let file = Gguf::open(&path).expect("it was just written");
            let is_table =
                |name: &str| [".ssm_a", ".ssm_d", ".ssm_conv1d.weight"].iter().any(|end| name.ends_with(end));
            let tables: Vec<_> = file.tensors().iter().filter(|tensor| is_table(&tensor.name)).collect();
            assert!(tables.len() == 6 && tables.iter().all(|table| table.dtype == DType::F32), "{tables:?}");
            std::fs::remove_file(&path).expect("it was just written");
        }
    }
}

/// Whole texts one after the other, then by turns; cut into chunks of several sizes. No bit differs.
#[test]
fn sequences_of_different_lengths_do_not_mix() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    NAMES.iter().for_each(|name| expect_apart(&model(name, &scratch)));
}

fn expect_apart(model: &Arc<ModelFile>) {
    let expected = TEXTS.map(|text| alone(model, text));
    for prompt_chunk in [1, 3, 512] {
        let options = SessionOptions { sequences: 3, prompt_chunk, ..SessionOptions::default() };
        let whole: Vec<(u32, usize)> = TEXTS
            .iter()
            .enumerate()
            .flat_map(|(sequence, text)| text.iter().map(move |token| (*token, sequence)))
            .collect();
        let longest = TEXTS.iter().map(|text| text.len()).max().unwrap_or(0);
        let turns: Vec<(u32, usize)> = (0..longest)
            .flat_map(|place| TEXTS.iter().enumerate().filter_map(move |(s, text)| Some((*text.get(place)?, s))))
            .collect();
        for entries in [whole, turns] {
            let found = compute(&mut session(model, options), &entries);
            let mut next = [0; 3];
            for ((_, sequence), row) in entries.iter().zip(found) {
                assert!(row == expected[*sequence][next[*sequence]], "chunks of {prompt_chunk}, sequence {sequence}");
                next[*sequence] += 1;
            }
        }
    }
}

/// A state cannot go back: what is left of a cut text is computed again, and a new text starts with zeros.
#[test]
fn a_cut_sequence_goes_on_as_if_it_had_never_been_longer() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    NAMES.iter().for_each(|name| expect_cut(&model(name, &scratch)));
}

fn expect_cut(model: &Arc<ModelFile>) {
    let [long, _, other] = TEXTS;
    let mut used = session(model, SessionOptions { sequences: 2, ..SessionOptions::default() });
    let text: Vec<(u32, usize)> = long.iter().map(|token| (*token, 1)).collect();
    compute(&mut used, &text);
    assert_eq!(used.common(1, &[long, &[3]].concat()), long.len(), "a text that goes on");
    assert_eq!(used.common(1, &[&long[..6], &[3]].concat()), 0, "a text that leaves it");
    used.truncate(1, 4);
    let again = compute(&mut used, &[(99, 1), (98, 1)]);
    assert!(again == alone(model, &[&long[..4], &[99, 98]].concat())[4..]);
    used.truncate(1, 0);
    let fresh = compute(&mut used, &other.iter().map(|token| (*token, 1)).collect::<Vec<_>>());
    assert!(fresh == alone(model, other));
    used.warm_up().unwrap_or_else(|error| panic!("{error}"));
    let after = compute(&mut used, &[(7, 1), (7, 0)]);
    assert!(after[0] == alone(model, &[other, &[7]].concat())[other.len()] && after[1] == alone(model, &[7])[0]);
}

/// A state that is written to another slot is not carried: the next token of its sequence goes on from zeros. The same
/// happens if the slot of zeros is read, or that of another sequence.
#[test]
fn a_state_that_is_not_carried_is_found() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    NAMES.iter().for_each(|name| expect_found(&model(name, &scratch)));
}

fn expect_found(model: &Arc<ModelFile>) {
    let cpu = || open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let options =
        || VerifyOptions { prompts: TEXTS.map(<[u32]>::to_vec).to_vec(), steps: 3, ..VerifyOptions::default() };
    let verdict = |device| {
        verify(Arc::clone(model), device, Reference::Oracle, &options(), &mut |_| {})
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let report = verdict(cpu());
    assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
    assert_eq!(report.coverage.checked, report.coverage.nodes);
    let faults = [
        ("kv-slot", "store_ssm-1"),
        ("kv-slot", "store_conv-0"),
        ("kv-negated", "store_ssm-0"),
        ("state-not-carried", "ssm_scan-1"),
        ("state-of-first-sequence", "ssm_scan-0"),
    ];
    for (fault, node) in faults {
        let device = planted(&format!("{fault}@{node}"), model, cpu()).unwrap_or_else(|error| panic!("{error}"));
        let report = verdict(device.device);
        assert_eq!(report.result, Outcome::Fail, "{fault}@{node}: {}", report.sentence);
        assert!(report.sentence.contains(node), "{fault}@{node}: {}", report.sentence);
    }
}
