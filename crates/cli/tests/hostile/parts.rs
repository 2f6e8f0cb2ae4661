//! Parts of models that qwen2 does not have, each with one wrong key, tensor or file.
//!
//! ```text
//! fixture ── one Change ─┬─▶ model.gguf ── run ──────┬─▶ refused, and the cause is named
//!                        └─▶ model/ ────── convert ──┘
//! ```
//!
//! A table for each part is in `parts/`, one row for each file. `docs/hostile-input.md` counts the rows. Vocabulary
//! cases also run `tokenize`.

mod attention;
mod encoder;
mod encoder_decoder;
mod experts;
mod latent;
mod layers;
mod ranks;
mod state_space;
mod unigram;
mod word_piece;

use crate::case::{Call, Case, Entry, Files, MEMORY_KIB};
use crate::folder::{FOLDER, Folder};
use crate::gguf::MODEL;
use crate::gguf_parts::{self as gguf, Parts};
use crate::sentencepiece::{self, Fields};
use crate::{converted, fixture};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// A fixture, what is changed in it, and words that the message must contain.
pub type Row = (&'static str, Change, &'static str);

/// Files of one part.
pub struct Part {
    name: &'static str,
    /// GGUF files.
    files: &'static [Row],
    /// Directories with `config.json` and safetensors.
    folders: &'static [Row],
    /// The commands that read a GGUF file.
    calls: &'static [Call],
}

impl Part {
    /// The commands that read a directory.
    fn folder_calls(&self) -> &'static [Call] {
        match self.calls.contains(&Call::Tokenize) {
            true => &[Call::Tokenize, Call::Convert],
            false => &[Call::Convert],
        }
    }
}

/// One change of a GGUF file or of a directory.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// Sets a GGUF key. A name that does not start with `general.`, `tokenizer.` or `trueup.` belongs to the
    /// architecture.
    Key(&'static str, Given),
    /// Removes a GGUF key.
    NoKey(&'static str),
    /// Replaces an item of a GGUF array.
    Item(&'static str, usize, Given),
    /// Gives a tensor another shape, and data of that size.
    Shape(&'static str, &'static [u64]),
    /// Removes a tensor.
    NoTensor(&'static str),
    /// Adds a tensor of zeros.
    Tensor(&'static str, &'static [u64]),
    /// Sets a key of `config.json` to this JSON.
    Config(&'static str, &'static str),
    /// Replaces a file of a directory.
    File(&'static str, &'static str),
    /// As `File`, for bytes that are not UTF-8.
    Bytes(&'static str, &'static [u8]),
    /// Replaces a file of a directory by a file of another fixture.
    Fixture(&'static str, &'static str),
    /// Removes a file of a directory.
    NoFile(&'static str),
    /// Keeps only the first bytes of a file.
    Cut(&'static str, usize),
    /// Replaces a line of a text file. Lines count from 1, and the line after the last one is added.
    Line(&'static str, usize, &'static str),
    /// Sets the value at a JSON pointer in `tokenizer.json` or `tokenizer_config.json`.
    Json(&'static str, &'static str, &'static str),
    /// Removes the value at a JSON pointer.
    NoJson(&'static str, &'static str),
    /// Replaces a piece of `tokenizer.model`: its text, score and type.
    Piece(usize, &'static [u8], f32, u64),
    /// Adds a message with this number and content at the end of `tokenizer.model`.
    Message(u64, &'static [u8]),
    /// Removes the messages with this number from `tokenizer.model`.
    NoMessage(u64),
}

/// The value of a GGUF key.
#[derive(Clone, Copy, Debug)]
pub enum Given {
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Text(&'static str),
    U8s(&'static [u8]),
    U32s(&'static [u32]),
    I32s(&'static [i32]),
    F32s(&'static [f32]),
    Bools(&'static [bool]),
    Texts(&'static [&'static str]),
    /// Item type, declared count (may be wrong) and item bytes of an array.
    Array(u32, u64, &'static [u8]),
}

const PARTS: &[Part] = &[
    attention::PART,
    layers::PART,
    experts::PART,
    latent::PART,
    state_space::PART,
    encoder::PART,
    encoder_decoder::PART,
    unigram::PART,
    word_piece::PART,
    ranks::PART,
];

/// The file that [`Change::Piece`] and others change.
const PIECES: &str = "tokenizer.model";

/// All cases: each row, and each fixture as it is.
pub fn cases() -> Vec<Case> {
    PARTS.iter().flat_map(|part| files(part).into_iter().chain(folders(part))).collect()
}

fn files(part: &Part) -> Vec<Case> {
    let of_file = |parts: &Parts| vec![(MODEL.to_owned(), Entry::File(parts.bytes()))];
    let mut good: BTreeMap<&str, Parts> = BTreeMap::new();
    let mut cases = Vec::new();
    for (name, change, says) in part.files {
        let mut parts = good.entry(name).or_insert_with(|| Parts::read(&converted(name))).clone();
        change.apply_to_file(&mut parts);
        cases.push(Case { refused_by: part.calls, says, ..case(format!("{name}.gguf {change:?}"), of_file(&parts)) });
    }
    let accepted = |(name, parts): (&&str, &Parts)| Case {
        accepted_by: part.calls,
        ..case(format!("{name}.gguf of {}", part.name), of_file(parts))
    };
    cases.extend(good.iter().map(accepted));
    cases
}

fn folders(part: &Part) -> Vec<Case> {
    let mut good: BTreeMap<&str, Folder> = BTreeMap::new();
    let mut cases = Vec::new();
    for (name, change, says) in part.folders {
        let mut folder = good.entry(name).or_insert_with(|| read_folder(name)).clone();
        change.apply_to_folder(&mut folder);
        let case = case(format!("{name} {change:?}"), folder.files());
        cases.push(Case { model: FOLDER, named: FOLDER, refused_by: part.folder_calls(), says, ..case });
    }
    for (name, folder) in &good {
        let case = case(format!("{name} of {}", part.name), folder.files());
        cases.push(Case { model: FOLDER, named: FOLDER, accepted_by: part.folder_calls(), ..case });
    }
    cases
}

/// A fixture, or `FIXTURE + FILE`: a fixture with a file of another one.
fn read_folder(name: &str) -> Folder {
    let (name, file) = name.split_once(" + ").map_or((name, None), |(name, file)| (name, Some(file)));
    let mut folder = Folder::read_whole(&fixture(name));
    if let Some(file) = file {
        let (_, name) = file.rsplit_once('/').expect("a file in a directory");
        folder.replace(name, read_file(file));
    }
    folder
}

fn read_file(name: &str) -> Vec<u8> {
    fs::read(fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A GGUF file that no command reads yet.
fn case(name: String, files: Files) -> Case {
    Case {
        name,
        files,
        model: MODEL,
        trace: None,
        named: MODEL,
        says: "",
        memory_kib: MEMORY_KIB,
        refused_by: &[],
        accepted_by: &[],
    }
}

impl Change {
    fn apply_to_file(self, parts: &mut Parts) {
        match self {
            Change::Key(name, given) => {
                let (name, (value_type, value)) = (key(parts, name), given.value());
                parts.set(&name, value_type, &value);
            }
            Change::NoKey(name) => {
                let name = key(parts, name);
                parts.remove(&name);
            }
            Change::Item(name, index, given) => {
                let (name, (_, item)) = (key(parts, name), given.value());
                parts.set_item(&name, index, &item);
            }
            Change::Shape(name, shape) => parts.reshape(name, shape),
            Change::NoTensor(name) => parts.remove_tensor(name),
            Change::Tensor(name, shape) => parts.add_tensor(name, shape),
            _ => panic!("{self:?} changes a directory"),
        }
    }

    fn apply_to_folder(self, folder: &mut Folder) {
        match self {
            Change::Shape(name, shape) => folder.reshape(name, shape),
            Change::NoTensor(name) => folder.remove_tensor(name),
            Change::Tensor(name, shape) => folder.add_tensor(name, shape),
            Change::Config(name, json) => folder.config[name] = parsed(json),
            Change::File(name, text) => folder.replace(name, text),
            Change::Bytes(name, bytes) => folder.replace(name, bytes),
            Change::Fixture(name, file) => folder.replace(name, read_file(file)),
            Change::NoFile(name) => folder.remove(name),
            Change::Cut(name, length) => {
                let mut bytes = folder.bytes(name);
                assert!(length < bytes.len(), "{name} has {} bytes", bytes.len());
                bytes.truncate(length);
                folder.replace(name, bytes);
            }
            Change::Line(name, number, text) => {
                let bytes = with_line(&folder.bytes(name), number, text);
                folder.replace(name, bytes);
            }
            Change::Json(name, pointer, json) => set_json(folder.json(name), pointer, Some(parsed(json))),
            Change::NoJson(name, pointer) => set_json(folder.json(name), pointer, None),
            Change::Piece(place, text, score, kind) => {
                change_pieces(folder, |fields| fields[place] = sentencepiece::piece(text, score, kind));
            }
            Change::Message(number, content) => {
                change_pieces(folder, |fields| fields.push(sentencepiece::message(number, content)));
            }
            Change::NoMessage(number) => {
                change_pieces(folder, |fields| fields.retain(|field| field.number != number));
            }
            Change::Key(..) | Change::NoKey(..) | Change::Item(..) => panic!("{self:?} changes a GGUF file"),
        }
    }
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// Sets or removes the value that a JSON pointer leads to.
fn set_json(root: &mut Value, pointer: &str, value: Option<Value>) {
    let (parent, key) = pointer.rsplit_once('/').expect("a JSON pointer");
    let key = key.replace("~1", "/").replace("~0", "~");
    let parent = root.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer} leads nowhere"));
    match (parent, value) {
        (Value::Object(object), Some(value)) => drop(object.insert(key, value)),
        (Value::Object(object), None) => assert!(object.remove(&key).is_some(), "{pointer} leads nowhere"),
        (Value::Array(list), Some(value)) => list[key.parse::<usize>().expect("an index")] = value,
        (Value::Array(list), None) => drop(list.remove(key.parse().expect("an index"))),
        (other, _) => panic!("{pointer}: {other} has no values"),
    }
}

/// A text with another line.
fn with_line(bytes: &[u8], number: usize, text: &str) -> Vec<u8> {
    let file = std::str::from_utf8(bytes).expect("UTF-8 of a fixture");
    let mut lines: Vec<&str> = file.lines().collect();
    if number > lines.len() {
        lines.push(text);
    } else {
        lines[number - 1] = text;
    }
    format!("{}\n", lines.join("\n")).into_bytes()
}

fn change_pieces(folder: &mut Folder, change: impl FnOnce(&mut Fields)) {
    let mut fields = sentencepiece::read(&folder.bytes(PIECES));
    change(&mut fields);
    folder.replace(PIECES, sentencepiece::write(&fields));
}

impl Given {
    /// The type and the bytes of a value.
    fn value(self) -> (u32, Vec<u8>) {
        match self {
            Given::U32(value) => (gguf::U32, value.to_le_bytes().to_vec()),
            Given::I32(value) => (gguf::I32, value.to_le_bytes().to_vec()),
            Given::F32(value) => (gguf::F32, value.to_le_bytes().to_vec()),
            Given::Bool(value) => (gguf::BOOL, vec![value.into()]),
            Given::Text(value) => (gguf::STRING, gguf::string(value.as_bytes())),
            Given::U8s(values) => list(gguf::U8, values, |value| vec![*value]),
            Given::U32s(values) => list(gguf::U32, values, |value| value.to_le_bytes().to_vec()),
            Given::I32s(values) => list(gguf::I32, values, |value| value.to_le_bytes().to_vec()),
            Given::F32s(values) => list(gguf::F32, values, |value| value.to_le_bytes().to_vec()),
            Given::Bools(values) => list(gguf::BOOL, values, |value| vec![u8::from(*value)]),
            Given::Texts(values) => list(gguf::STRING, values, |value| gguf::string(value.as_bytes())),
            Given::Array(item_type, count, items) => (gguf::ARRAY, gguf::array(item_type, count, items)),
        }
    }
}

fn list<T>(item_type: u32, values: &[T], bytes: fn(&T) -> Vec<u8>) -> (u32, Vec<u8>) {
    let items: Vec<u8> = values.iter().flat_map(bytes).collect();
    (gguf::ARRAY, gguf::array(item_type, values.len() as u64, &items))
}

/// The full name of a key.
fn key(parts: &Parts, name: &str) -> String {
    let is_full = ["general.", "tokenizer.", "trueup."].iter().any(|start| name.starts_with(start));
    if is_full { name.to_owned() } else { format!("{}.{name}", parts.architecture()) }
}
