//! Sessions over a small model: batches, chunks, devices, observers, generation.

mod blocks;
mod cache;
mod cancelling;
mod fusion;
mod kv_device;
mod mapped;
mod relatives;
mod requests;
mod rest;
mod rings;
mod room;
mod shifting;
mod states;

use crate::tiny_model::{self, Kind};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use trueup_blocks::DType;
use trueup_graph::{Node, Op, TensorType};
use trueup_runtime::device::reference::{Reference, evaluate};
use trueup_runtime::device::{About, Decorator, Device, Step};
use trueup_runtime::profile::Profile;
use trueup_runtime::{
    DeviceOptions, Entry, Finish, GenerateOptions, HostTensor, ModelFile, Observer, Result, Sampling, Seen, Session,
    SessionOptions, Weights, generate, open_device,
};

const DTYPES: [DType; 4] = [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0];

/// Prompts of different lengths, one of them longer than a unit of capacity.
fn prompts() -> Vec<Vec<u32>> {
    let ids = |len: u32, step: u32| (0..len).map(|i| i * step % tiny_model::VOCABULARY as u32).collect();
    vec![ids(3, 5), ids(70, 7), ids(1, 1), ids(17, 11)]
}

fn device(name: &str) -> Arc<dyn Device> {
    open_device(name, &DeviceOptions { threads: Some(2), ..DeviceOptions::default() }).unwrap()
}

fn model(dtype: DType, split: bool) -> (TempDir, Arc<ModelFile>) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("tiny.gguf");
    tiny_model::write(&path, dtype, split);
    let model = ModelFile::open(&path).unwrap();
    (folder, Arc::new(model))
}

fn model_of(kind: Kind, context: usize, dtype: DType) -> (TempDir, Arc<ModelFile>) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("tiny.gguf");
    tiny_model::write_kind(&path, kind, context, dtype, false);
    let model = ModelFile::open(&path).unwrap();
    (folder, Arc::new(model))
}

fn session(model: &Arc<ModelFile>, device: Arc<dyn Device>, options: SessionOptions) -> Session {
    Session::new(Arc::new(Weights::new(model.clone(), device, None)), &options).unwrap()
}

fn entries(prompts: &[Vec<u32>]) -> Vec<Entry> {
    let sequence = |(sequence, prompt): (usize, &Vec<u32>)| {
        prompt.iter().map(move |token| Entry { token: *token, sequence, wants_logits: true }).collect::<Vec<_>>()
    };
    prompts.iter().enumerate().flat_map(sequence).collect()
}

/// Logits of all tokens, one after the other, as bits.
fn bits(session: &mut Session, entries: &[Entry]) -> Vec<Vec<u64>> {
    let logits = session.compute(entries, None).unwrap();
    (0..logits.rows()).map(|row| logits.row(row).iter().map(|logit| logit.to_bits()).collect()).collect()
}

/// One batch of all prompts against each prompt alone, token by token as in decoding.
fn expect_batch_equals_alone(model: &Arc<ModelFile>, name: &str, what: &str) {
    let options = SessionOptions { sequences: 4, ..SessionOptions::default() };
    let together = bits(&mut session(model, device(name), options), &entries(&prompts()));
    let mut alone = Vec::new();
    for prompt in prompts() {
        let mut session = session(model, device(name), SessionOptions::default());
        let entry = |token: &u32| Entry { token: *token, sequence: 0, wants_logits: true };
        alone.extend(prompt.iter().flat_map(|token| bits(&mut session, &[entry(token)])));
    }
    assert_eq!(together, alone, "{what}");
    assert!(together.iter().flatten().all(|bits| f64::from_bits(*bits).is_finite()), "{what}");
}

/// `|cpu - oracle|^2 / |oracle|^2` over the logits of a prompt.
fn distance_to_the_oracle(model: &Arc<ModelFile>) -> f64 {
    let of = |name| {
        let options = SessionOptions { kv: Some(DType::F32), ..SessionOptions::default() };
        let logits = session(model, device(name), options).compute(&entries(&prompts()[1..2]), None).unwrap();
        (0..logits.rows()).flat_map(|row| logits.row(row).to_vec()).collect::<Vec<f64>>()
    };
    let (oracle, cpu) = (of("ref"), of("cpu"));
    let power: f64 = oracle.iter().map(|y| y * y).sum();
    let noise: f64 = oracle.iter().zip(&cpu).map(|(y, x)| (x - y) * (x - y)).sum();
    noise / power
}

#[test]
fn a_batch_equals_each_sequence_alone_bit_for_bit() {
    for (name, dtype) in ["ref", "cpu"].into_iter().flat_map(|name| DTYPES.map(|dtype| (name, dtype))) {
        let (_folder, model) = model(dtype, false);
        expect_batch_equals_alone(&model, name, &format!("{name}, {dtype}"));
    }
}

#[test]
fn chunks_of_a_prompt_change_no_bit() {
    let (_folder, model) = model(DType::Q8_0, false);
    for name in ["ref", "cpu"] {
        let of = |prompt_chunk| {
            let options = SessionOptions { sequences: 4, prompt_chunk, ..SessionOptions::default() };
            bits(&mut session(&model, device(name), options), &entries(&prompts()))
        };
        assert_eq!(of(512), of(13), "{name}");
    }
}

#[test]
fn threads_change_no_bit() {
    let (_folder, model) = model(DType::Q4_0, false);
    for name in ["ref", "cpu"] {
        let of = |threads| {
            let device =
                open_device(name, &DeviceOptions { threads: Some(threads), ..DeviceOptions::default() }).unwrap();
            bits(&mut session(&model, device, SessionOptions::default()), &entries(&prompts()[1..2]))
        };
        assert_eq!(of(1), of(3), "{name}");
    }
}

#[test]
fn cpu_is_near_the_oracle() {
    for dtype in DTYPES {
        let (_folder, model) = model(dtype, false);
        let distance = distance_to_the_oracle(&model);
        // Only that it is the same model; the verifier judges node by node. Quantized weights meet activations of 8
        // bits, about 3e-5 a product, and scores of random weights, of standard deviation 5, amplify that in soft_max.
        let most = if dtype.is_quantized() { 1e-2 } else { 1e-9 };
        assert!(distance < most, "{dtype}: {distance:e}");
    }
}

#[test]
fn the_split_scale_layout_computes_the_same() {
    for dtype in [DType::Q4_0, DType::Q8_0] {
        let ((_one, blocks), (_two, split)) = (model(dtype, false), model(dtype, true));
        assert_eq!(blocks.tensors(), split.tensors());
        let of = |model| bits(&mut session(model, device("cpu"), SessionOptions::default()), &entries(&prompts()[..1]));
        assert_eq!(of(&blocks), of(&split), "{dtype}");
    }
}

#[test]
fn a_sequence_that_is_cut_continues_as_if_nothing_had_been() {
    let (_folder, model) = model(DType::F32, false);
    for name in ["ref", "cpu"] {
        let mut session = session(&model, device(name), SessionOptions::default());
        let first = bits(&mut session, &entries(&prompts()[1..2]));
        session.truncate(0, 30);
        assert_eq!(session.len(0), 30);
        let rest: Vec<Entry> = entries(&prompts()[1..2]).split_off(30);
        assert_eq!(bits(&mut session, &rest), first[30..], "{name}");
    }
}

#[test]
fn requests_that_cannot_be_served_say_why() {
    let (_folder, model) = model(DType::F32, false);
    let options = SessionOptions { context: Some(5), ..SessionOptions::default() };
    let mut session = session(&model, device("ref"), options);
    let entry = |token, sequence| Entry { token, sequence, wants_logits: true };
    let cases = [
        (vec![entry(tiny_model::VOCABULARY as u32, 0)], "expected token IDs from 0 to 47, found 48"),
        (vec![entry(0, 1)], "sequence 1 does not exist"),
        (vec![entry(0, 0); 6], "6 tokens exceed the context of 5"),
    ];
    for (entries, part) in cases {
        let error = session.compute(&entries, None).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(session.is_empty(0), "nothing was computed");
    }
    let weights = session.weights().clone();
    for (options, part) in [
        (SessionOptions { context: Some(161), ..options }, "a context of 1 to 160 tokens"),
        (SessionOptions { sequences: 0, ..options }, "at least one sequence"),
        (SessionOptions { kv: Some(DType::Q4_0), ..options }, "multiple of 32, found 16"),
        (SessionOptions { kv: Some(DType::Q8_0), ..options }, "multiple of 32, found 16"),
        (SessionOptions { kv: Some(DType::I32), ..options }, "floating point or q8_0"),
    ] {
        let error = Session::new(weights.clone(), &options).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// Computes every node again from its inputs, by the oracle.
#[derive(Default)]
struct Again {
    seen: usize,
    batches: Vec<usize>,
}

impl Observer for Again {
    fn wants(&self, _: &Node) -> bool {
        true
    }

    fn saw(&mut self, seen: &Seen<'_>) -> Result<()> {
        self.seen += 1;
        self.batches.push(seen.batch);
        let inputs = seen.inputs()?;
        let expected = evaluate(&seen.step.op, &inputs.iter().collect::<Vec<_>>())?;
        let rounded = HostTensor::stored(*expected.ty(), expected.to_bytes().into_owned());
        assert_eq!(seen.output()?, rounded, "{}", seen.node().name);
        Ok(())
    }
}

#[test]
fn an_observer_sees_every_node_whole_and_changes_nothing() {
    let (_folder, model) = model(DType::Q8_0, false);
    for activation in [DType::F64, DType::F32] {
        let options = SessionOptions { activation: Some(activation), ..SessionOptions::default() };
        let oracle: Arc<dyn Device> = Arc::new(Reference::new(2).unwrap());
        let plain = bits(&mut session(&model, oracle.clone(), options), &entries(&prompts()[..1]));
        let mut observed = session(&model, oracle, options);
        let mut observer = Again::default();
        let logits = observed.compute(&entries(&prompts()[..1]), Some(&mut observer)).unwrap();
        let last: Vec<u64> = logits.row(2).iter().map(|logit| logit.to_bits()).collect();
        assert_eq!(last, plain[2], "{activation}");
        let plan = Session::plan(observed.weights(), &options, 3, 3, 3).unwrap();
        assert_eq!(observer.seen, plan.graph().nodes().len());
        assert!(observer.batches.iter().all(|batch| *batch == 0));
    }
}

/// The processor without one operator.
struct Without {
    inner: Arc<dyn Device>,
    op: &'static str,
}

impl Decorator for Without {
    fn device(&self) -> &dyn Device {
        &*self.inner
    }

    fn about(&self) -> About {
        About { name: Decorator::name(self), ..self.inner.about() }
    }

    fn name(&self) -> String {
        format!("no-{}", self.op)
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        if op.name() == self.op { Err(format!("has no {}", self.op)) } else { self.inner.supports(op, inputs, output) }
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        assert!(steps.iter().all(|step| step.op.name() != self.op), "{} was given to a device without it", self.op);
        self.inner.execute(steps)
    }
}

#[test]
fn a_lacking_operator_falls_back_without_changing_a_bit() {
    let (_folder, model) = model(DType::F16, false);
    let options = SessionOptions { sequences: 4, ..SessionOptions::default() };
    let expected = bits(&mut session(&model, device("cpu"), options), &entries(&prompts()));
    // A reshape does no work: it is a view of memory and lies where that lies, so every device takes it.
    let weights = Arc::new(Weights::new(model.clone(), device("cpu"), None));
    let unfused = SessionOptions { fusion: false, ..options };
    let plan = Session::plan(&weights, &unfused, 1, 1, 1).unwrap();
    let used: HashSet<&str> = plan.graph().nodes().iter().map(|node| node.op.name()).collect();
    for op in used.into_iter().filter(|op| *op != "reshape") {
        let partial = Arc::new(Without { inner: device("cpu"), op });
        let weights = Arc::new(Weights::new(model.clone(), partial, Some(device("cpu"))));
        let plan = Session::plan(&weights, &options, 1, 1, 1).unwrap();
        let away = plan.nodes().iter().filter(|node| node.fell_back.is_some()).count();
        assert!(away > 0, "{op} is in the graph");
        let mut session = Session::new(weights, &options).unwrap();
        assert_eq!(bits(&mut session, &entries(&prompts())), expected, "{op}");
    }
}

/// The processor, which forgets to compute one operator.
struct Forgetful(Without);

impl Decorator for Forgetful {
    fn device(&self) -> &dyn Device {
        &self.0
    }

    fn about(&self) -> About {
        self.0.inner.about()
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        self.0.inner.supports(op, inputs, output)
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        let kept: Vec<Step> = steps.iter().filter(|step| step.op.name() != self.0.op).cloned().collect();
        self.device().execute(&kept)
    }
}

/// Which nodes have elements that were not written.
#[derive(Default)]
struct Unwritten(Vec<String>);

impl Observer for Unwritten {
    fn wants(&self, node: &Node) -> bool {
        node.layer == Some(0)
    }

    fn saw(&mut self, seen: &Seen<'_>) -> Result<()> {
        if seen.output()?.to_bytes().iter().all(|byte| *byte == 0xFF) {
            self.0.push(seen.node().name.clone());
        }
        Ok(())
    }
}

#[test]
fn outputs_that_are_not_written_show() {
    let (_folder, model) = model(DType::F32, false);
    let forgetful = Arc::new(Forgetful(Without { inner: device("cpu"), op: "mul_mat_swiglu" }));
    let mut session = session(&model, forgetful, SessionOptions::default());
    let mut observer = Unwritten::default();
    session.compute(&entries(&prompts()[..1]), Some(&mut observer)).unwrap();
    // What follows carries the NaN on.
    assert_eq!(observer.0.first().map(String::as_str), Some("ffn_swiglu-0"), "{:?}", observer.0);
}

fn texts(session: &mut Session, prompts: &[Vec<u32>], options: &GenerateOptions) -> Vec<Vec<u32>> {
    let generated = generate(session, prompts, options, &mut |_, _| ControlFlow::Continue(())).unwrap();
    generated.into_iter().map(|generated| generated.ids).collect()
}

#[test]
fn what_a_prompt_gives_does_not_depend_on_the_others() {
    let (_folder, model) = model(DType::Q8_0, false);
    let sampling = Sampling { seed: 3, ..Sampling::default() };
    let options = GenerateOptions { tokens_max: Some(9), sampling, ..GenerateOptions::default() };
    let with = |sequences| session(&model, device("cpu"), SessionOptions { sequences, ..SessionOptions::default() });
    let alone: Vec<Vec<u32>> =
        prompts().iter().map(|prompt| texts(&mut with(1), std::slice::from_ref(prompt), &options).remove(0)).collect();
    for sequences in [1, 2, 4] {
        assert_eq!(texts(&mut with(sequences), &prompts(), &options), alone, "{sequences} at once");
    }
}

#[test]
fn a_known_beginning_is_not_computed_again() {
    let (_folder, model) = model(DType::F32, false);
    let options =
        GenerateOptions { tokens_max: Some(4), sampling: Sampling::GREEDY, reuse: true, ..Default::default() };
    let mut session = session(&model, device("cpu"), SessionOptions { prompt_chunk: 10, ..Default::default() });
    let mut prompt = prompts()[1].clone();
    let first = texts(&mut session, &[prompt.clone()], &options);
    let batches = session.batches();
    assert_eq!(texts(&mut session, &[prompt.clone()], &options), first);
    assert_eq!(session.batches() - batches, 4, "one batch for each token");
    prompt[20] ^= 1;
    let again = texts(&mut session, &[prompt.clone()], &options);
    let fresh = GenerateOptions { reuse: false, ..options };
    assert_eq!(texts(&mut session, &[prompt], &fresh), again);
}

#[test]
fn generation_ends_where_it_should() {
    let (_folder, model) = model(DType::F32, false);
    let mut session = session(&model, device("cpu"), SessionOptions { context: Some(20), ..Default::default() });
    let prompt = vec![prompts()[0].clone()];
    let greedy = GenerateOptions { sampling: Sampling::GREEDY, ..GenerateOptions::default() };
    let mut run = |options: GenerateOptions, stop_behind: usize| {
        let mut count = 0;
        let mut on_token = |_, _| {
            count += 1;
            if count == stop_behind { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        generate(&mut session, &prompt, &options, &mut on_token).unwrap().remove(0)
    };
    let full = run(greedy.clone(), 0);
    assert_eq!(
        (full.finish, full.ids.len()),
        (Finish::ContextFull, 18),
        "20 tokens are computed, and one more is chosen"
    );
    let stopped = run(greedy.clone(), 2);
    assert_eq!((stopped.finish, stopped.ids.len()), (Finish::Stopped, 2));
    let kept = run(GenerateOptions { tokens_max: Some(5), keep_logits: true, ..greedy.clone() }, 0);
    assert_eq!((kept.finish, &kept.ids[..]), (Finish::Length, &full.ids[..5]));
    let logits = kept.logits.unwrap();
    assert_eq!((logits.prompt.len(), logits.generated.len()), (3 * tiny_model::VOCABULARY, 5 * tiny_model::VOCABULARY));
    assert_eq!(logits.prompt[2 * tiny_model::VOCABULARY..], logits.generated[..tiny_model::VOCABULARY]);
    let none = run(GenerateOptions { tokens_max: Some(0), keep_logits: true, ..greedy }, 0);
    assert_eq!((none.ids.len(), none.logits.unwrap().prompt), (0, logits.prompt));
}

#[test]
fn empty_and_long_prompts_are_refused() {
    let (_folder, model) = model(DType::F32, false);
    let mut session = session(&model, device("cpu"), SessionOptions { context: Some(20), ..Default::default() });
    for (prompt, part) in
        [(vec![], "the prompt has no tokens"), (vec![1; 21], "21 tokens, more than the context of 20")]
    {
        let options = GenerateOptions::default();
        let error = generate(&mut session, &[prompt], &options, &mut |_, _| ControlFlow::Continue(())).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}
