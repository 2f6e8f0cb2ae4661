//! Lies in model folders: headers and data of safetensors, the index, `config.json`, and what stands where files
//! should.

use crate::case::{Call, Case, Entry, MEMORY_KIB};
use crate::folder::{FOLDER, Folder};
use crate::random::Random;
use serde_json::{Value, json};

/// A change of one thing.
pub type Lie = (&'static str, fn(&mut Folder, &mut Random));

const READERS: &[Call] = &[Call::Inspect, Call::Convert];
const ALL: &[Call] = &[Call::Inspect, Call::Show, Call::Tokenize, Call::Convert, Call::Diff];
const NORM: &str = "model.norm.weight";
const MATRIX: &str = "model.layers.0.mlp.down_proj.weight";
const SHARD: &str = "model-00001-of-00002.safetensors";

const HEADER: &[Lie] = &[
    ("header of 0 bytes", |f, _| f.header_length = Some(0)),
    ("header one byte shorter", |f, _| f.header_length = Some(f.header.to_string().len() as u64 - 1)),
    ("header one byte longer", |f, _| f.header_length = Some(f.header.to_string().len() as u64 + 1)),
    ("header to the end of the file", |f, _| {
        f.header_length = Some((f.header.to_string().len() + f.data.len()) as u64);
    }),
    ("header of 2^31 bytes", |f, _| f.header_length = Some(1 << 31)),
    ("header of 2^63 bytes", |f, _| f.header_length = Some(1 << 63)),
    ("header of 2^64-1 bytes", |f, _| f.header_length = Some(u64::MAX)),
    ("header of 2^64-8 bytes", |f, _| f.header_length = Some(u64::MAX - 7)),
    ("header is a list", |f, _| f.header_text = Some(b"[]".to_vec())),
    ("header is empty", |f, _| f.header_text = Some(b"{}".to_vec())),
    ("header is no JSON", |f, _| f.header_text = Some(vec![b'{'; 500])),
    ("header is no UTF-8", |f, _| edit(f, "\"model.norm.weight\"", b"\"model.norm\xff\xfeweight\"")),
    ("header has 10000 tensors over the same bytes", |f, _| {
        let entries = f.header.as_object_mut().expect("an object");
        let same = json!({"dtype": "BF16", "shape": [f.data.len() / 2], "data_offsets": [0, f.data.len()]});
        entries.extend((0..10_000).map(|number| (format!("model.layers.{number}.same"), same.clone())));
    }),
    ("header is a bomb of lists", |f, _| f.header_text = Some([b"{\"a\":".to_vec(), vec![b'['; 300_000]].concat())),
    ("header has a tensor twice", |f, _| {
        edit(f, "{\"", b"{\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[0],\"data_offsets\":[0,0]},\"")
    }),
    ("header has a key of a tensor twice", |f, _| {
        edit(f, "{\"dtype\":\"BF16\",", b"{\"dtype\":\"BF16\",\"dtype\":\"BF16\",")
    }),
    ("header has garbage behind it", |f, _| {
        f.header_text = Some([f.header.to_string().into_bytes(), b"}}".to_vec()].concat());
    }),
    ("header ends in a zero byte", |f, _| f.header_text = Some([f.header.to_string().into_bytes(), vec![0]].concat())),
    ("metadata is a list", |f, _| f.header["__metadata__"] = json!([])),
    ("metadata has a number", |f, _| f.header["__metadata__"] = json!({"format": 1})),
    ("type unknown", |f, _| f.tensor(NORM)["dtype"] = json!("F7")),
    ("type with control characters", |f, _| f.tensor(NORM)["dtype"] = json!("\u{1b}[2J\u{202e}\n")),
    ("type is a number", |f, _| f.tensor(NORM)["dtype"] = json!(1)),
    ("type missing", |f, _| drop(f.tensor(NORM).as_object_mut().expect("an object").remove("dtype"))),
    ("type wider", |f, _| f.tensor(NORM)["dtype"] = json!("F32")),
    ("shape missing", |f, _| drop(f.tensor(NORM).as_object_mut().expect("an object").remove("shape"))),
    ("shape is text", |f, _| f.tensor(NORM)["shape"] = json!("64")),
    ("shape negative", |f, _| f.tensor(NORM)["shape"] = json!([-64])),
    ("shape broken", |f, _| f.tensor(NORM)["shape"] = json!([64.5])),
    ("shape 0", |f, _| f.tensor(NORM)["shape"] = json!([0])),
    ("shape one more", |f, _| f.tensor(NORM)["shape"] = json!([65])),
    ("shape of five", |f, _| f.tensor(NORM)["shape"] = json!([64, 1, 1, 1, 1])),
    ("shape of 10000", |f, _| f.tensor(NORM)["shape"] = json!(vec![1; 10_000])),
    ("shape 2^64", |f, _| edit(f, "\"shape\":[64]", b"\"shape\":[18446744073709551616]")),
    ("shape 2^63", |f, _| f.tensor(NORM)["shape"] = json!([1_u64 << 63])),
    ("shape whose product wraps", |f, _| f.tensor(MATRIX)["shape"] = json!([1_u64 << 32, 1_u64 << 32])),
    ("shape whose product wraps to the size", |f, _| f.tensor(NORM)["shape"] = json!([(1_u64 << 63) + 32, 2])),
    ("offsets missing", |f, _| drop(f.tensor(NORM).as_object_mut().expect("an object").remove("data_offsets"))),
    ("offsets of one", |f, _| f.tensor(NORM)["data_offsets"] = json!([0])),
    ("offsets of three", |f, _| f.tensor(NORM)["data_offsets"] = json!([0, 128, 256])),
    ("offsets exchanged", |f, _| f.tensor(NORM)["data_offsets"].as_array_mut().expect("offsets").reverse()),
    ("offsets negative", |f, _| f.tensor(NORM)["data_offsets"] = json!([-128, 0])),
    ("offsets as text", |f, _| f.tensor(NORM)["data_offsets"] = json!(["0", "128"])),
    ("offsets behind the file", |f, r| {
        let start = f.data.len() + r.below(1 << 30);
        f.tensor(NORM)["data_offsets"] = json!([start, start + 128]);
    }),
    ("offsets that wrap", |f, _| f.tensor(NORM)["data_offsets"] = json!([u64::MAX - 63, 64])),
    ("offsets at 2^64-1", |f, _| f.tensor(NORM)["data_offsets"] = json!([u64::MAX, u64::MAX])),
    ("offsets of another tensor", |f, _| f.tensor(NORM)["data_offsets"] = json!([0, 128])),
    ("offset one too early", |f, _| {
        let end = f.tensor(NORM)["data_offsets"][0].as_u64().expect("an offset");
        f.tensor(NORM)["data_offsets"] = json!([end - 1, end + 127]);
    }),
    ("data one byte shorter", |f, _| f.data.truncate(f.data.len() - 1)),
    ("data one byte longer", |f, _| f.data.push(0)),
    ("data with a gap", |f, _| f.header[NORM]["data_offsets"] = json!([f.data.len() + 2, f.data.len() + 130])),
    ("data cut", |f, r| f.data.truncate(r.below(f.data.len()))),
    ("no data", |f, _| f.data.clear()),
    ("file cut in the header", |f, r| {
        let whole = f.tensors();
        f.put("model.safetensors", &whole[..r.between(9, 900)]);
    }),
    ("file cut in the length", |f, r| f.put("model.safetensors", vec![1; r.between(1, 8)])),
    ("file empty", |f, _| f.put("model.safetensors", "")),
    ("file a hole of 1 TiB", |f, _| f.put_entry("model.safetensors", Entry::Sparse(f.tensors(), 1 << 40))),
    ("file a pipe", |f, _| f.put_entry("model.safetensors", Entry::Pipe)),
    ("file a directory", |f, _| f.put_entry("model.safetensors", Entry::Folder)),
    ("file a link to itself", |f, _| f.put_entry("model.safetensors", Entry::Link("model.safetensors".to_owned()))),
    ("file a device", |f, _| f.put_entry("model.safetensors", Entry::Link("/dev/zero".to_owned()))),
    ("no weights", |f, _| f.missing.push("model.safetensors")),
    ("pickle in place of weights", |f, _| {
        f.missing.push("model.safetensors");
        f.put("pytorch_model.bin", b"\x80\x02cposix\nsystem\n(S'true'\ntR.".to_vec());
    }),
];

const INDEX: &[Lie] = &[
    ("index without weights", |f, _| f.put("model.safetensors.index.json", "{\"weight_map\": {}}")),
    ("index without map", |f, _| f.put("model.safetensors.index.json", "{}")),
    ("index is a list", |f, _| f.put("model.safetensors.index.json", "[]")),
    ("index with a tensor twice", |f, _| {
        f.put(
            "model.safetensors.index.json",
            "{\"weight_map\": {\"a\": \"model.safetensors\", \"a\": \"model.safetensors\"}}",
        );
    }),
    ("index a bomb", |f, _| f.put("model.safetensors.index.json", "[".repeat(200_000))),
    ("index a pipe", |f, _| f.put_entry("model.safetensors.index.json", Entry::Pipe)),
    ("shard outside", |f, _| name_shard(f, "../model/model-00001-of-00002.safetensors")),
    ("shard absolute", |f, _| name_shard(f, "/etc/passwd")),
    ("shard upwards", |f, _| name_shard(f, "..")),
    ("shard without name", |f, _| name_shard(f, "")),
    ("shard with a zero byte", |f, _| name_shard(f, "model\u{0}.safetensors")),
    ("shard with control characters", |f, _| name_shard(f, "\u{1b}[2J\u{202e}.safetensors")),
    ("shard with a name of 100000 bytes", |f, _| name_shard(f, &"s".repeat(100_000))),
    ("shard missing", |f, _| {
        f.split();
        f.files.retain(|(name, _)| name != SHARD);
    }),
    ("shards exchanged", |f, _| {
        f.split();
        let swapped = [f.files[0].1.clone(), f.files[1].1.clone()];
        [f.files[1].1, f.files[0].1] = swapped;
    }),
    ("shard twice", |f, _| {
        f.split();
        f.files[0].1 = f.files[1].1.clone();
    }),
    ("tensor of the index in no shard", |f, _| {
        f.split();
        f.change_index(|map| drop(map.insert("model.extra.weight".to_owned(), json!(SHARD))));
    }),
    ("tensor of a shard not in the index", |f, _| {
        f.split();
        f.change_index(|map| drop(map.remove(NORM)));
    }),
    ("tensor in the other shard", |f, r| {
        f.split();
        let number = r.below(20);
        f.change_index(|map| {
            let value = map.values_mut().nth(number).expect("a tensor");
            let other = if value == SHARD { SHARD.replace("00001-", "00002-") } else { SHARD.to_owned() };
            *value = json!(other);
        });
    }),
];

const CONFIG: &[Lie] = &[
    ("end tokens by hundreds of thousands, in two files", |f, _| {
        f.config["eos_token_id"] = (0..300_000).collect();
        f.put("generation_config.json", json!({"eos_token_id": (0..300_000).rev().collect::<Vec<u32>>()}).to_string());
    }),
    ("no config", |f, _| f.missing.push("config.json")),
    ("config empty", |f, _| f.put("config.json", "")),
    ("config a list", |f, _| f.put("config.json", "[]")),
    ("config cut", |f, r| {
        let text = f.config.to_string();
        f.put("config.json", &text.as_bytes()[..r.between(1, text.len())]);
    }),
    ("config a bomb", |f, _| f.put("config.json", "{\"a\":".repeat(100_000))),
    ("config is no UTF-8", |f, _| f.put("config.json", b"{\"model_type\": \"\xff\"}".to_vec())),
    ("config with a key twice", |f, _| {
        f.put("config.json", f.config.to_string().replacen('{', "{\"hidden_size\": 64, ", 1));
    }),
    ("config a pipe", |f, _| f.put_entry("config.json", Entry::Pipe)),
    ("config a hole of 1 GiB", |f, _| f.put_entry("config.json", Entry::Sparse(b"{".to_vec(), 1 << 30))),
    ("architecture unknown", |f, _| f.config["architectures"] = json!(["\u{202e}Toaster\u{1b}"])),
    ("architecture a text", |f, _| f.config["architectures"] = json!("Qwen2ForCausalLM")),
    ("no architecture", |f, _| f.config["architectures"] = json!([])),
    ("no heads", |f, _| f.config["num_attention_heads"] = json!(0)),
    ("heads that do not divide", |f, _| f.config["num_attention_heads"] = json!(3)),
    ("heads 2^64", |f, _| f.config["num_attention_heads"] = json!(1.8446744073709552e19)),
    ("heads negative", |f, _| f.config["num_attention_heads"] = json!(-4)),
    ("heads as text", |f, _| f.config["num_attention_heads"] = json!("4")),
    ("heads half", |f, _| f.config["num_attention_heads"] = json!(4.5)),
    ("heads null", |f, _| f.config["num_attention_heads"] = Value::Null),
    ("KV heads that do not divide", |f, _| f.config["num_key_value_heads"] = json!(3)),
    ("layers one more", |f, _| f.config["num_hidden_layers"] = json!(3)),
    ("layers 2^53", |f, _| f.config["num_hidden_layers"] = json!(1_u64 << 53)),
    ("layers 2^64-1", |f, _| f.config["num_hidden_layers"] = json!(u64::MAX)),
    ("width 0", |f, _| f.config["hidden_size"] = json!(0)),
    ("width 2^63", |f, _| f.config["hidden_size"] = json!(1_u64 << 63)),
    ("head size odd", |f, _| f.config["head_dim"] = json!(15)),
    ("epsilon 0", |f, _| f.config["rms_norm_eps"] = json!(0)),
    ("epsilon huge", |f, _| {
        f.put("config.json", f.config.to_string().replacen("1e-6", "1e999", 1).replacen("1e-06", "1e999", 1))
    }),
    ("epsilon NaN", |f, _| {
        f.put("config.json", f.config.to_string().replacen("1e-6", "NaN", 1).replacen("1e-06", "NaN", 1))
    }),
    ("epsilon a list", |f, _| f.config["rms_norm_eps"] = json!([1e-6])),
    ("rope base negative", |f, _| f.config["rope_theta"] = json!(-1.0)),
    ("rope scaling unknown", |f, _| f.config["rope_scaling"] = json!({"rope_type": "\u{1b}origami", "factor": 2.0})),
    ("rope scaling a list", |f, _| f.config["rope_scaling"] = json!([1])),
    ("rope factor 0", |f, _| f.config["rope_scaling"] = json!({"rope_type": "linear", "factor": 0.0})),
    ("vocabulary one more", |f, _| f.config["vocab_size"] = json!(401)),
    ("vocabulary 0", |f, _| f.config["vocab_size"] = json!(0)),
    ("activation unknown", |f, _| f.config["hidden_act"] = json!("\u{1b}]0;cosh\u{7}")),
    ("end token beyond the vocabulary and no other", |f, _| {
        f.tokenizer_config["eos_token"] = Value::Null;
        f.config["eos_token_id"] = json!(4000);
    }),
    ("end token 2^32-1 and no other", |f, _| {
        f.tokenizer_config["eos_token"] = Value::Null;
        f.config["eos_token_id"] = json!(u32::MAX);
    }),
    ("end token as text", |f, _| f.config["eos_token_id"] = json!("</s>\u{1b}[2J")),
    ("end token negative", |f, _| f.config["eos_token_id"] = json!([2, -5])),
    ("end token of 2^32", |f, _| f.config["eos_token_id"] = json!(1_u64 << 32)),
];

const ACCEPTED: &[Lie] = &[
    ("as it was", |_, _| ()),
    ("two shards", |f, _| f.split()),
    ("links into a cache", |f, _| {
        f.put("blobs/0123", f.tensors());
        f.put_entry("model.safetensors", Entry::Link("blobs/0123".to_owned()));
    }),
    ("spaces behind the header", |f, _| f.header_text = Some(format!("{}{}", f.header, " ".repeat(77)).into_bytes())),
    ("header spread over lines", |f, _| f.header_text = serde_json::to_vec_pretty(&f.header).ok()),
    ("metadata that nobody knows", |f, _| f.header["__metadata__"] = json!({"\u{1b}[2J": "\u{202e}", "": ""})),
    ("no metadata", |f, _| drop(f.header.as_object_mut().expect("an object").remove("__metadata__"))),
    ("header backwards", |f, _| {
        let entries: Vec<_> = f.header.as_object().expect("an object").clone().into_iter().rev().collect();
        f.header = Value::Object(entries.into_iter().collect());
    }),
    ("unknown keys in config", |f, _| f.config["\u{202e}new"] = json!({"deep": [[[]]]})),
    ("other files beside", |f, _| {
        f.put("README.md", "hello");
        f.put("training_args.bin", b"\x80\x02cposix\nsystem\n(S'true'\ntR.".to_vec());
        f.put("onnx/model.onnx", vec![8]);
        f.put_entry("broken", Entry::Link("nowhere".to_owned()));
    }),
    ("end token beyond the vocabulary beside a good one", |f, _| f.config["eos_token_id"] = json!(4000)),
    ("no padding token, as -1", |f, _| f.config["pad_token_id"] = json!(-1)),
    ("numbers with a point", |f, _| f.config["rope_theta"] = json!(1e6)),
];

/// All cases.
pub fn cases(seed: u64, good: &Folder) -> Vec<Case> {
    let mut cases = lies(seed, good, &[HEADER, INDEX].concat(), READERS, &[]);
    cases.extend(lies(seed, good, CONFIG, &[Call::Convert], &[]));
    cases.extend(lies(seed, good, ACCEPTED, &[], ALL));
    cases
}

/// Folders with a change each.
pub fn lies(seed: u64, good: &Folder, lies: &[Lie], refused: &'static [Call], accepted: &'static [Call]) -> Vec<Case> {
    let case = |(name, lie): &Lie| {
        with_change(name, good, refused, accepted, |folder| lie(folder, &mut Random::new(seed, name)))
    };
    lies.iter().map(case).collect()
}

/// A folder with a change.
pub fn with_change(
    name: &str,
    good: &Folder,
    refused_by: &'static [Call],
    accepted_by: &'static [Call],
    change: impl FnOnce(&mut Folder),
) -> Case {
    let mut folder = good.clone();
    change(&mut folder);
    let (name, files) = (name.to_owned(), folder.files());
    Case {
        name,
        files,
        model: FOLDER,
        trace: None,
        named: FOLDER,
        says: "",
        memory_kib: MEMORY_KIB,
        refused_by,
        accepted_by,
    }
}

/// Replaces a piece of the header's text.
fn edit(folder: &mut Folder, from: &str, to: &[u8]) {
    let text = folder.header.to_string();
    let place = text.find(from).unwrap_or_else(|| panic!("no {from} in the header"));
    folder.header_text = Some([&text.as_bytes()[..place], to, &text.as_bytes()[place + from.len()..]].concat());
}

/// Splits the folder and gives one shard another name in the index.
fn name_shard(folder: &mut Folder, name: &str) {
    folder.split();
    folder.change_index(|map| {
        map.values_mut().filter(|shard| *shard == SHARD).for_each(|shard| *shard = json!(name));
    });
}
