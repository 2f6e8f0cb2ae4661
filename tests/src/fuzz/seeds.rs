//! Good inputs to begin with: tiny models of each architecture, written by our own converter from a folder that is made
//! here, and the fixtures where these are small.

use super::grammar::join_frames;
use crate::root;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use trueup::blocks::DType;
use trueup::formats::gguf::{GgufPlan, GgufWriter};
use trueup::formats::json::object as json_object;
use trueup::formats::{Checkpoint, Gguf, SafetensorsArray, TraceWriter, write_safetensors};
use trueup::models::{Architecture, ModelSpec, SourceNames, SourceTensor, expected_tensors};
use trueup::quantize::Layout;
use trueup::runtime::device::Device;
use trueup::runtime::{DeviceOptions, ModelFile, SessionOptions, Weights, open_device};
use trueup::verify::{Follow, Reference, Report, VerifyOptions, planted, record, verify};

/// Rows of the embedding of a tiny model.
const VOCABULARY: u64 = 48;

/// Fixtures whose config a tiny model takes.
pub const MODELS: [&str; 5] = ["llama-yarn", "llama3", "mistral", "qwen2", "qwen3"];

/// Fixtures with the other parts of models: experts, latent attention, states, encoders, ternary matrices,
/// windows, layers with different heads, ALiBi.
pub const PARTS: [&str; 16] = [
    "models/mixtral",
    "models/qwen2moe",
    "models/granitemoe",
    "models/deepseek2",
    "models/deepseek3",
    "models/mamba",
    "models/mamba2",
    "models/bitnet",
    "models/phi4-long",
    "models/gemma3",
    "models/openelm",
    "models/mpt",
    "models/falcon-rw",
    "encoders/bert",
    "encoder-decoders/t5",
    "encoder-decoders/flan-t5",
];

/// A fixture, and the config values that its tiny checkpoint overrides. Without `vocab_size`, the checkpoint has the
/// fixture's vocabulary.
type Cut = (&'static str, &'static [(&'static str, u64)]);

/// Fixtures whose tiny checkpoints have the other parts of models: experts as one tensor each and as stacked tensors,
/// latent attention with groups of experts, recurrent states, sliding windows, an encoder, and an encoder-decoder.
const CUTS: [Cut; 7] = [
    (
        "models/mixtral",
        &[
            ("hidden_size", 32),
            ("head_dim", 8),
            ("num_hidden_layers", 1),
            ("num_local_experts", 2),
            ("vocab_size", VOCABULARY),
        ],
    ),
    (
        "models/granitemoe",
        &[("hidden_size", 32), ("num_hidden_layers", 1), ("num_local_experts", 2), ("vocab_size", VOCABULARY)],
    ),
    (
        "models/deepseek3",
        &[
            ("hidden_size", 32),
            ("intermediate_size", 32),
            ("moe_intermediate_size", 8),
            ("n_routed_experts", 4),
            ("kv_lora_rank", 8),
            ("q_lora_rank", 16),
            ("qk_nope_head_dim", 8),
            ("qk_rope_head_dim", 8),
            ("qk_head_dim", 16),
            ("head_dim", 8),
            ("v_head_dim", 8),
            ("vocab_size", VOCABULARY),
        ],
    ),
    ("models/mamba2", &[("hidden_size", 16), ("num_heads", 2), ("num_hidden_layers", 1), ("vocab_size", VOCABULARY)]),
    ("models/gemma3", &[("hidden_size", 32), ("head_dim", 8), ("intermediate_size", 32), ("vocab_size", VOCABULARY)]),
    ("encoders/bert", &[("hidden_size", 16), ("intermediate_size", 16), ("num_hidden_layers", 1)]),
    (
        "encoder-decoders/t5",
        &[("d_model", 16), ("d_kv", 8), ("d_ff", 16), ("num_heads", 2), ("num_layers", 1), ("num_decoder_layers", 1)],
    ),
];

/// Faults whose repro files are seeds: one for each kind of operator.
const PLANTS: [&str; 8] = [
    "k-tail-1",
    "norm-epsilon",
    "rope-base",
    "scale-forgotten",
    "values-sign",
    "kv-negated",
    "sum-sign",
    "token-first",
];

/// Files of a tiny checkpoint: `config.json`, the vocabulary, the weights.
pub struct Folder {
    pub config: Vec<u8>,
    pub tokenizer: Vec<u8>,
    pub weights: Vec<u8>,
}

/// A file of the fixtures.
pub fn fixture_file(name: &str) -> Vec<u8> {
    fs::read(root().join("fixtures").join(name)).unwrap_or_else(|error| panic!("fixtures/{name}: {error}"))
}

/// A fixture's config, all sizes cut down.
pub fn tiny_config(name: &str) -> Map<String, Value> {
    let config = fixture_file(&format!("models/{name}/config.json"));
    let mut config: Map<String, Value> = serde_json::from_slice(&config).expect("a fixture is JSON");
    let sizes = [
        ("hidden_size", 32),
        ("intermediate_size", 32),
        ("num_hidden_layers", 1),
        ("num_attention_heads", 4),
        ("num_key_value_heads", 2),
        ("vocab_size", VOCABULARY),
        ("head_dim", 8),
    ];
    for (key, size) in sizes {
        if key != "head_dim" || config.contains_key(key) {
            config.insert(key.to_owned(), json!(size));
        }
    }
    if config.contains_key("layer_types") {
        config.insert("layer_types".to_owned(), json!(["full_attention"]));
    }
    for key in ["bos_token_id", "eos_token_id"] {
        if config.contains_key(key) {
            config.insert(key.to_owned(), json!(1));
        }
    }
    config
}

/// A vocabulary of a few letters and merges, byte-level.
pub fn tiny_tokenizer() -> Vec<u8> {
    let tokens = ["<s>", "</s>", "a", "b", "c", "t", "h", "e", "Ġ", "th", "the", "Ġthe", "ab"];
    let vocab: Map<String, Value> =
        tokens.iter().enumerate().map(|(id, text)| ((*text).to_owned(), json!(id))).collect();
    let added = |id: usize| json!({"id": id, "content": tokens[id], "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(0), added(1)],
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": byte_level, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab,
            "merges": [["t", "h"], ["th", "e"], ["Ġ", "the"], ["a", "b"]],
        },
    })
    .to_string()
    .into_bytes()
}

/// Numbers that are neither all the same nor large.
fn weights(count: u64, salt: usize) -> Vec<f32> {
    (0..count).map(|place| ((place as usize * 7 + salt * 13) % 29) as f32 / 29.0 - 0.5).collect()
}

/// The arrays of a checkpoint that such a config describes, under the names of its class.
fn arrays(config: &Map<String, Value>) -> Vec<SafetensorsArray<'static>> {
    let path = Path::new("config.json");
    let architecture = Architecture::of_config(config, path).unwrap_or_else(|error| panic!("{error}"));
    let spec = ModelSpec::from_config(architecture, config, 99, path).unwrap_or_else(|error| panic!("{error}"));
    let names = SourceNames::of_tables(architecture);
    let mut known = HashSet::new();
    let sources = expected_tensors(&spec, &names).into_iter().flat_map(|expected| expected.sources);
    let sources = sources.filter(|source| known.insert(source.name.clone()));
    let array = |(salt, tensor): (usize, SourceTensor)| {
        let values = weights(tensor.shape.iter().product(), salt);
        SafetensorsArray::f32(tensor.name, &tensor.shape, &values)
    };
    sources.enumerate().map(array).collect()
}

/// A safetensors file.
fn safetensors(arrays: &[SafetensorsArray<'_>]) -> Vec<u8> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let target = scratch.path().join("model.safetensors");
    write_safetensors(&target, arrays, &[], &[]).unwrap_or_else(|error| panic!("{error}"));
    fs::read(&target).expect("it was just written")
}

/// A tiny checkpoint of the architecture of a fixture.
pub fn tiny_folder(name: &str) -> Folder {
    let config = tiny_config(name);
    let weights = safetensors(&arrays(&config));
    Folder { config: Value::Object(config).to_string().into_bytes(), tokenizer: tiny_tokenizer(), weights }
}

/// The tiny checkpoints of [`CUTS`].
fn cut_folders() -> Vec<Folder> {
    let folder = |(fixture, sizes): Cut| {
        let path = format!("{fixture}/config.json");
        let mut config =
            json_object(&path, &fixture_file(&path)).unwrap_or_else(|error| panic!("fixtures/{path}: {error}"));
        config.extend(sizes.iter().map(|(key, size)| ((*key).to_owned(), json!(size))));
        let has_tiny_vocabulary = sizes.iter().any(|(key, _)| *key == "vocab_size");
        for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
            if has_tiny_vocabulary && config.contains_key(key) {
                config.insert(key.to_owned(), json!(1));
            }
        }
        let tokenizer = match has_tiny_vocabulary {
            true => tiny_tokenizer(),
            false => fixture_file(&format!("{fixture}/tokenizer.json")),
        };
        let weights = safetensors(&arrays(&config));
        Folder { config: Value::Object(config).to_string().into_bytes(), tokenizer, weights }
    };
    CUTS.map(folder).into()
}

/// Folders with the other parts of models, each as one input, and one whose ternary matrices are packed.
pub fn frames_of_parts() -> Vec<Vec<u8>> {
    let ternary = |name: &str| fixture_file(&format!("models/bitnet-2b/{name}"));
    let packed = Folder {
        config: ternary("config.json"),
        tokenizer: ternary("tokenizer.json"),
        weights: ternary("model.safetensors"),
    };
    let folders = cut_folders().into_iter().chain([packed]);
    let frames = |folder: Folder| {
        let Folder { config, tokenizer, weights } = folder;
        join_frames(&[config, tokenizer, Vec::new(), weights, Vec::new()])
    };
    folders.map(frames).collect()
}

/// A tiny BERT; its vocabulary is a `vocab.txt`.
pub fn tiny_encoder() -> &'static Folder {
    static ENCODER: OnceLock<Folder> = OnceLock::new();
    ENCODER.get_or_init(|| {
        let config = fixture_file("encoders/bert/config.json");
        let mut config: Map<String, Value> = serde_json::from_slice(&config).expect("a fixture is JSON");
        let sizes = [
            ("hidden_size", 32),
            ("intermediate_size", 32),
            ("max_position_embeddings", 16),
            ("num_attention_heads", 4),
            ("num_hidden_layers", 1),
            ("vocab_size", VOCABULARY),
        ];
        config.extend(sizes.map(|(key, size)| (key.to_owned(), json!(size))));
        let weights = safetensors(&arrays(&config));
        let tokenizer = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##a\nthe\n".to_vec();
        Folder { config: Value::Object(config).to_string().into_bytes(), tokenizer, weights }
    })
}

/// The folder as one input: config, tokenizer, no index, one file of weights.
pub fn tiny_frames(name: &str) -> Vec<u8> {
    let Folder { config, tokenizer, weights } = tiny_folder(name);
    join_frames(&[config, tokenizer, Vec::new(), weights, Vec::new()])
}

/// A folder with an index and two files of weights, as one input.
pub fn tiny_frames_split(name: &str) -> Vec<u8> {
    let config = tiny_config(name);
    let arrays = arrays(&config);
    let (first, second) = arrays.split_at(arrays.len() / 2);
    let files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let place = |(number, array): (usize, &SafetensorsArray<'_>)| {
        (array.name.clone(), json!(files[usize::from(number >= arrays.len() / 2)]))
    };
    let places: Map<String, Value> = arrays.iter().enumerate().map(place).collect();
    let index = json!({"metadata": {"total_size": 1}, "weight_map": places}).to_string().into_bytes();
    let config = Value::Object(config).to_string().into_bytes();
    join_frames(&[config, tiny_tokenizer(), index, safetensors(first), safetensors(second)])
}

/// A tiny model as GGUF, with an f32 for each weight.
pub fn tiny_gguf(name: &str) -> Vec<u8> {
    let Folder { config, tokenizer, weights } = tiny_folder(name);
    converted(&[("config.json", config), ("tokenizer.json", tokenizer), ("model.safetensors", weights)])
}

/// A tiny model with a vocabulary of sentencepiece.
fn sentencepiece_gguf() -> Vec<u8> {
    let mut config = tiny_config("llama-linear");
    config.insert("vocab_size".to_owned(), json!(384));
    let weights = safetensors(&arrays(&config));
    let config = Value::Object(config).to_string().into_bytes();
    let tokenizer = fixture_file("models/llama-linear/tokenizer.model");
    converted(&[("config.json", config), ("tokenizer.model", tokenizer), ("model.safetensors", weights)])
}

/// GGUF files of dense decoders and of models with other parts, with several kinds of vocabularies, and with quantized
/// blocks stored whole or as two tensors.
pub fn ggufs() -> Vec<Vec<u8>> {
    let mut files = MODELS.map(tiny_gguf).to_vec();
    files.push(sentencepiece_gguf());
    files.extend(cut_folders().into_iter().map(|Folder { config, tokenizer, weights }| {
        converted(&[("config.json", config), ("tokenizer.json", tokenizer), ("model.safetensors", weights)])
    }));
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (whole, target) = (scratch.path().join("whole.gguf"), scratch.path().join("blocks.gguf"));
    fs::write(&whole, &files[0]).expect("a file can be written");
    for (dtype, layout) in [(DType::Q8_0, Layout::Split), (DType::Q4_0, Layout::Block)] {
        crate::quantize(&whole, &target, dtype, layout);
        files.push(fs::read(&target).expect("it was just written"));
    }
    files
}

/// What the converter makes of a folder.
fn converted(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for (name, bytes) in files {
        fs::write(scratch.path().join(name), bytes).expect("a file can be written");
    }
    let target = scratch.path().join("tiny.gguf");
    crate::convert(scratch.path(), &target, None, None);
    fs::read(target).expect("it was just written")
}

/// A tiny model in two GGUF files, as one input.
pub fn tiny_split() -> Vec<u8> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let whole = scratch.path().join("whole.gguf");
    fs::write(&whole, tiny_gguf("llama3")).expect("a file can be written");
    let source = Gguf::open(&whole).unwrap_or_else(|error| panic!("{error}"));
    let bytes = fs::metadata(&whole).expect("it was just written").len();
    let plan =
        GgufPlan::new(scratch.path().join("model.gguf"), source.metadata(), source.tensors(), Some(bytes * 2 / 3));
    let writer = GgufWriter::create(plan.unwrap_or_else(|error| panic!("{error}")), &[])
        .unwrap_or_else(|error| panic!("{error}"));
    for (number, tensor) in source.tensors().iter().enumerate() {
        let mut bytes = vec![0; tensor.bytes as usize];
        source.read(number, 0, &mut bytes).unwrap_or_else(|error| panic!("{error}"));
        writer.write(number, 0, &bytes).unwrap_or_else(|error| panic!("{error}"));
    }
    let files = writer.finish().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(files.len(), 2, "the model is split in two");
    join_frames(&files.iter().map(|file| fs::read(file).expect("it was just written")).collect::<Vec<_>>())
}

/// A tiny model of FastLLM, matrices of one of its types.
pub fn tiny_flm(dtype: i32) -> Vec<u8> {
    let mut out = flm_head();
    let (width, hidden) = (FLM_WIDTH, 2 * FLM_WIDTH);
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let tensors = [
        ("model.embed_tokens.weight".to_owned(), FLM_TOKENS, width),
        (layer("input_layernorm"), 0, width),
        (layer("self_attn.mergeqkv"), width * 2, width),
        (layer("self_attn.o_proj"), width, width),
        (layer("post_attention_layernorm"), 0, width),
        (layer("mlp.gateup_proj"), 2 * hidden, width),
        (layer("mlp.down_proj"), width, hidden),
        ("model.norm.weight".to_owned(), 0, width),
        ("lm_head.weight".to_owned(), FLM_TOKENS, width),
    ];
    flm_number(&mut out, tensors.len());
    for (name, rows, columns) in tensors {
        flm_text(&mut out, &name);
        let sizes = if rows == 0 { vec![columns] } else { vec![rows, columns] };
        flm_number(&mut out, sizes.len());
        sizes.iter().for_each(|size| flm_number(&mut out, *size));
        let (elements, dtype) = (sizes.iter().product::<usize>(), if rows == 0 { 0 } else { dtype });
        out.extend(dtype.to_le_bytes());
        let groups = if dtype == 9 { 2 } else { 1 };
        if matches!(dtype, 3 | 8 | 9) {
            flm_number(&mut out, 0);
            if dtype == 9 {
                [groups, columns / groups].iter().for_each(|count| flm_number(&mut out, *count));
            }
            (0..rows * groups).for_each(|_| out.extend([(-0.5_f32).to_le_bytes(), 0.25_f32.to_le_bytes()].concat()));
        }
        match dtype {
            0 => (0..elements).for_each(|place| out.extend(((place % 7) as f32 / 7.0 - 0.4).to_le_bytes())),
            7 => (0..elements).for_each(|place| out.extend((0x3000_u16 + place as u16 % 512).to_le_bytes())),
            3 => out.extend((0..elements).map(|place| place as u8)),
            _ => out.extend((0..elements / 2).map(|place| place as u8)),
        }
    }
    out
}

const FLM_WIDTH: usize = 8;
const FLM_TOKENS: usize = 262;

/// Version, table, vocabulary and special tokens.
fn flm_head() -> Vec<u8> {
    let mut out = 2_i32.to_le_bytes().to_vec();
    let table = [
        ("architectures", "['LlamaForCausalLM']"),
        ("bos_token_id", "1"),
        ("eos_token_id", "2"),
        ("hidden_size", "8"),
        ("intermediate_size", "16"),
        ("max_position_embeddings", "32"),
        ("model_type", "llama"),
        ("num_attention_heads", "2"),
        ("num_hidden_layers", "1"),
        ("num_key_value_heads", "1"),
        ("rope_scaling.factor", "2.0"),
        ("rope_scaling.type", "linear"),
        ("tokenizer_has_special_tokens", "1"),
        ("tokenizer_use_score", "1"),
        ("user_role", "<FLM_FIX_TOKEN_1>user: "),
        ("vocab_size", "262"),
    ];
    flm_number(&mut out, table.len());
    table.iter().flat_map(|(key, value)| [key, value]).for_each(|word| flm_text(&mut out, word));
    flm_number(&mut out, FLM_TOKENS);
    for id in 0..FLM_TOKENS {
        let token = match id {
            0..3 => ["<unk>", "<s>", "</s>"][id].to_owned(),
            3..259 => format!("<0x{:02X}>", id - 3),
            _ => ["\u{2581}a", "a", "\u{2581}"][id - 259].to_owned(),
        };
        flm_number(&mut out, token.len());
        token.bytes().for_each(|byte| out.extend(i32::from(byte.cast_signed()).to_le_bytes()));
        flm_number(&mut out, id);
        out.extend((-(id as f32)).to_le_bytes());
    }
    flm_number(&mut out, 1);
    flm_text(&mut out, "</s>");
    out
}

fn flm_number(out: &mut Vec<u8>, value: usize) {
    out.extend((value as i32).to_le_bytes());
}

fn flm_text(out: &mut Vec<u8>, text: &str) {
    flm_number(out, text.len());
    out.extend(text.as_bytes());
}

/// A tiny llama2.c model of a version with its vocabulary, as one input.
pub fn tiny_llama2c(version: u32, group: usize) -> Vec<u8> {
    let (dim, hidden, heads, kv_heads, vocabulary, context) = (8_usize, 16, 2, 1, 268, 8);
    let head = dim / heads;
    let mut header = Vec::new();
    if version > 0 {
        header.extend(0x616b_3432_u32.to_le_bytes());
        header.extend(version.to_le_bytes());
    }
    for number in [dim, hidden, 1, heads, kv_heads, vocabulary, context] {
        header.extend((number as u32).to_le_bytes());
    }
    if version > 0 {
        header.push(1);
        if version == 2 {
            header.extend((group as u32).to_le_bytes());
        }
        header.resize(256, 0);
    }
    let matrices =
        [vocabulary * dim, dim * dim, dim * head * kv_heads, dim * head * kv_heads, dim * dim, 3 * dim * hidden];
    let matrices: usize = matrices.iter().sum();
    let mut floats =
        |count: usize| (0..count).for_each(|place| header.extend(((place % 7) as f32 / 7.0 - 0.4).to_le_bytes()));
    floats(3 * dim);
    match version {
        2 => {
            floats(matrices / group);
            header.extend((0..matrices).map(|place| (place % 200) as u8));
        }
        1 => floats(matrices),
        _ => {
            floats(matrices);
            let angle = |place: usize| {
                (place / (head / 2)) as f64 / 10_000_f64.powf(2.0 * (place % (head / 2)) as f64 / head as f64)
            };
            let table = |function: fn(f64) -> f64| {
                (0..context * head / 2).flat_map(move |place| (function(angle(place)) as f32).to_le_bytes())
            };
            header.extend(table(f64::cos));
            header.extend(table(f64::sin));
        }
    }
    join_frames(&[header, tokenizer_bin(vocabulary)])
}

/// The vocabulary of llama2.c: three names, the bytes, a few pieces.
fn tokenizer_bin(count: usize) -> Vec<u8> {
    let mut tokens = vec!["<unk>".to_owned(), "\n<s>\n".to_owned(), "\n</s>\n".to_owned()];
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend([" ", "t", "h", "e", "th", "the", " the", "a", "b"].map(str::to_owned));
    tokens.truncate(count);
    let mut bytes = 6_u32.to_le_bytes().to_vec();
    for (id, token) in tokens.iter().enumerate() {
        bytes.extend((-(id as f32)).to_le_bytes());
        bytes.extend((token.len() as u32).to_le_bytes());
        bytes.extend(token.bytes());
    }
    bytes
}

/// The device that judged things run on.
pub fn device() -> Arc<dyn Device> {
    let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
    open_device("cpu", &options).unwrap_or_else(|error| panic!("{error}"))
}

/// The model that the fixtures' texts of llama.cpp were printed of, in f32.
pub fn printed_model() -> &'static Arc<ModelFile> {
    static MODEL: OnceLock<(Arc<ModelFile>, tempfile::TempDir)> = OnceLock::new();
    let made = MODEL.get_or_init(|| {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let target = scratch.path().join("llama2.gguf");
        crate::convert(&root().join("fixtures/models/llama2"), &target, Some(DType::F32), None);
        (Arc::new(ModelFile::open(&target).unwrap_or_else(|error| panic!("{error}"))), scratch)
    });
    &made.0
}

/// What is made once: a tiny model that stays open, a report on it, files of failing nodes, a trace.
pub struct Verified {
    /// The model.
    pub model: Arc<ModelFile>,
    /// The report on a device with a fault.
    pub report: Report,
    /// Repro files of its failures.
    pub repros: Vec<Vec<u8>>,
    /// A trace of the device without it.
    pub trace: Vec<u8>,
    /// Where the model's file is, which must stay as long as the model.
    _scratch: tempfile::TempDir,
}

/// Made when it is first asked for.
pub fn verified() -> &'static Verified {
    static VERIFIED: OnceLock<Verified> = OnceLock::new();
    VERIFIED.get_or_init(|| {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let path = scratch.path().join("tiny.gguf");
        fs::write(&path, tiny_gguf("llama3")).expect("a file can be written");
        let model = Arc::new(ModelFile::open(&path).unwrap_or_else(|error| panic!("{error}")));
        let repros = scratch.path().join("repros");
        let mut report = None;
        for plant in PLANTS {
            let fault = planted(plant, &model, device()).unwrap_or_else(|error| panic!("{error}"));
            let options = VerifyOptions {
                prompts: vec![vec![1, 5, 9, 2], vec![4]],
                steps: 1,
                threads: Some(1),
                repro_folder: Some(repros.join(plant)),
                planted: Some(fault.facts()),
                ..VerifyOptions::default()
            };
            let found = verify(model.clone(), fault.device, Reference::Oracle, &options, &mut |_| {});
            report = Some(found.unwrap_or_else(|error| panic!("{error}")));
        }
        let trace = trace(&model, &scratch.path().join("trace.safetensors"));
        let report = report.expect("a fault has a place in the model");
        Verified { report, repros: files_below(&repros), trace, model, _scratch: scratch }
    })
}

fn trace(model: &Arc<ModelFile>, path: &Path) -> Vec<u8> {
    let weights = Arc::new(Weights::new(model.clone(), device(), None));
    let mut writer = TraceWriter::create(path, &[]).unwrap_or_else(|error| panic!("{error}"));
    let recording =
        record(&weights, &SessionOptions::default(), &[1, 5, 9], &Follow::Greedy(1), &|_| true, &mut |recorded| {
            let shape: Vec<u64> = recorded.ty.shape.sizes().iter().map(|size| *size as u64).collect();
            Ok(writer.add(recorded.step, &recorded.node.name, &shape, recorded.ty.dtype, &recorded.bytes)?)
        });
    let recording = recording.unwrap_or_else(|error| panic!("{error}"));
    writer.finish(&recording.ids, &recording.tokens, &recording.texts).unwrap_or_else(|error| panic!("{error}"));
    fs::read(path).expect("it was just written")
}

/// All files of the folders in a folder, in the order of their names.
fn files_below(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        paths.extend(fs::read_dir(entry.path()).into_iter().flatten().flatten().map(|file| file.path()));
    }
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("it was just listed")).collect()
}
