//! Damaged folders of Hugging Face's layout.

use super::damage::Scratch;
use super::root;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A copy of a fixture.
fn copy(scratch: &Scratch, fixture: &str) -> PathBuf {
    let folder = scratch.folder().join("model");
    fs::create_dir(&folder).expect("a directory");
    for entry in fs::read_dir(root().join("fixtures/models").join(fixture)).expect("a fixture") {
        let entry = entry.expect("an entry");
        if !entry.file_name().to_string_lossy().starts_with("golden") {
            fs::copy(entry.path(), folder.join(entry.file_name())).expect("files can be copied");
        }
    }
    folder
}

/// A copy with a key of one of its JSON files set.
fn with_key(scratch: &Scratch, fixture: &str, file: &str, key: &str, value: Value) -> PathBuf {
    let folder = copy(scratch, fixture);
    set(&folder.join(file), key, value);
    folder
}

fn set(path: &Path, key: &str, value: Value) {
    let mut object: Map<String, Value> = serde_json::from_slice(&fs::read(path).expect("a file")).expect("an object");
    object.insert(key.to_owned(), value);
    write(path, serde_json::to_vec(&object).expect("JSON"));
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::write(path, bytes).expect("a file can be written");
}

/// A safetensors file as header and data.
fn tensors(path: &Path) -> (Map<String, Value>, Vec<u8>) {
    let bytes = fs::read(path).expect("a file");
    let (length, rest) = bytes.split_first_chunk().expect("a length");
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    (serde_json::from_slice(header).expect("an object"), data.to_vec())
}

fn write_tensors(path: &Path, header: &Map<String, Value>, data: &[u8]) {
    let header = serde_json::to_vec(header).expect("JSON");
    write(path, [&(header.len() as u64).to_le_bytes(), &header[..], data].concat());
}

/// A copy with its tensors changed.
fn with_tensors(
    scratch: &Scratch,
    fixture: &str,
    change: impl FnOnce(&mut Map<String, Value>, &mut Vec<u8>),
) -> PathBuf {
    let folder = copy(scratch, fixture);
    let path = folder.join("model.safetensors");
    let (mut header, mut data) = tensors(&path);
    change(&mut header, &mut data);
    write_tensors(&path, &header, &data);
    folder
}

/// A copy in two files with an index.
fn sharded(scratch: &Scratch) -> (PathBuf, Map<String, Value>) {
    let folder = copy(scratch, "qwen2");
    let path = folder.join("model.safetensors");
    let (header, data) = tensors(&path);
    let mut shards = [(Map::new(), Vec::new()), (Map::new(), Vec::new())];
    let mut places = Map::new();
    for (number, (name, tensor)) in header.iter().filter(|(name, _)| *name != "__metadata__").enumerate() {
        let (shard, bytes) = &mut shards[number % 2];
        let [start, end] = [0, 1].map(|side| tensor["data_offsets"][side].as_u64().expect("an offset") as usize);
        let mut moved = tensor.clone();
        moved["data_offsets"] = json!([bytes.len(), bytes.len() + end - start]);
        bytes.extend(&data[start..end]);
        shard.insert(name.clone(), moved);
        places.insert(name.clone(), json!(format!("model-0000{}-of-00002.safetensors", number % 2 + 1)));
    }
    for (number, (header, data)) in shards.iter().enumerate() {
        write_tensors(&folder.join(format!("model-0000{}-of-00002.safetensors", number + 1)), header, data);
    }
    fs::remove_file(path).expect("it was there");
    write_index(&folder, data.len(), &places);
    (folder, places)
}

fn write_index(folder: &Path, bytes: usize, places: &Map<String, Value>) {
    let index = json!({"metadata": {"total_size": bytes}, "weight_map": places});
    write(&folder.join("model.safetensors.index.json"), index.to_string());
}

pub fn no_config(scratch: &Scratch) -> PathBuf {
    let folder = copy(scratch, "qwen2");
    fs::remove_file(folder.join("config.json")).expect("it was there");
    folder
}

pub fn quantized(scratch: &Scratch) -> PathBuf {
    let quantization = json!({"quant_method": "gptq", "bits": 4});
    with_key(scratch, "qwen2", "config.json", "quantization_config", quantization)
}

pub fn no_weights(scratch: &Scratch) -> PathBuf {
    let folder = copy(scratch, "qwen2");
    fs::remove_file(folder.join("model.safetensors")).expect("it was there");
    folder
}

pub fn layers(scratch: &Scratch, count: u64) -> PathBuf {
    with_key(scratch, "llama2", "config.json", "num_hidden_layers", json!(count))
}

pub fn other_pieces(scratch: &Scratch) -> PathBuf {
    let folder = copy(scratch, "llama2");
    let other = root().join("fixtures/models/llama-linear/tokenizer.model");
    fs::copy(other, folder.join("tokenizer.model")).expect("files can be copied");
    folder
}

pub fn shard_missing(scratch: &Scratch) -> PathBuf {
    let (folder, _) = sharded(scratch);
    fs::remove_file(folder.join("model-00002-of-00002.safetensors")).expect("it was there");
    folder
}

pub fn tokenizer_config_broken(scratch: &Scratch) -> PathBuf {
    let folder = copy(scratch, "qwen2");
    write(&folder.join("tokenizer_config.json"), "{");
    folder
}

pub fn unread_type(scratch: &Scratch) -> PathBuf {
    with_tensors(scratch, "qwen2", |header, _| header["model.norm.weight"]["dtype"] = json!("F8_E4M3"))
}

pub fn cut_short(scratch: &Scratch) -> PathBuf {
    with_tensors(scratch, "qwen2", |_, data| data.truncate(data.len() - 10))
}

/// All tensors inside a wrapper, and `damaged` of another type.
pub fn wrapped(scratch: &Scratch, prefix: &str, damaged: &str) -> PathBuf {
    with_tensors(scratch, "qwen2", |header, _| {
        header[damaged]["dtype"] = json!("F8_E4M3");
        let wrapped = |(name, place): (String, Value)| match name.as_str() {
            "__metadata__" => (name, place),
            _ => (format!("{prefix}{name}"), place),
        };
        *header = std::mem::take(header).into_iter().map(wrapped).collect();
    })
}

pub fn bytes_after(scratch: &Scratch) -> PathBuf {
    with_tensors(scratch, "qwen2", |_, data| data.extend([0; 8]))
}

pub fn index_exchanged(scratch: &Scratch) -> PathBuf {
    let (folder, mut places) = sharded(scratch);
    places["model.norm.weight"] = match places["model.norm.weight"].as_str() {
        Some("model-00001-of-00002.safetensors") => json!("model-00002-of-00002.safetensors"),
        _ => json!("model-00001-of-00002.safetensors"),
    };
    write_index(&folder, 0, &places);
    folder
}

pub fn index_size(scratch: &Scratch) -> PathBuf {
    let (folder, places) = sharded(scratch);
    write_index(&folder, 12, &places);
    folder
}

pub fn shard_of_other_set(scratch: &Scratch) -> PathBuf {
    let (folder, _) = sharded(scratch);
    let shard = folder.join("model-00001-of-00002.safetensors");
    fs::copy(shard, folder.join("model-00007-of-00009.safetensors")).expect("a file can be copied");
    folder
}

/// `model.safetensors` next to two files and their index.
pub fn equal_sets(scratch: &Scratch) -> PathBuf {
    let (folder, _) = sharded(scratch);
    let single = root().join("fixtures/models/qwen2/model.safetensors");
    fs::copy(single, folder.join("model.safetensors")).expect("a file can be copied");
    folder
}

pub fn two_sets(scratch: &Scratch) -> PathBuf {
    let folder = equal_sets(scratch);
    let single = folder.join("model.safetensors");
    let mut bytes = fs::read(&single).expect("it was just copied");
    // The last byte of the file belongs to the last tensor.
    *bytes.last_mut().expect("a file with tensors") ^= 1;
    write(&single, bytes);
    folder
}

pub fn stale_index(scratch: &Scratch) -> PathBuf {
    let folder = two_sets(scratch);
    fs::remove_file(folder.join("model-00002-of-00002.safetensors")).expect("it was there");
    folder
}

pub fn adapter(scratch: &Scratch) -> PathBuf {
    let folder = copy(scratch, "qwen2");
    let config = json!({"peft_type": "LORA", "base_model_name_or_path": "org/base"});
    write(&folder.join("adapter_config.json"), config.to_string());
    folder
}

pub fn no_architecture(scratch: &Scratch) -> PathBuf {
    with_key(scratch, "qwen2", "config.json", "architectures", json!([]))
}

pub fn shard_linked(scratch: &Scratch) -> PathBuf {
    let (folder, _) = sharded(scratch);
    let [first, second] = [1, 2].map(|number| folder.join(format!("model-0000{number}-of-00002.safetensors")));
    fs::remove_file(&second).expect("it was there");
    fs::hard_link(first, second).expect("a link");
    folder
}

pub fn overlap(scratch: &Scratch) -> PathBuf {
    with_tensors(scratch, "qwen2", |header, _| {
        let bytes = |name: &str| header[name]["data_offsets"].clone();
        let other = "model.layers.0.input_layernorm.weight";
        let (start, end) = (bytes("model.norm.weight"), bytes(other));
        let before = start[0].as_u64() < end[0].as_u64();
        let first = if before { start } else { end };
        header["model.norm.weight"]["data_offsets"] = first.clone();
        header[other]["data_offsets"] = first;
    })
}

pub fn shard_is_page(scratch: &Scratch) -> PathBuf {
    let (folder, _) = sharded(scratch);
    write(&folder.join("model-00002-of-00002.safetensors"), super::PAGE);
    folder
}

pub fn shard_is_pointer(scratch: &Scratch) -> PathBuf {
    let (folder, _) = sharded(scratch);
    write(&folder.join("model-00002-of-00002.safetensors"), super::POINTER);
    folder
}

pub fn config_is_pointer(scratch: &Scratch) -> PathBuf {
    with_text(scratch, "config.json", super::POINTER)
}

/// A copy with another text in one of its files.
pub fn with_text(scratch: &Scratch, file: &str, text: &str) -> PathBuf {
    let folder = copy(scratch, "qwen2");
    write(&folder.join(file), text);
    folder
}

/// A folder in two files, one of which is cut.
pub fn shard_cut(scratch: &Scratch) -> PathBuf {
    let (folder, _) = sharded(scratch);
    let path = folder.join("model-00002-of-00002.safetensors");
    let (header, mut data) = tensors(&path);
    data.truncate(data.len() / 2);
    write_tensors(&path, &header, &data);
    folder
}

/// A vocabulary of 32000 rows for 400 tokens: those behind them are copies of the others.
pub fn rows_without_tokens(scratch: &Scratch) -> PathBuf {
    const ROWS: usize = 32_000;
    let folder = with_tensors(scratch, "qwen2", |header, data| {
        let mut all = Vec::new();
        for (_, tensor) in header.iter_mut().filter(|(name, _)| *name != "__metadata__") {
            let [start, end] = [0, 1].map(|side| tensor["data_offsets"][side].as_u64().expect("an offset") as usize);
            let from = all.len();
            all.extend(&data[start..end]);
            if tensor["shape"][0] == json!(400) {
                tensor["shape"][0] = json!(ROWS);
                (1..ROWS / 400).for_each(|_| all.extend(&data[start..end]));
            }
            tensor["data_offsets"] = json!([from, all.len()]);
        }
        *data = all;
    });
    set(&folder.join("config.json"), "vocab_size", json!(ROWS));
    folder
}

/// What stands for ends in generation_config.json.
pub fn ends(scratch: &Scratch, value: Value) -> PathBuf {
    with_key(scratch, "qwen2", "generation_config.json", "eos_token_id", value)
}

/// A list of so many ends in one of two files.
pub fn many_ends(scratch: &Scratch, file: &str, count: u64) -> PathBuf {
    with_key(scratch, "qwen2", file, "eos_token_id", (400..400 + count).collect())
}

pub fn tensor_renamed(scratch: &Scratch) -> PathBuf {
    with_tensors(scratch, "qwen2", |header, _| {
        let tensor = header.remove("model.layers.1.mlp.up_proj.weight").expect("a tensor");
        header.insert("model.layers.1.mlp.upward.weight".to_owned(), tensor);
    })
}

pub fn rope_base(scratch: &Scratch) -> PathBuf {
    with_key(scratch, "llama2", "config.json", "rope_theta", json!(2.0))
}

pub fn yarn_context(scratch: &Scratch) -> PathBuf {
    with_key(scratch, "llama-yarn", "config.json", "max_position_embeddings", json!(4096))
}

pub fn window(scratch: &Scratch) -> PathBuf {
    with_key(scratch, "mistral", "config.json", "sliding_window", json!(512))
}

pub fn no_tokenizer(scratch: &Scratch) -> PathBuf {
    let folder = copy(scratch, "qwen2");
    fs::remove_file(folder.join("tokenizer.json")).expect("it was there");
    folder
}

pub fn vocabulary_smaller(scratch: &Scratch) -> PathBuf {
    with_key(scratch, "qwen2", "config.json", "vocab_size", json!(391))
}

pub fn doubling_normalizers(scratch: &Scratch) -> PathBuf {
    let doubling = json!({"type": "Replace", "pattern": {"Regex": "."}, "content": "aaaaaaaaaaaaaaaa"});
    let all = json!({"type": "Sequence", "normalizers": vec![doubling; 12]});
    with_key(scratch, "qwen2", "tokenizer.json", "normalizer", all)
}

pub fn padding_outside(scratch: &Scratch) -> PathBuf {
    with_key(scratch, "qwen2", "generation_config.json", "pad_token_id", json!(7000))
}

pub fn end_unknown(scratch: &Scratch) -> PathBuf {
    with_key(scratch, "llama2", "tokenizer_config.json", "eos_token", json!("<nope>"))
}

pub fn ends_differ(scratch: &Scratch) -> PathBuf {
    with_key(scratch, "qwen2", "generation_config.json", "eos_token_id", json!([390]))
}

pub fn begins_differ(scratch: &Scratch) -> PathBuf {
    with_key(scratch, "llama2", "generation_config.json", "bos_token_id", json!(3))
}

pub fn dtype(scratch: &Scratch) -> PathBuf {
    with_key(scratch, "llama2", "config.json", "torch_dtype", json!("float32"))
}

pub fn head_ignored(scratch: &Scratch) -> PathBuf {
    with_key(scratch, "llama3", "config.json", "tie_word_embeddings", json!(true))
}

pub fn not_finite(scratch: &Scratch) -> PathBuf {
    with_tensors(scratch, "qwen2", |header, data| {
        let start = header["model.norm.weight"]["data_offsets"][0].as_u64().expect("an offset") as usize;
        data[start + 2..start + 4].copy_from_slice(&0x7fc0_u16.to_le_bytes());
    })
}

/// The bytes of a tensor of the fixture with packed matrices, changed.
fn with_packed(scratch: &Scratch, name: &str, change: impl FnOnce(&Value, &mut [u8])) -> PathBuf {
    with_tensors(scratch, "bitnet-2b", |header, data| {
        let entry = &header[name];
        let at = |place: usize| entry["data_offsets"][place].as_u64().expect("an offset") as usize;
        let range = at(0)..at(1);
        change(entry, &mut data[range]);
    })
}

/// Two bytes with the unused code.
pub fn packed_code(scratch: &Scratch) -> PathBuf {
    with_packed(scratch, "model.layers.1.self_attn.q_proj.weight", |entry, bytes| {
        let columns = entry["shape"][1].as_u64().expect("a size") as usize;
        (bytes[2 * columns + 5], bytes[3 * columns]) = (0b0001_1110, 0b1100_0000);
    })
}

/// Bytes that were never written.
pub fn packed_zeros(scratch: &Scratch) -> PathBuf {
    with_packed(scratch, "model.layers.1.self_attn.q_proj.weight", |_, bytes| bytes.fill(0))
}

/// Another scale, in bf16 as in the fixture.
pub fn packed_scale(scratch: &Scratch, scale: f32) -> PathBuf {
    with_packed(scratch, "model.layers.0.mlp.up_proj.weight_scale", |_, bytes| {
        bytes.copy_from_slice(&scale.to_bits().to_le_bytes()[2..]);
    })
}
