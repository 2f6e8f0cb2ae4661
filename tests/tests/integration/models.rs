//! Every architecture, as transformers wrote and computed it: converted from each storage type, from one shard and from
//! several, logits of the oracle equal and greedy text the same.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use trueup::blocks::DType;
use trueup::convert::{Agreement, Options, Slim, TensorCheck};
use trueup::formats::gguf::{GgufPlan, GgufWriter, Metadata, Split};
use trueup::formats::{Checkpoint, Gguf, OpenOptions, TensorInfo, open};
use trueup::models::{Architecture, ModelSpec};
use trueup::quantize::NoProgress;
use trueup::runtime::{
    DeviceOptions, GenerateOptions, ModelFile, Sampling, Session, SessionOptions, Weights, generate, open_device,
};
use trueup_tests::{
    Fixture, NewTensor, Prompt, Said, Storage, convert, fixture, fixtures, nmse, say, say_exact, write_renamed,
    write_variant,
};

/// What the oracle's logits may differ from those that transformers computed in f64 and stored as f32.
const NMSE_MAX: f64 = 1e-9;

/// What the logits of `cpu` may differ from them.
const NMSE_MAX_CPU: f64 = 1e-7;

/// Whether a tensor is written exactly. A computed table that is omitted may be rounded in the checkpoint.
fn is_right(check: &TensorCheck) -> bool {
    match check.agreement {
        Agreement::Exact => true,
        Agreement::Rounded { .. } => check.omitted,
        Agreement::Wrong { .. } => false,
    }
}

fn prompt_ids(prompts: &[Prompt]) -> Vec<Vec<u32>> {
    prompts.iter().map(|prompt| prompt.ids.clone()).collect()
}

/// Logits and greedy text of `model` on `device` compared with the golden. Without `nmse_max`, the logits are not
/// compared.
fn compare(fixture: &Fixture, model: &std::path::Path, device: &str, nmse_max: Option<f64>, faults: &mut Vec<String>) {
    let prompts = fixture.prompts();
    let said = say(model, device, &prompt_ids(&prompts), 16, true);
    if let Some(most) = nmse_max {
        compare_logits(fixture, device, &said, most, faults);
    }
    for (number, (said, prompt)) in said.iter().zip(&prompts).enumerate() {
        if said.ids != prompt.greedy_ids {
            faults.push(format!(
                "{} on {device}, prompt {number}: {:?} not {:?}",
                fixture.name, said.ids, prompt.greedy_ids
            ));
        }
    }
}

fn compare_logits(fixture: &Fixture, device: &str, said: &[Said], most: f64, faults: &mut Vec<String>) {
    for (number, said) in said.iter().enumerate() {
        let golden = fixture.logits(&format!("logits_{number}"));
        assert_eq!(said.prompt_logits.dim(), golden.dim(), "{}: shape of the logits", fixture.name);
        let got: Vec<f64> = said.prompt_logits.iter().copied().collect();
        let nmse = nmse(&got, &golden.iter().copied().collect::<Vec<f64>>());
        if nmse.is_nan() || nmse >= most {
            faults.push(format!("{} on {device}, prompt {number}: NMSE {nmse:e}", fixture.name));
        }
    }
}

/// Greedy text on `cpu` with its usual KV cache, and logits with a KV cache in f32.
fn compare_on_cpu(fixture: &Fixture, model: &std::path::Path, faults: &mut Vec<String>) {
    compare(fixture, model, "cpu", None, faults);
    let said = say_exact(model, "cpu", &prompt_ids(&fixture.prompts()));
    compare_logits(fixture, "cpu", &said, NMSE_MAX_CPU, faults);
}

#[test]
fn logits_and_greedy_text_are_those_of_transformers() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut faults = Vec::new();
    for fixture in fixtures() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        let checks = convert(&fixture.folder, &model, None, None);
        let inexact = checks.iter().filter(|check| !is_right(check));
        faults.extend(inexact.map(|check| format!("{}: {check:?}", fixture.name)));
        compare(&fixture, &model, "ref", Some(NMSE_MAX), &mut faults);
        compare_on_cpu(&fixture, &model, &mut faults);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_storage_and_number_of_shards_gives_the_same_tensors() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for fixture in fixtures() {
        let of = |storage: Storage, shards: usize| {
            let folder = scratch.path().join(format!("{}-{storage:?}-{shards}", fixture.name));
            write_variant(&fixture.folder, &folder, storage, shards);
            let model = folder.with_extension("gguf");
            let checks = convert(&folder, &model, Some(DType::F32), None);
            assert!(checks.iter().all(is_right), "{}: {checks:?}", fixture.name);
            tensors(&model)
        };
        let one = of(Storage::F32, 1);
        for (storage, shards) in [(Storage::F32, 3), (Storage::F16, 1), (Storage::F16, 2), (Storage::Bf16, 4)] {
            let other = of(storage, shards);
            assert!(one == other, "{}: {storage:?} in {shards} shards gives other tensors", fixture.name);
        }
    }
}

/// Checkpoints that were saved from the inner model lack the prefix of the whole class, and old ones store the causal
/// mask and the score of the positions that it hides.
#[test]
fn checkpoints_of_the_inner_model_give_the_same_tensors() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for fixture in fixtures().into_iter().filter(|fixture| ["gpt2", "bloom"].contains(&fixture.name.as_str())) {
        let [whole, bare] = ["whole", "bare"].map(|name| scratch.path().join(format!("{}-{name}.gguf", fixture.name)));
        convert(&fixture.folder, &whole, None, None);
        let folder = bare.with_extension("");
        let rename = |name: &str| name.strip_prefix("transformer.").unwrap_or(name).to_owned();
        let masks = if fixture.name == "gpt2" { masks(256) } else { Vec::new() };
        write_renamed(&fixture.folder, &folder, rename, &masks);
        let checks = convert(&folder, &bare, None, None);
        assert!(tensors(&whole) == tensors(&bare), "{}: other tensors", fixture.name);
        let wrong: Vec<&str> = checks.iter().filter(|check| !is_right(check)).filter_map(source_of).collect();
        let expected: &[&str] = if masks.is_empty() { &[] } else { &["h.1.attn.masked_bias"] };
        assert_eq!(wrong, expected, "{}", fixture.name);
    }
}

fn source_of(check: &TensorCheck) -> Option<&str> {
    check.source.as_deref()
}

/// The causal mask and the hidden score of two layers, as GPT-2 stores them; the last score hides nothing.
fn masks(size: usize) -> Vec<NewTensor> {
    let mask: Vec<u8> = (0..size * size).map(|place| u8::from(place % size <= place / size)).collect();
    let float = |value: &u8| f32::from(*value).to_le_bytes();
    let floats: Vec<u8> = mask.iter().flat_map(float).collect();
    vec![
        ("h.0.attn.bias".to_owned(), Dtype::F32, vec![1, 1, size, size], floats),
        ("h.0.attn.masked_bias".to_owned(), Dtype::F32, vec![], (-1e4f32).to_le_bytes().to_vec()),
        ("h.1.attn.bias".to_owned(), Dtype::BOOL, vec![1, 1, size, size], mask),
        ("h.1.attn.masked_bias".to_owned(), Dtype::F32, vec![], 0f32.to_le_bytes().to_vec()),
    ]
}

/// Name, type, shape and bytes of every tensor, by name.
fn tensors(model: &std::path::Path) -> Vec<(String, DType, Vec<u64>, Vec<u8>)> {
    let file = Gguf::open(model).expect("it was just written");
    let read = |place: usize| {
        let info = &file.tensors()[place];
        let mut bytes = vec![0; info.bytes as usize];
        file.read(place, 0, &mut bytes).expect("tensors can be read");
        (info.name.clone(), info.dtype, info.shape.clone(), bytes)
    };
    let mut tensors: Vec<_> = (0..file.tensors().len()).map(read).collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    tensors
}

#[test]
fn all_storages_compute_the_same_text() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut faults = Vec::new();
    for fixture in fixtures() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            // Conversion divides the rows of the first one's head by their lengths, multiplies the second one's queries
            // and scales the third one's ternary matrices. The results are not on the grid of f16 and bf16.
            let most = match (dtype, fixture.name.as_str()) {
                (DType::Bf16, "baichuan2-13b") => 1e-5,
                (DType::F16, "baichuan2-13b") => 1e-7,
                (DType::Bf16, "gemma2") => 2e-5,
                (DType::F16, "gemma2") => 2e-7,
                (DType::Bf16, "bitnet") => 2e-5,
                (DType::F16, "bitnet") => 2e-6,
                _ => NMSE_MAX,
            };
            let model = scratch.path().join(format!("{}-{dtype}.gguf", fixture.name));
            convert(&fixture.folder, &model, Some(dtype), None);
            compare(&fixture, &model, "ref", Some(most), &mut faults);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_model_in_a_file_for_each_layer_is_the_same_model() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = trueup_tests::plain_fixture();
    let (whole, parts) = (scratch.path().join("whole.gguf"), scratch.path().join("parts.gguf"));
    convert(&fixture.folder, &whole, None, None);
    let source = open(&fixture.folder, &OpenOptions::default()).expect("a fixture");
    let options = Options { split: Split::Layers, ..Options::default() };
    let report = trueup::convert::convert(source.as_ref(), &parts, &options, &NoProgress).expect("it is converted");
    let names = report.files.iter().map(|path| path.file_name().expect("a name").display().to_string());
    let expected = (1..=4).map(|number| format!("parts-{number:05}-of-00004.gguf"));
    assert_eq!(names.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "the embedding, two layers, the head");
    // As other programs count: tensors of one file.
    let tensors_of = |part: usize| Gguf::open(&report.files[part]).map(|file| file.tensors().len());
    assert!(tensors_of(0).is_ok_and(|all| all == source.tensors().len()), "the first file leads to the others");
    assert!(
        tensors_of(2).is_err_and(|error| error.to_string().contains("00001-of-00004")),
        "a later one names the first"
    );
    let prompts = prompt_ids(&fixture.prompts());
    let (one, several) = (say(&whole, "cpu", &prompts, 8, true), say(&report.files[0], "cpu", &prompts, 8, true));
    for (one, several) in one.iter().zip(&several) {
        assert_eq!(one.prompt_logits, several.prompt_logits);
        assert_eq!(one.ids, several.ids);
    }
    std::fs::remove_file(&report.files[1]).expect("a layer's file");
    let error = Gguf::open(&report.files[0]).expect_err("a layer is missing").to_string();
    assert!(error.contains("parts-00002-of-00004.gguf"), "{error}");
}

/// A copy of a model of DeepSeek in the form of older files: keys and values of all heads from one matrix.
fn write_with_whole_projection(split: &std::path::Path, whole: &std::path::Path) {
    let source = Gguf::open(split).expect("it was just written");
    let key = |name: &str| format!("deepseek2.attention.{name}");
    let mut metadata = source.metadata().clone();
    let heads = metadata.u64(&key("head_count")).expect("a count");
    for (name, source) in [("key_length", "key_length_mla"), ("value_length", "value_length_mla")] {
        let length = metadata.u64(&key(source)).expect("a length");
        metadata.insert(key(name), u32::try_from(length).expect("a length"));
        metadata.remove(&key(source));
    }
    metadata.insert(key("head_count_kv"), u32::try_from(heads).expect("a count"));
    let numbers = |name: &str, shape: &mut Vec<u64>| -> Vec<f32> {
        let place = source.tensors().iter().position(|tensor| tensor.name == name).expect("the tensor");
        let mut bytes = vec![0; source.tensors()[place].bytes as usize];
        source.read(place, 0, &mut bytes).expect("tensors can be read");
        shape.clone_from(&source.tensors()[place].shape);
        bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    let mut tensors: Vec<(TensorInfo, Vec<u8>)> = Vec::new();
    for tensor in source.tensors().iter().filter(|tensor| !tensor.name.contains("attn_v_b")) {
        let (mut shape, mut values_shape) = (Vec::new(), Vec::new());
        let mut all = numbers(&tensor.name, &mut shape);
        let mut name = tensor.name.clone();
        if name.contains("attn_k_b") {
            let values = numbers(&name.replace("attn_k_b", "attn_v_b"), &mut values_shape);
            let [plain, rank, heads] = [0, 1, 2].map(|dimension| shape[dimension] as usize);
            let value = values_shape[1] as usize;
            let keys = |head: usize, row: usize, column: usize| all[(head * rank + column) * plain + row];
            let mut both = Vec::new();
            for head in 0..heads {
                both.extend((0..plain * rank).map(|place| keys(head, place / rank, place % rank)));
                both.extend_from_slice(&values[head * rank * value..(head + 1) * rank * value]);
            }
            (all, shape) = (both, vec![rank as u64, (heads * (plain + value)) as u64]);
            name = name.replace("attn_k_b", "attn_kv_b");
        }
        let bytes: Vec<u8> = all.iter().flat_map(|number| number.to_le_bytes()).collect();
        tensors.push((TensorInfo { name, shape, dtype: DType::F32, bytes: bytes.len() as u64 }, bytes));
    }
    let infos: Vec<TensorInfo> = tensors.iter().map(|(info, _)| info.clone()).collect();
    let plan = GgufPlan::new(whole, &metadata, &infos, None).expect("a plan");
    let writer = GgufWriter::create(plan, &[]).expect("a writer");
    for (number, (_, bytes)) in tensors.iter().enumerate() {
        writer.write(number, 0, bytes).expect("tensors can be written");
    }
    writer.finish().expect("a file");
}

#[test]
fn keys_and_values_of_all_heads_from_one_matrix_compute_the_same() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut faults = Vec::new();
    for name in ["deepseek2", "deepseek3"] {
        let fixture = fixture(name);
        let [split, whole] = ["split", "whole"].map(|form| scratch.path().join(format!("{name}-{form}.gguf")));
        convert(&fixture.folder, &split, Some(DType::F32), None);
        write_with_whole_projection(&split, &whole);
        compare(&fixture, &whole, "ref", Some(NMSE_MAX), &mut faults);
        compare_on_cpu(&fixture, &whole, &mut faults);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Split latent attention caches one row per token and layer, the shared key: its first elements are the value.
#[test]
fn latent_attention_caches_the_shared_key_alone() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for name in ["deepseek2", "deepseek3"] {
        let path = scratch.path().join(format!("{name}.gguf"));
        convert(&fixture(name).folder, &path, Some(DType::F32), None);
        let metadata = Gguf::open(&path).expect("it was just written").metadata().clone();
        let number = |key: &str| {
            usize::try_from(metadata.u64(&format!("deepseek2.{key}")).expect("a number")).expect("a small number")
        };
        let row = number("attention.kv_lora_rank") + number("rope.dimension_count");
        let model = Arc::new(ModelFile::open(&path).unwrap_or_else(|error| panic!("{error}")));
        let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let weights = Weights::new(model, device, None);
        let options = SessionOptions { context: Some(256), ..SessionOptions::default() };
        let plan = Session::plan(&weights, &options, 1, 1, 256).unwrap_or_else(|error| panic!("{error}"));
        let states = plan.graph().values().iter().filter(|value| value.origin.is_state());
        assert!(states.clone().all(|state| state.name.starts_with("kv_k-") && state.ty.shape[0] == row), "{name}");
        assert_eq!(states.count(), number("block_count"), "{name}");
        assert_eq!(plan.report().devices[0].kv_bytes, number("block_count") * row * 256 * 2, "{name}: f16");
    }
}

/// Slims a fixture, and compares what is kept with the whole: tokens by their ids in it, logits behind texts that have
/// no others bit for bit, the text that follows. How many tokens are kept, and whether the text that follows in the
/// whole has none but these.
fn slimmed_as_whole(name: &str, slim: &Slim, text: &str, faults: &mut Vec<String>) -> (usize, bool) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (whole, small) = (scratch.path().join("whole.gguf"), scratch.path().join("small.gguf"));
    let folder = trueup_tests::root().join("fixtures/models").join(name);
    convert(&folder, &whole, None, None);
    let source = open(&folder, &OpenOptions::default()).expect("a fixture");
    let options = Options { slim: Some(slim.clone()), ..Options::default() };
    trueup::convert::convert(source.as_ref(), &small, &options, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
    let written = Gguf::open(&small).expect("it was just written");
    let checks = trueup::convert::check(source.as_ref(), &written, None).unwrap_or_else(|error| panic!("{error}"));
    faults.extend(checks.iter().filter(|check| !is_right(check)).map(|check| format!("{name}: {check:?}")));
    let old: Vec<u32> =
        written.metadata().i32s("trueup.vocabulary.source_ids").expect("ids").iter().map(|id| *id as u32).collect();
    let tokenizer =
        |path: &std::path::Path| trueup::text::open_tokenizer(path, None).unwrap_or_else(|error| panic!("{error}"));
    let (all, few) = (tokenizer(&whole), tokenizer(&small));
    let (ids, new) = (all.encode(text, true).expect("ids"), few.encode(text, true).expect("ids"));
    if new.iter().map(|id| old[*id as usize]).ne(ids.iter().copied()) {
        faults.push(format!("{name}, {slim:?}: other ids of {text:?}"));
        return (old.len(), false);
    }
    let (full, slimmed) = (say(&whole, "cpu", &[ids], 8, true), say(&small, "cpu", &[new], 8, true));
    let same = |row: usize| {
        old.iter().enumerate().all(|(new, old)| {
            slimmed[0].prompt_logits[[row, new]].to_bits() == full[0].prompt_logits[[row, *old as usize]].to_bits()
        })
    };
    faults.extend(
        (0..full[0].prompt_logits.nrows())
            .filter(|row| !same(*row))
            .map(|row| format!("{name}: logits of token {row}")),
    );
    let is_kept = full[0].ids.iter().all(|id| old.contains(id));
    if is_kept && slimmed[0].ids.iter().map(|id| old[*id as usize]).ne(full[0].ids.iter().copied()) {
        faults.push(format!("{name}, {slim:?}: other text behind {text:?}"));
    }
    (old.len(), is_kept)
}

/// The ids that a text needs in a fixture, and those that follow it.
fn ids_of_a_text_and_its_answer(fixture: &Fixture, text: &str) -> BTreeSet<u32> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let whole = scratch.path().join("whole.gguf");
    convert(&fixture.folder, &whole, None, None);
    let tokenizer = trueup::text::open_tokenizer(&whole, None).unwrap_or_else(|error| panic!("{error}"));
    let ids = tokenizer.encode(text, true).expect("ids");
    let answer = say(&whole, "cpu", &[ids], 8, true).remove(0).ids;
    tokenizer.tokens_of(text).expect("ids").into_iter().chain(answer).collect()
}

#[test]
fn slimmed_models_have_the_logits_and_the_text_of_whole_ones() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (corpus, list) = (scratch.path().join("corpus.txt"), scratch.path().join("ids.txt"));
    let text = "The old bridge wasn't far, and Hana carried 3 lanterns.\n\tTwo  spaces, 你好, naïve.";
    std::fs::write(&corpus, format!("{text}\nmore of it\n")).expect("a corpus");
    let mut faults = Vec::new();
    for fixture in fixtures() {
        let (tokens, _) = slimmed_as_whole(&fixture.name, &Slim::Corpus(corpus.clone()), text, &mut faults);
        let all = open(&fixture.folder, &OpenOptions::default()).expect("a fixture");
        let all = all.tensors().iter().map(|tensor| *tensor.shape.last().expect("a size")).max().expect("tensors");
        assert!((tokens as u64) < all, "{}: {tokens} of {all} tokens", fixture.name);
        // With the tokens of the answer too, the answer is the same.
        let ids = ids_of_a_text_and_its_answer(&fixture, text);
        std::fs::write(&list, ids.iter().map(|id| format!("{id}\n")).collect::<String>()).expect("a list");
        let (_, is_kept) = slimmed_as_whole(&fixture.name, &Slim::Ids(list.clone()), text, &mut faults);
        assert!(is_kept, "{}: the answer has tokens that the list has", fixture.name);
    }
    // All but the images of ChatGLM-6B, which stand before its pieces; rows of the head that are divided by their
    // lengths; a list.
    slimmed_as_whole("chatglm1", &Slim::Drop(0..=7), text, &mut faults);
    slimmed_as_whole("baichuan2-13b", &Slim::Drop(300..=340), "a b", &mut faults);
    std::fs::write(&list, "0-330 # the commonest\n 340\n").expect("a list");
    slimmed_as_whole("llama-linear", &Slim::Ids(list), "the", &mut faults);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Prompts of ChatGLM-6B see themselves: small pieces of them are computed at once all the same, beside another that
/// decodes too.
#[test]
fn prompts_that_see_themselves_are_not_cut() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == "chatglm1").expect("the fixture");
    let path = scratch.path().join("model.gguf");
    convert(&fixture.folder, &path, None, None);
    let model = Arc::new(ModelFile::open(&path).expect("it was just written"));
    let device = open_device("cpu", &DeviceOptions::default()).expect("the processor");
    let weights = Arc::new(Weights::new(model, device, None));
    let texts = |prompt_chunk: usize, sequences: usize| {
        let options = SessionOptions { prompt_chunk, sequences, ..SessionOptions::default() };
        let mut session = Session::new(Arc::clone(&weights), &options).expect("a session");
        let prompts = prompt_ids(&fixture.prompts());
        let options = GenerateOptions {
            tokens_max: Some(16),
            ignore_eos: true,
            sampling: Sampling::GREEDY,
            ..GenerateOptions::default()
        };
        let texts = generate(&mut session, &prompts, &options, &mut |_, _| ControlFlow::Continue(())).expect("texts");
        texts.into_iter().map(|text| text.ids).collect::<Vec<_>>()
    };
    let golden: Vec<Vec<u32>> = fixture.prompts().into_iter().map(|prompt| prompt.greedy_ids).collect();
    for (prompt_chunk, sequences) in [(512, 1), (4, 1), (4, 2)] {
        assert_eq!(texts(prompt_chunk, sequences), golden, "{prompt_chunk} at once, {sequences} sequences");
    }
}

/// The keys and tensors of the fixture with these changes to its description. No tensor has bytes.
fn described(name: &str, changes: Value) -> (Metadata, Vec<TensorInfo>) {
    let config = std::fs::read(fixture(name).folder.join("config.json")).expect("a description");
    let mut config: serde_json::Map<String, Value> = serde_json::from_slice(&config).expect("valid JSON");
    config.extend(changes.as_object().cloned().expect("an object"));
    let path = std::path::Path::new("model");
    let spec = Architecture::of_config(&config, path)
        .and_then(|architecture| ModelSpec::from_config(architecture, &config, 1 << 20, path))
        .unwrap_or_else(|error| panic!("{error}"));
    let mut metadata = Metadata::default();
    spec.write_metadata(&mut metadata);
    let tensor = |name: String, shape: &[u64]| TensorInfo::new(name, shape, DType::F32).expect("a small tensor");
    (metadata, spec.tensors().into_iter().map(|expected| tensor(expected.name, &expected.shape)).collect())
}

/// Processor seconds that work takes in this thread.
fn seconds<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let start = now();
    let result = work();
    (result, now() - start)
}

/// Seconds to check a file of these keys and tensors, and to plan the decoding of a token.
fn seconds_to_plan((metadata, tensors): (Metadata, Vec<TensorInfo>)) -> f64 {
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let plan = || {
        let model = ModelFile::made("model", metadata, tensors, Box::new(|_| Vec::new()))?;
        let weights = Weights::new(Arc::new(model), device, None);
        Session::plan(&weights, &SessionOptions::default(), 1, 1, 1).map(|plan| plan.report().to_string().len())
    };
    let (planned, seconds) = seconds(plan);
    assert!(planned.unwrap_or_else(|error| panic!("{error}")) > 0);
    seconds
}

#[test]
fn many_layers_and_experts_are_planned_at_once() {
    let experts = json!({ "num_hidden_layers": 61, "first_k_dense_replace": 3, "n_routed_experts": 256,
        "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4 });
    let seconds = seconds_to_plan(described("deepseek3", experts));
    assert!(seconds < 0.3, "61 layers of 256 experts took {seconds} s");
}

/// Eight times as many layers, or problems, take about eight times as long, not 64 times.
#[test]
fn time_grows_with_the_layers_and_not_with_their_square() {
    let deep = |layers: usize| described("llama-linear", json!({ "num_hidden_layers": layers }));
    let plan = |layers: usize| seconds_to_plan(deep(layers));
    let refuse = |layers: usize| {
        let (metadata, mut tensors) = deep(layers);
        tensors.iter_mut().for_each(|tensor| tensor.shape.push(3));
        let (refused, seconds) = seconds(|| ModelFile::made("model", metadata, tensors, Box::new(|_| Vec::new())));
        assert!(refused.is_err_and(|error| error.to_string().contains("expected shape")));
        seconds
    };
    for (what, few, many) in [("plan", plan(400), plan(3200)), ("refuse", refuse(400), refuse(3200))] {
        assert!(many < 24.0 * few + 0.1, "{what}: 400 layers took {few} s, 3200 layers {many} s");
    }
}
