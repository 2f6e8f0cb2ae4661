//! Lies in traces of other programs: safetensors, NumPy's `.npz`, the text of llama.cpp's eval-callback example.

use crate::case::{Call, Case, Entry, MEMORY_KIB};
use crate::npz::{self, Array};
use crate::random::Random;
use serde_json::{Value, json};

const MODEL: &str = "model.gguf";
const SAFETENSORS: &str = "trace.safetensors";
const NPZ: &str = "trace.npz";
const TEXT: &str = "trace.txt";
const NODE: &str = "0/attn_norm-0";

/// A good model and a trace of it.
pub struct Good {
    pub model: Vec<u8>,
    pub trace: Vec<u8>,
}

/// A safetensors trace taken apart.
#[derive(Clone)]
struct Parts {
    header: Value,
    header_length: Option<u64>,
    data: Vec<u8>,
}

type Lie = (&'static str, fn(&mut Parts, &mut Random));
type ArrayLie = (&'static str, fn(&mut Vec<Array>, &mut Random));
type TextLie = (&'static str, fn(&str, &mut Random) -> Vec<u8>);

const LIES: &[Lie] = &[
    ("header of 2^63 bytes", |p, _| p.header_length = Some(1 << 63)),
    ("header of 2^31 bytes", |p, _| p.header_length = Some(1 << 31)),
    ("header one byte shorter", |p, _| p.header_length = Some(p.header.to_string().len() as u64 - 1)),
    ("data cut", |p, r| p.data.truncate(r.below(p.data.len()))),
    ("data one byte longer", |p, _| p.data.push(0)),
    ("no data", |p, _| p.data.clear()),
    ("type unknown", |p, _| p.header[NODE]["dtype"] = json!("\u{1b}[2J\u{202e}")),
    ("type of bytes", |p, _| {
        p.header[NODE]["dtype"] = json!("I8");
        p.header[NODE]["shape"] = json!([4, 256]);
    }),
    ("shape negative", |p, _| p.header[NODE]["shape"] = json!([-4, 64])),
    ("shape whose product wraps", |p, _| p.header[NODE]["shape"] = json!([1_u64 << 32, 1_u64 << 32])),
    ("shape of another order", |p, _| p.header[NODE]["shape"] = json!([64, 4])),
    ("shape of one more token", |p, _| grow(p, NODE, json!([5, 64]))),
    ("shape empty", |p, _| grow(p, NODE, json!([0, 64]))),
    ("offsets of another node", |p, _| p.header[NODE]["data_offsets"] = json!([0, 1024])),
    ("offsets that wrap", |p, _| p.header[NODE]["data_offsets"] = json!([u64::MAX - 1023, 0])),
    ("no ids", |p, _| drop(metadata(p).remove("ids"))),
    ("ids empty", |p, _| set(p, "ids", "")),
    ("ids of words", |p, _| set(p, "ids", "one two")),
    ("ids negative", |p, _| set(p, "ids", "-1 7 42 9 219")),
    ("ids with control characters", |p, _| set(p, "ids", "1 7 \u{1b}[2J\u{202e} 9 219")),
    ("an id beyond the vocabulary", |p, _| set(p, "ids", "1 7 400 9 219")),
    ("an id of 2^32-1", |p, _| set(p, "ids", "1 7 4294967295 9 219")),
    ("an id of 2^64", |p, _| set(p, "ids", "1 7 18446744073709551616 9 219")),
    ("an id less", |p, _| set(p, "ids", "1 7 42 9")),
    ("ids by two millions", |p, _| set(p, "ids", &"1 ".repeat(2_000_000))),
    ("tokens of words", |p, _| set(p, "tokens", "four one")),
    ("tokens 0", |p, _| set(p, "tokens", "0 5")),
    ("tokens negative", |p, _| set(p, "tokens", "-1 6")),
    ("tokens more than ids", |p, _| set(p, "tokens", "4 2")),
    ("tokens 2^63", |p, _| set(p, "tokens", "9223372036854775808 1")),
    ("tokens that wrap", |p, _| set(p, "tokens", "18446744073709551615 6")),
    ("tokens of another step", |p, _| set(p, "tokens", "3 2")),
    ("a step of 2^63", |p, _| rename(p, NODE, "9223372036854775808/attn_norm-0")),
    ("a step of 2^64-1", |p, _| rename(p, NODE, "18446744073709551615/attn_norm-0")),
    ("a node twice, with and without step", |p, _| rename(p, NODE, "attn_out-0")),
];

const ARRAYS: &[ArrayLie] = &[
    ("npz: a type of objects", |a, _| a[0].descr = "|O"),
    ("npz: a type of text", |a, _| a[0].descr = "<U9"),
    ("npz: big-endian", |a, _| a[0].descr = ">f4"),
    ("npz: columns first", |a, _| a[0].fortran = true),
    ("npz: shape larger", |a, r| a[0].shape = format!("({}, 64)", r.between(5, 1 << 30))),
    ("npz: shape negative", |a, _| a[0].shape = "(-4, 64)".to_owned()),
    ("npz: shape that wraps", |a, _| a[0].shape = "(4294967296, 4294967296)".to_owned()),
    ("npz: shape of 2^64", |a, _| a[0].shape = "(18446744073709551616,)".to_owned()),
    ("npz: shape of words", |a, _| a[0].shape = "(four, 64)".to_owned()),
    ("npz: shape a program", |a, _| a[0].shape = "(__import__('os').system('id'),)".to_owned()),
    ("npz: shape of nine", |a, _| a[0].shape = "(4, 64, 1, 1, 1, 1, 1, 1, 1)".to_owned()),
    ("npz: magic wrong", |a, r| a[0].magic[r.below(6)] ^= 1),
    ("npz: version 9", |a, _| a[0].magic[6] = 9),
    ("npz: header longer than the file", |a, _| a[0].header_length = Some(u16::MAX)),
    ("npz: header of no bytes", |a, _| a[0].header_length = Some(0)),
    ("npz: elements missing", |a, _| a[0].data.truncate(10)),
    ("npz: elements more", |a, _| a[0].data.extend([0; 4])),
    ("npz: no elements and no header", |a, _| a[0].whole = Some(Vec::new())),
    ("npz: an array twice", |a, _| a[1].name = a[0].name.clone()),
    ("npz: sum of bytes wrong", |a, r| a[0].check ^= 1 << r.below(32)),
    ("npz: size in the directory larger", |a, _| a[0].size_claimed = Some(u32::MAX - 1)),
    ("npz: size in the directory smaller", |a, _| a[0].size_claimed = Some(1)),
    ("npz: place behind the file", |a, _| a[0].place_claimed = Some(u32::MAX - 1)),
    ("npz: place of another", |a, _| a[1].place_claimed = Some(0)),
    ("npz: encrypted", |a, _| a[0].flags = 1),
    ("npz: method 99", |a, _| a[0].method = 99),
    ("npz: deflated, but plain", |a, _| a[0].method = 8),
    ("npz: deflated zeros by gigabytes", |a, _| {
        (a[0].method, a[0].whole, a[0].size_claimed) = (8, Some(npz::bomb()), Some(u32::MAX - 1));
    }),
    ("npz: no ids", |a, _| a.retain(|array| array.name != b"ids.npy")),
    ("npz: ids negative", |a, _| ids(a).data[..8].copy_from_slice(&(-1_i64).to_le_bytes())),
    ("npz: ids of 2^63-1", |a, _| ids(a).data[..8].copy_from_slice(&i64::MAX.to_le_bytes())),
    ("npz: an id beyond the vocabulary", |a, _| ids(a).data[..8].copy_from_slice(&400_i64.to_le_bytes())),
    ("npz: a name that is no text", |a, _| a[0].name = b"0/attn_norm-\xff.npy".to_vec()),
    ("npz: ids as floats", |a, _| ids(a).descr = "<f8"),
];

const TEXTS: &[TextLie] = &[
    ("text: empty", |_, _| Vec::new()),
    ("text: of something else", |_, _| b"hello\n".repeat(1000)),
    ("text: bytes", |_, r| (0..9000).map(|_| r.next() as u8 | 0x80).collect()),
    ("text: cut before the first tensor", |t, _| t[..t.find("common_debug").expect("a tensor")].into()),
    ("text: no ids", |t, _| t.replacen("number of input tokens = 3", "", 1).into()),
    ("text: an id less", |t, _| t.replacen("\n  42\n", "\n", 1).into()),
    ("text: an id beyond the vocabulary", |t, _| t.replacen("\n  42\n", "\n  4000000000\n", 1).into()),
    ("text: sizes of 2^64", |t, _| t.replacen("= {64, 3, 1, 1}", "= {64, 18446744073709551616, 1, 1}", 1).into()),
    ("text: sizes below zero", |t, _| t.replacen("= {64, 3, 1, 1}", "= {64, -3, 1, 1}", 1).into()),
    ("text: sizes that wrap", |t, _| t.replacen("= {64, 3, 1, 1}", "= {4294967296, 4294967296, 1, 1}", 1).into()),
    ("text: sizes of another order", |t, _| t.replacen("= {64, 3, 1, 1}", "= {3, 64, 1, 1}", 1).into()),
];

/// All cases: a trace by transformers of one model, the text of llama.cpp on another.
pub fn cases(seed: u64, good: &Good, printed: &Good) -> Vec<Case> {
    let parts = Parts::read(&good.trace);
    let arrays = arrays(&parts);
    let text = String::from_utf8(printed.trace.clone()).expect("a text");
    let mut cases = Vec::new();
    for (name, lie) in LIES {
        let mut parts = parts.clone();
        lie(&mut parts, &mut Random::new(seed, name));
        cases.push(refused(name, good, SAFETENSORS, Entry::File(parts.bytes())));
    }
    for (name, lie) in ARRAYS {
        let mut arrays = arrays.clone();
        lie(&mut arrays, &mut Random::new(seed, name));
        cases.push(refused(name, good, NPZ, Entry::File(npz::archive(&arrays))));
    }
    for (name, lie) in TEXTS {
        cases.push(refused(name, printed, TEXT, Entry::File(lie(&text, &mut Random::new(seed, name)))));
    }
    let archive = npz::archive(&arrays);
    let mut random = Random::new(seed, "npz: cut");
    let cut = archive[..random.between(100, archive.len() - 1)].to_vec();
    cases.push(refused("npz: cut", good, NPZ, Entry::File(cut)));
    cases.push(refused("npz: a hole behind it", good, NPZ, Entry::Sparse(archive.clone(), 1 << 40)));
    cases.push(refused(
        "npz: a comment that is too long",
        good,
        NPZ,
        Entry::File([&archive[..], &[0; 70_000]].concat()),
    ));
    for (name, entry) in
        [("a pipe", Entry::Pipe), ("a directory", Entry::Folder), ("a device", Entry::Link("/dev/zero".to_owned()))]
    {
        cases.push(refused(name, good, SAFETENSORS, entry));
    }
    cases.push(refused("a hole of 1 TiB", good, SAFETENSORS, Entry::Sparse(Vec::new(), 1 << 40)));
    cases.extend(accepted(good, printed, &parts, archive));
    cases
}

fn accepted(good: &Good, printed: &Good, parts: &Parts, archive: Vec<u8>) -> Vec<Case> {
    let mut cases = vec![
        case("as it was", good, SAFETENSORS, Entry::File(good.trace.clone())),
        case("npz: as it was", good, NPZ, Entry::File(archive)),
        case("text: as it was", printed, TEXT, Entry::File(printed.trace.clone())),
    ];
    let mut noise = parts.clone();
    set(&mut noise, "program", "\u{1b}[2J\u{202e}\n");
    cases.push(case("a program of control characters", good, SAFETENSORS, Entry::File(noise.bytes())));
    let lines = [b"\x1b[2J\xff noise\n".repeat(100), printed.trace.clone()].concat();
    cases.push(case("text: other lines before", printed, TEXT, Entry::File(lines)));
    cases.into_iter().map(|case| Case { refused_by: &[], accepted_by: &[Call::Trace], ..case }).collect()
}

fn refused(name: &str, good: &Good, file: &'static str, entry: Entry) -> Case {
    Case { refused_by: &[Call::Trace], ..case(name, good, file, entry) }
}

fn case(name: &str, good: &Good, file: &'static str, entry: Entry) -> Case {
    let files = vec![(MODEL.to_owned(), Entry::File(good.model.clone())), (file.to_owned(), entry)];
    Case {
        name: name.to_owned(),
        files,
        model: MODEL,
        trace: Some(file),
        named: file,
        says: "",
        memory_kib: MEMORY_KIB,
        refused_by: &[],
        accepted_by: &[],
    }
}

impl Parts {
    fn read(bytes: &[u8]) -> Parts {
        let (length, rest) = bytes.split_first_chunk().expect("a header");
        let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
        Parts { header: serde_json::from_slice(header).expect("JSON"), header_length: None, data: data.to_vec() }
    }

    fn bytes(&self) -> Vec<u8> {
        let header = self.header.to_string().into_bytes();
        let length = self.header_length.unwrap_or(header.len() as u64);
        [&length.to_le_bytes(), &header[..], &self.data].concat()
    }
}

/// The same trace as arrays of NumPy.
fn arrays(parts: &Parts) -> Vec<Array> {
    let list = |value: &Value| value.to_string().replace(['[', ']'], "").replace(',', ", ");
    let mut arrays = Vec::new();
    for (name, tensor) in
        parts.header.as_object().expect("an object").iter().filter(|(name, _)| *name != "__metadata__")
    {
        assert_eq!(tensor["dtype"], "F32", "{name}");
        let [start, end] = [0, 1].map(|side| tensor["data_offsets"][side].as_u64().expect("an offset") as usize);
        arrays.push(Array::new(name, "<f4", format!("({},)", list(&tensor["shape"])), &parts.data[start..end]));
    }
    for key in ["ids", "tokens"] {
        let numbers = parts.header["__metadata__"][key].as_str().expect("numbers").split(' ');
        let numbers: Vec<i64> = numbers.map(|number| number.parse().expect("a number")).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        arrays.push(Array::new(key, "<i8", format!("({},)", numbers.len()), &bytes));
    }
    arrays
}

fn ids(arrays: &mut [Array]) -> &mut Array {
    arrays.iter_mut().find(|array| array.name == b"ids.npy").expect("ids")
}

fn metadata(parts: &mut Parts) -> &mut serde_json::Map<String, Value> {
    parts.header["__metadata__"].as_object_mut().expect("an object")
}

fn set(parts: &mut Parts, key: &str, value: &str) {
    metadata(parts).insert(key.to_owned(), json!(value));
}

fn rename(parts: &mut Parts, from: &str, to: &str) {
    let header = parts.header.as_object_mut().expect("an object");
    let tensor = header.remove(from).expect("a node");
    header.insert(to.to_owned(), tensor);
}

/// Gives a node another shape and room for it behind the data; what it had belongs to a node of its own.
fn grow(parts: &mut Parts, name: &str, shape: Value) {
    let count: u64 = shape.as_array().expect("a shape").iter().map(|size| size.as_u64().expect("a size")).product();
    let start = parts.data.len();
    parts.data.extend(vec![0; count as usize * 4]);
    if let Some(old) = parts.header.get(name).cloned() {
        parts.header["0/left_over"] = old;
    }
    parts.header[name] = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, parts.data.len()]});
}
