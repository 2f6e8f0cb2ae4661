//! `.flm` files that FastLLM's own programs wrote: converted, they compute what their weights mean and cut text as it
//! was cut before.

use safetensors::SafeTensors;
use std::fs;
use std::path::{Path, PathBuf};
use trueup::convert::{Agreement, DiffOptions, Difference, FlmOptions, Kind, diff, to_flm};
use trueup::formats::flm::{FlmTensor, FlmType, FlmVocabulary, FlmWriter};
use trueup::formats::{Checkpoint, Flm, Gguf};
use trueup::quantize::NoProgress;
use trueup::tokenizer::{ChatTemplate, Message, Tokenizer, Vocabulary};
use trueup_tests::{Fixture, convert, flm, nmse, root, say};

/// The goldens were computed in f32, so this is the noise of their computation, not of ours.
const F32_NOISE: f64 = 1e-9;
const NAMES: [&str; 3] = ["llama_int8", "llama_quantool_4", "qwen2_fasttok_float16"];

fn converted(fixture: &Fixture, scratch: &tempfile::TempDir) -> PathBuf {
    let model = scratch.path().join(format!("{}.gguf", fixture.name));
    let checks = convert(&fixture.folder.join("model.flm"), &model, None, None);
    assert!(checks.iter().all(|check| check.agreement == Agreement::Exact), "{}: {checks:?}", fixture.name);
    model
}

fn ids(value: &serde_json::Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("ids")
}

#[test]
fn logits_are_those_of_the_weights_that_the_loader_reads() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for name in NAMES {
        let fixture = flm(name);
        let model = converted(&fixture, &scratch);
        let prompts: Vec<Vec<u32>> =
            fixture.golden["prompts"].as_array().expect("prompts").iter().map(|prompt| ids(&prompt["ids"])).collect();
        for (number, said) in say(&model, "ref", &prompts, 1, true).iter().enumerate() {
            let golden = fixture.logits(&format!("logits_{number}"));
            let (got, wanted): (Vec<f64>, Vec<f64>) =
                (said.prompt_logits.iter().copied().collect(), golden.iter().copied().collect());
            let nmse = nmse(&got, &wanted);
            assert!(nmse < F32_NOISE, "{name}, prompt {number}: NMSE {nmse:e}");
        }
    }
}

#[test]
fn texts_become_the_ids_that_they_were() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for name in NAMES {
        let fixture = flm(name);
        let model = converted(&fixture, &scratch);
        let file = Gguf::open(&model).expect("it was just written");
        let vocabulary = Vocabulary::from_metadata(file.metadata(), &model).expect("a vocabulary");
        let tokenizer = Tokenizer::new(vocabulary).expect("a tokenizer");
        let texts = fixture.golden["texts"].as_array().expect("texts");
        assert!(texts.len() > 10, "{name}");
        for text in texts {
            let found = tokenizer.encode(text["text"].as_str().expect("a text"), false).expect("ids");
            assert_eq!(found, ids(&text["ids_no_special"]), "{name}: {text}");
        }
    }
}

/// FastLLM joins queries, keys and values, and gate and up, before it writes 4-bit files; a GGUF file has them apart.
#[test]
fn joined_tensors_are_split() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let [joined, apart] = ["llama_quantool_4", "llama_int8"].map(|name| {
        let file = Gguf::open(converted(&flm(name), &scratch)).expect("it was just written");
        file.tensors().iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect::<Vec<_>>()
    });
    assert_eq!(joined, apart);
    let source = Flm::open(flm("llama_quantool_4").folder.join("model.flm"), None).expect("a model");
    assert!(source.find("model.layers.1.self_attn.mergeqkv.weight").is_some());
}

/// By the rule of FastLLM's prompts: what goes before, the user's mark, the words, the mark of the answer; between
/// rounds what parts them.
#[test]
fn prompts_of_the_file_are_a_template() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let said = |role: &str, content: &str| Message { role: role.to_owned(), content: content.to_owned() };
    let rounds = [said("user", "Hi 'you'\\"), said("assistant", "Ho."), said("user", "More?")];
    for (name, expected) in [
        ("llama_int8", "[INST] Hi 'you'\\ [/INST]Ho.[INST] More? [/INST]"),
        (
            "qwen2_fasttok_float16",
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|><|im_start|>user\nHi 'you'\\<|im_end|><|im_start|>assistant\nHo.\
             <|im_end|>\n<|im_start|>user\nMore?<|im_end|><|im_start|>assistant\n",
        ),
    ] {
        let model = converted(&flm(name), &scratch);
        let file = Gguf::open(&model).expect("it was just written");
        let vocabulary = Vocabulary::from_metadata(file.metadata(), &model).expect("a vocabulary");
        let template = ChatTemplate::of(&vocabulary).expect("valid Jinja").expect("a template");
        assert_eq!(template.render(&rounds, true).expect("a text"), expected, "{name}");
    }
}

/// The codes, and the ranges before them, are the bytes that FastLLM's own program made of the same matrix.
#[test]
fn four_bits_are_those_of_the_quantizing_program() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let name = "model.layers.1.self_attn.o_proj.weight";
    let file = fs::read(root().join("fixtures/flm/quantool_source.safetensors")).expect("a fixture");
    let source = SafeTensors::deserialize(&file).expect("a safetensors file");
    let matrix = source.tensor(name).expect("the matrix");
    let mut values: Vec<f32> = matrix.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let tensor = FlmTensor { name: name.to_owned(), shape: vec![64, 64], dtype: FlmType::Int4 };
    let numbers = tensor.bytes().expect("a size") as usize;
    let target = scratch.path().join("one.flm");
    let vocabulary = FlmVocabulary { tokens: Vec::new(), special: Vec::new(), table: Vec::new() };
    let writer = FlmWriter::create(&target, &vocabulary, &[tensor], &[]).expect("a file");
    // The second half first: rows may come in any order.
    let (first, second) = values.split_at_mut(32 * 64);
    writer.write_rows(0, 32, second).expect("rows");
    writer.write_rows(0, 0, first).expect("rows");
    writer.finish().expect("a file");
    let ours = fs::read(&target).expect("it was just written");
    let ours = &ours[ours.len() - numbers..];
    let theirs = fs::read(flm("llama_quantool_4").folder.join("model.flm")).expect("a fixture");
    assert!(theirs.windows(numbers).any(|window| window == ours));
    // And what is read for them is what FastLLM's rule gives, as the golden logits show.
    let read = Flm::open(flm("llama_quantool_4").folder.join("model.flm"), None).expect("a model");
    assert_eq!(values, numbers_of(&read, name));
}

/// All numbers of a tensor, as f32.
fn numbers_of(model: &dyn Checkpoint, name: &str) -> Vec<f32> {
    let number = model.find(name).unwrap_or_else(|| panic!("{name} is there"));
    let info = &model.tensors()[number];
    let mut bytes = vec![0; info.bytes as usize];
    model.read(number, 0, &mut bytes).expect("numbers");
    let exact = trueup::quantize::decode_exact(info.dtype, &bytes);
    exact.into_iter().map(|value| value as f32).collect()
}

fn written(source: &dyn Checkpoint, target: &Path, bits: Option<u32>) -> Flm {
    to_flm(source, target, &FlmOptions { bits, ..FlmOptions::default() }, &NoProgress)
        .unwrap_or_else(|error| panic!("{error}"));
    Flm::open(target, None).unwrap_or_else(|error| panic!("{error}"))
}

/// `.flm` to GGUF and back: rows of heads are sorted and restored, and every number is what it was.
#[test]
fn the_way_to_gguf_and_back_keeps_every_number() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for name in NAMES {
        let fixture = flm(name);
        let source = Flm::open(fixture.folder.join("model.flm"), None).expect("a model");
        let gguf = Gguf::open(converted(&fixture, &scratch)).expect("it was just written");
        let back = written(&gguf, &scratch.path().join("back.flm"), None);
        let found = diff(&source, &back, DiffOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let is_weight = |line: &&Difference| line.kind == Kind::Tensor && line.name != "output.weight";
        assert_eq!(found.differences.iter().filter(is_weight).count(), 0, "{name}: {:?}", found.differences);
        // Tensors that were joined are apart now.
        for tensor in source.tensors().iter().filter(|tensor| back.find(&tensor.name).is_some()) {
            assert_eq!(numbers_of(&source, &tensor.name), numbers_of(&back, &tensor.name), "{name}: {}", tensor.name);
        }
        // The description and the vocabulary say the same again.
        let again = scratch.path().join(format!("{name}-again.gguf"));
        convert(&scratch.path().join("back.flm"), &again, None, None);
        let again = Gguf::open(&again).expect("it was just written");
        for key in [
            "block_count",
            "rope.freq_base",
            "attention.head_count_kv",
            "attention.layer_norm_rms_epsilon",
            "context_length",
        ] {
            let key = format!("{}.{key}", if name.starts_with("qwen2") { "qwen2" } else { "llama" });
            assert_eq!(again.metadata().value(&key), gguf.metadata().value(&key), "{name}: {key}");
        }
        for key in
            ["tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"]
        {
            assert_eq!(again.metadata().value(key), gguf.metadata().value(key), "{name}: {key}");
        }
    }
}

/// What is written from a directory is read by the rule of the loader: its losses are those that were told.
#[test]
fn losses_of_codes_are_those_that_are_told() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let source = trueup::formats::open(root().join("fixtures/models/llama2"), &trueup::formats::OpenOptions::default())
        .expect("a model");
    for bits in [16, 8, 4] {
        let target = scratch.path().join(format!("{bits}.flm"));
        let options = FlmOptions {
            bits: Some(bits),
            overrides: vec!["user_role=<user>".parse().expect("a key")],
            ..FlmOptions::default()
        };
        let report = to_flm(source.as_ref(), &target, &options, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
        let read = Flm::open(&target, None).unwrap_or_else(|error| panic!("{error}"));
        let table = &read.tokenizer().flm.as_ref().expect("a vocabulary").table;
        assert!(table.contains(&("user_role".to_owned(), "<user>".to_owned())));
        for line in &report.tensors {
            let (before, after) = (numbers_of(source.as_ref(), &line.name), numbers_of(&read, &line.name));
            let squares: f64 = before.iter().zip(&after).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
            let rmse = (squares / before.len() as f64).sqrt();
            let told = line.rmse.expect("it was measured");
            assert!((rmse - told).abs() <= 1e-9 + 1e-6 * told, "{bits} bits, {}: {rmse:e}, told {told:e}", line.name);
        }
    }
}

/// ChatGLM's two tokens before every text, and tensors that are one in both files, come back.
#[test]
fn chatglm_comes_back() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for (model, prefix) in [("chatglm2", [385, 387]), ("chatglm3", [385, 387]), ("glm4", [386, 388])] {
        let path = |name: &str| scratch.path().join(format!("{model}-{name}"));
        let (first, between, second) = (path("a.gguf"), path("b.flm"), path("c.gguf"));
        convert(&root().join("fixtures/models").join(model), &first, None, None);
        let before = Gguf::open(&first).expect("it was just written");
        written(&before, &between, None);
        convert(&between, &second, None, None);
        let after = Gguf::open(&second).expect("it was just written");
        let ids = |file: &Gguf, path: &Path| {
            let vocabulary = Vocabulary::from_metadata(file.metadata(), path).expect("a vocabulary");
            Tokenizer::new(vocabulary).expect("a tokenizer").encode("a sophisticated text, 1234", true).expect("ids")
        };
        assert_eq!(ids(&before, &first)[..2], prefix, "{model}");
        assert_eq!(ids(&after, &second), ids(&before, &first), "{model}");
        for tensor in before.tensors() {
            assert_eq!(numbers_of(&after, &tensor.name), numbers_of(&before, &tensor.name), "{model}: {}", tensor.name);
        }
    }
}

/// A file without a vocabulary is converted, and takes ids.
#[test]
fn a_file_without_tokens_comes_back() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (first, between) = (scratch.path().join("a.gguf"), scratch.path().join("b.flm"));
    convert(&root().join("fixtures/models/chatglm2"), &first, None, None);
    written(&Gguf::open(&first).expect("it was just written"), &between, None);
    let bare = scratch.path().join("bare.flm");
    let (vocabulary, tensors) = without_vocabulary(&between);
    let writer = FlmWriter::create(&bare, &vocabulary, &tensors, &[]).expect("a file");
    let source = Flm::open(&between, None).expect("a model");
    for (number, tensor) in tensors.iter().enumerate() {
        let bytes: Vec<u8> = numbers_of(&source, &tensor.name).iter().flat_map(|number| number.to_le_bytes()).collect();
        writer.write(number, 0, &bytes).expect("numbers");
    }
    writer.finish().expect("a file");
    let target = scratch.path().join("bare.gguf");
    convert(&bare, &target, None, None);
    let converted = Gguf::open(&target).expect("it was just written");
    assert!(!Vocabulary::is_in(converted.metadata()));
    let prompts = [vec![385, 387, 5, 6]];
    assert_eq!(say(&target, "cpu", &prompts, 4, true)[0].ids, say(&first, "cpu", &prompts, 4, true)[0].ids);
}

/// What a file holds, but for its tokens.
fn without_vocabulary(path: &Path) -> (FlmVocabulary, Vec<FlmTensor>) {
    let model = Flm::open(path, None).expect("a model");
    let table = model.tokenizer().flm.as_ref().expect("a vocabulary").table.clone();
    let plain = |info: &trueup::formats::TensorInfo| FlmTensor {
        name: info.name.clone(),
        shape: info.shape.clone(),
        dtype: FlmType::F32,
    };
    let tensors = model.tensors().iter().map(plain).collect();
    (FlmVocabulary { tokens: Vec::new(), special: Vec::new(), table }, tensors)
}

/// A model with some numbers of a tensor, by their elements, in place of others.
struct Changed<'a> {
    model: &'a Gguf,
    tensor: usize,
    numbers: Vec<(u64, f32)>,
}

impl Checkpoint for Changed<'_> {
    fn format(&self) -> &str {
        self.model.format()
    }

    fn path(&self) -> &Path {
        self.model.path()
    }

    fn description(&self) -> trueup::formats::Description<'_> {
        self.model.description()
    }

    fn tokenizer(&self) -> &trueup::formats::TokenizerFiles {
        self.model.tokenizer()
    }

    fn tensors(&self) -> &[trueup::formats::TensorInfo] {
        self.model.tensors()
    }

    fn read(&self, tensor: usize, offset: u64, out: &mut [u8]) -> trueup::formats::Result<()> {
        self.model.read(tensor, offset, out)?;
        for (element, number) in self.numbers.iter().filter(|_| tensor == self.tensor) {
            let place = element * 4;
            if (offset..offset + out.len() as u64).contains(&place) {
                out[(place - offset) as usize..][..4].copy_from_slice(&number.to_le_bytes());
            }
        }
        Ok(())
    }

    fn unchanged(&self) -> trueup::formats::Result<()> {
        self.model.unchanged()
    }

    fn sources(&self) -> Vec<&trueup::formats::SourceFile> {
        self.model.sources()
    }
}

/// Rows of queries are written in another order than they are read in: what does not fit is told where it was read.
#[test]
fn what_f16_cannot_hold_is_told_where_it_stands() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = scratch.path().join("a.gguf");
    convert(&root().join("fixtures/models/llama2"), &path, trueup::blocks::DType::from_name("f32"), None);
    let model = Gguf::open(&path).expect("it was just written");
    let name = "blk.1.attn_q.weight";
    let tensor = model.find(name).expect("queries");
    // The second row of a head, which is not the second of the checkpoint's.
    let changed = Changed { model: &model, tensor, numbers: vec![(64 + 5, 70_000.0)] };
    let options = FlmOptions { bits: Some(16), ..FlmOptions::default() };
    let error = to_flm(&changed, &scratch.path().join("b.flm"), &options, &NoProgress).map(drop).expect_err("a fault");
    let error = error.to_string();
    assert!(error.contains(name) && error.contains("element [5, 1] is 70000, which f16 cannot hold"), "{error}");
}

/// A text that no reader takes is not written; tokens that cannot cut text are, and a note says so.
#[test]
fn what_is_written_is_read_again() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = scratch.path().join("a.gguf");
    convert(&root().join("fixtures/models/llama2"), &path, None, None);
    let model = Gguf::open(&path).expect("it was just written");
    let long = |bytes: usize| {
        let overrides = vec![format!("pre_prompt={}", "x".repeat(bytes)).parse().expect("a key")];
        let options = FlmOptions { overrides, ..FlmOptions::default() };
        let target = scratch.path().join("b.flm");
        to_flm(&model, &target, &options, &NoProgress).map(|_| Flm::open(&target, None).expect("it was just written"))
    };
    assert!(long(1 << 20).is_ok());
    let error = long((1 << 20) + 1).map(drop).expect_err("a fault").to_string();
    assert!(error.contains("has 1048577 bytes, but at most 1048576 are allowed in a .flm file"), "{error}");
}

/// Every model that FastLLM knows is, as a `.flm` file and back, the model that it was: numbers, keys, tokens, prompts.
#[test]
fn every_fixture_comes_back() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (mut faults, mut compared) = (Vec::new(), 0);
    for fixture in trueup_tests::fixtures() {
        let source = trueup::formats::open(&fixture.folder, &trueup::formats::OpenOptions::default()).expect("a model");
        let target = scratch.path().join(format!("{}.flm", fixture.name));
        match to_flm(source.as_ref(), &target, &FlmOptions::default(), &NoProgress) {
            Err(error) if error.to_string().contains("the FastLLM format does not support") => continue,
            written => drop(written.unwrap_or_else(|error| panic!("{error}"))),
        }
        compared += 1;
        let back = Flm::open(&target, None).unwrap_or_else(|error| panic!("{error}"));
        let found = diff(source.as_ref(), &back, DiffOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        // A tied head is written out, for FastLLM looks for one; ids of images have no entries, and what only steers is
        // of no kind.
        let is_known = |name: &str| match fixture.name.as_str() {
            "chatglm1" => [
                "tokenizer.ggml.tokens",
                "tokenizer.ggml.token_type",
                // Without its types, no token ends generation by its name, so the list of ends needs no key.
                "trueup.tokenizer.end_of_generation_ids",
            ]
            .contains(&name),
            _ => name == "output.weight",
        };
        let differs: Vec<_> = found.differences.iter().filter(|line| !is_known(&line.name)).collect();
        if !differs.is_empty() || found.keys < 20 || found.exact < 15 {
            faults.push(format!("{}: {} keys, {} exact, {differs:?}", fixture.name, found.keys, found.exact));
        }
    }
    assert!(compared >= 17, "FastLLM knows only {compared} of the fixtures");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Queries, keys and values of the first Qwen stand in one tensor, as FastLLM wants them; by way of GGUF it is Qwen2 to
/// both.
#[test]
fn the_first_qwen_is_joined() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = root().join("fixtures/models/qwen");
    let source = trueup::formats::open(&folder, &trueup::formats::OpenOptions::default()).expect("a checkpoint");
    let target = scratch.path().join("a.flm");
    written(source.as_ref(), &target, Some(4));
    let bytes = fs::read(&target).expect("a file");
    let has = |name: &str| bytes.windows(name.len()).any(|window| window == name.as_bytes());
    assert!(has("transformer.h.1.attn.c_attn.weight") && has("transformer.h.1.attn.c_attn.bias"));
    assert!(!has("q_proj"));
    let model = scratch.path().join("a.gguf");
    convert(&folder, &model, None, None);
    let written = written(&Gguf::open(&model).expect("it was just written"), &target, None);
    assert!(written.find("model.layers.1.self_attn.q_proj.bias").is_some());
}

/// The codes of 8 bits, and the ranges before them, are the bytes that FastLLM wrote of the same matrix.
#[test]
fn eight_bits_are_those_of_fastllm() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = root().join("fixtures/models/llama2");
    let source = trueup::formats::open(&folder, &trueup::formats::OpenOptions::default()).expect("a model");
    let target = scratch.path().join("a.flm");
    written(source.as_ref(), &target, Some(8));
    let theirs = fs::read(root().join("fixtures/flm/saved_int8_o_proj.bin")).expect("a fixture");
    assert_eq!(theirs.len(), 4 + 64 * 8 + 64 * 64);
    assert!(fs::read(&target).expect("a file").windows(theirs.len()).any(|window| window == theirs));
}

fn refused(model: &Gguf, scratch: &tempfile::TempDir, options: FlmOptions) -> String {
    let target = scratch.path().join("refused.flm");
    let error = to_flm(model, &target, &options, &NoProgress).map(drop).expect_err("a fault").to_string();
    assert!(!target.exists());
    error
}

/// Keys that describe another model than the tensors are of are refused before anything is written, and so are rows
/// that no codes can hold.
#[test]
fn what_nobody_could_read_is_not_written() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = scratch.path().join("a.gguf");
    convert(&root().join("fixtures/models/llama2"), &path, trueup::blocks::DType::from_name("f32"), None);
    let model = Gguf::open(&path).expect("it was just written");
    let with = |key: &str| FlmOptions { overrides: vec![key.parse().expect("a key")], ..FlmOptions::default() };
    for (key, expected) in [
        ("hidden_size=8", "--metadata"),
        ("hidden_size=7", "is [7, 418], found [64, 418]"),
        ("vocab_size=abc", "vocab_size: expected a positive integer"),
        ("architectures=['None']", "expected a supported class"),
        ("peft_size=1", "is the number of adapters"),
    ] {
        let error = refused(&model, &scratch, with(key));
        assert!(error.contains(expected), "{error}");
    }
    let tensor = model.find("blk.1.ffn_down.weight").expect("a matrix");
    let far = Changed { model: &model, tensor, numbers: vec![(97, 3e38), (98, -3e38)] };
    for bits in [4, 8] {
        let options = FlmOptions { bits: Some(bits), ..FlmOptions::default() };
        let error = to_flm(&far, &scratch.path().join("b.flm"), &options, &NoProgress).map(drop).expect_err("a fault");
        let error = error.to_string();
        assert!(error.contains("blk.1.ffn_down.weight") && error.contains("range of values exceeds f32"), "{error}");
    }
}

/// Adapters stay behind, and so does the key that counts them, with which FastLLM would look for them.
#[test]
fn adapters_are_not_counted_where_they_are_not() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = fs::read(flm("llama_int8").folder.join("model.flm")).expect("a fixture");
    let number = |at: usize| i32::from_le_bytes(file[at..at + 4].try_into().expect("a number"));
    let text = |text: &str| [&(text.len() as i32).to_le_bytes()[..], text.as_bytes()].concat();
    // The table ends where its texts do; an adapter of no keys follows.
    let mut end = 8;
    for _ in 0..2 * number(4) {
        end += 4 + number(end) as usize;
    }
    let keys = (number(4) + 1).to_le_bytes();
    let (count, adapter) = ([text("peft_size"), text("1")].concat(), [text("a"), vec![0; 4]].concat());
    let source = scratch.path().join("source.flm");
    fs::write(&source, [&file[..4], &keys, &count, &file[8..end], &adapter, &file[end..]].concat()).expect("a file");
    let source = Flm::open(&source, None).expect("a model with an adapter");
    let target = written(&source, &scratch.path().join("target.flm"), None);
    let table = &target.tokenizer().flm.as_ref().expect("a vocabulary").table;
    assert!(table.iter().all(|(key, _)| key != "peft_size"));
    assert_eq!(target.tensors().len(), source.tensors().len());
}

/// What a file says of its vocabulary goes with it, when another is named in its place.
#[test]
fn another_vocabulary_takes_no_rules_of_the_first() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = |name: &str| root().join("fixtures/models").join(name);
    let options = trueup::formats::OpenOptions::default();
    let source = trueup::formats::open(folder("mistral"), &options).expect("a model");
    let (first, second) = (scratch.path().join("first.flm"), scratch.path().join("second.flm"));
    let own = written(source.as_ref(), &first, None);
    let has_rules = |file: &Flm| {
        let table = &file.tokenizer().flm.as_ref().expect("a vocabulary").table;
        table.iter().any(|(key, _)| key == "trueup.tokenizer.pre_tokenizer")
    };
    assert!(has_rules(&own));
    let other = Flm::open(&first, Some(&folder("llama-linear").join("tokenizer.model"))).expect("a model");
    assert!(!has_rules(&written(&other, &second, None)));
}

/// Roles that a person sets are taken: a template that FastLLM would take before them is left out.
#[test]
fn roles_replace_a_template() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let source =
        trueup::formats::open(root().join("fixtures/models/mistral"), &trueup::formats::OpenOptions::default())
            .expect("a model");
    let roles = ["user_role=U:", "bot_role=B:"].map(|key| key.parse().expect("a key")).to_vec();
    let target = scratch.path().join("a.flm");
    let options = FlmOptions { overrides: roles, ..FlmOptions::default() };
    let report = to_flm(source.as_ref(), &target, &options, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.notes.iter().any(|note| note.contains("chat template is omitted")), "{:?}", report.notes);
    let file = Flm::open(&target, None).expect("a model");
    assert!(file.tokenizer().chat_template.is_none());
    let model = scratch.path().join("a.gguf");
    convert(&target, &model, None, None);
    let file = Gguf::open(&model).expect("it was just written");
    let vocabulary = Vocabulary::from_metadata(file.metadata(), &model).expect("a vocabulary");
    let template = ChatTemplate::of(&vocabulary).expect("valid Jinja").expect("a template");
    let message = Message { role: "user".to_owned(), content: "Hi".to_owned() };
    assert_eq!(template.render(&[message], true).expect("a text"), "U:HiB:");
}

/// Baichuan 2's roles are two tokens that its generation configuration names; FastLLM gets them by their ids, and a
/// template finds them whole.
#[test]
fn baichuan_has_roles() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = scratch.path().join("model");
    copy_folder(&root().join("fixtures/models/baichuan2-13b"), &folder);
    fs::write(folder.join("generation_config.json"), r#"{"user_token_id": 350, "assistant_token_id": 351}"#)
        .expect("a file");
    let source = trueup::formats::open(&folder, &trueup::formats::OpenOptions::default()).expect("a model");
    let [direct, model, indirect] = ["a.flm", "b.gguf", "c.flm"].map(|name| scratch.path().join(name));
    let first = written(source.as_ref(), &direct, None);
    convert(&folder, &model, None, None);
    let second = written(&Gguf::open(&model).expect("it was just written"), &indirect, None);
    for file in [first, second] {
        let vocabulary = file.tokenizer().flm.clone().expect("a vocabulary");
        let roles = ["user_role", "bot_role"].map(|key| vocabulary.value(key).map(str::to_owned));
        let expected = [350, 351].map(|id| Some(format!("<FLM_FIX_TOKEN_{id}> ")));
        assert_eq!(roles, expected);
    }
    let file = Gguf::open(&model).expect("it was just written");
    let vocabulary = Vocabulary::from_metadata(file.metadata(), &model).expect("a vocabulary");
    let template = ChatTemplate::of(&vocabulary).expect("valid Jinja").expect("a template");
    let message = Message { role: "user".to_owned(), content: "Hi".to_owned() };
    let text = template.render(&[message], true).expect("a text");
    let ids = Tokenizer::new(vocabulary).expect("a tokenizer").encode(&text, true).expect("ids");
    assert_eq!((ids.first(), ids.last()), (Some(&350), Some(&351)), "{text}");
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

/// A file of version 0 holds no table: the kind of model and its numbers follow from its tensors, with a note.
#[test]
fn files_without_a_table_are_known_by_their_tensors() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (first, between, bare) =
        (scratch.path().join("a.gguf"), scratch.path().join("b.flm"), scratch.path().join("bare.flm"));
    convert(&root().join("fixtures/models/chatglm2"), &first, None, None);
    written(&Gguf::open(&first).expect("it was just written"), &between, None);
    let source = Flm::open(&between, None).expect("a model");
    let (mut vocabulary, mut tensors) = without_vocabulary(&between);
    vocabulary.table.clear();
    // What shows how large a head is: a frequency for each four of its elements.
    let frequencies =
        FlmTensor { name: "transformer.rotary_pos_emb.inv_freq".into(), shape: vec![4], dtype: FlmType::F32 };
    tensors.push(frequencies);
    let writer = FlmWriter::create(&bare, &vocabulary, &tensors, &[]).expect("a file");
    for (number, tensor) in tensors.iter().enumerate() {
        let numbers = source.find(&tensor.name).map_or(vec![1.0; 4], |_| numbers_of(&source, &tensor.name));
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        writer.write(number, 0, &bytes).expect("numbers");
    }
    writer.finish().expect("a file");
    let written = fs::read(&bare).expect("a file");
    assert_eq!(written[..8], [2, 0, 0, 0, 0, 0, 0, 0], "version 2, no keys");
    fs::write(&bare, [&[0; 4], &written[8..]].concat()).expect("a file");
    let opened = trueup::formats::open(&bare, &trueup::formats::OpenOptions::default()).expect("a model");
    assert!(opened.notes().iter().any(|note| note.contains("num_attention_heads 4")), "{:?}", opened.notes());
    let target = scratch.path().join("bare.gguf");
    convert(&bare, &target, None, None);
    let of = |path: &Path| {
        let keys = Gguf::open(path).expect("a model");
        ["attention.head_count", "attention.head_count_kv", "attention.key_length", "feed_forward_length", "vocab_size"]
            .map(|key| keys.metadata().u64(&format!("chatglm.{key}")).expect("a number"))
    };
    assert_eq!(of(&target), of(&first));
}
