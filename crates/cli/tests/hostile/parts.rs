//! Parts of models that qwen2 does not have, each with one wrong key, tensor or file.
//!
//! ```text
//! fixture ── one Change ─┬─▶ model.gguf ── run ──────┬─▶ refused, and the cause is named
//!                        └─▶ model/ ────── convert ──┘
//! ```
//!
//! A table for each part is in `parts/`, one row for each file. `docs/hostile-input.md` counts the rows.

mod attention;
mod encoder;
mod encoder_decoder;
mod experts;
mod latent;
mod layers;
mod state_space;

use crate::case::{Call, Case, Entry, Files, MEMORY_KIB};
use crate::folder::{FOLDER, Folder};
use crate::gguf::MODEL;
use crate::gguf_parts::{self as gguf, Parts};
use crate::{converted, fixture};
use std::collections::BTreeMap;

/// A fixture, what is changed in it, and words that the message must contain.
pub type Row = (&'static str, Change, &'static str);

/// Files of one part.
pub struct Part {
    name: &'static str,
    /// GGUF files.
    files: &'static [Row],
    /// Directories with `config.json` and safetensors.
    folders: &'static [Row],
    /// The command that computes a GGUF file.
    calls: &'static [Call],
}

/// One change of a GGUF file or of a directory.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// Sets a GGUF key. A name without `general.` or `tokenizer.` belongs to the architecture.
    Key(&'static str, Given),
    /// Removes a GGUF key.
    NoKey(&'static str),
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
    /// Removes a file of a directory.
    NoFile(&'static str),
}

/// The value of a GGUF key.
#[derive(Clone, Copy, Debug)]
pub enum Given {
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Text(&'static str),
    U32s(&'static [u32]),
    Bools(&'static [bool]),
}

const PARTS: &[Part] = &[
    attention::PART,
    layers::PART,
    experts::PART,
    latent::PART,
    state_space::PART,
    encoder::PART,
    encoder_decoder::PART,
];

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
        let mut folder = good.entry(name).or_insert_with(|| Folder::read_whole(&fixture(name))).clone();
        change.apply_to_folder(&mut folder);
        let case = case(format!("{name} {change:?}"), folder.files());
        cases.push(Case { model: FOLDER, named: FOLDER, refused_by: &[Call::Convert], says, ..case });
    }
    cases
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
            Change::Key(name, given) => given.set(parts, &key(parts, name)),
            Change::NoKey(name) => parts.remove(&key(parts, name)),
            Change::Shape(name, shape) => parts.reshape(name, shape),
            Change::NoTensor(name) => parts.remove_tensor(name),
            Change::Tensor(name, shape) => parts.add_tensor(name, shape),
            Change::Config(..) | Change::File(..) | Change::NoFile(..) => panic!("{self:?} changes a directory"),
        }
    }

    fn apply_to_folder(self, folder: &mut Folder) {
        match self {
            Change::Shape(name, shape) => folder.reshape(name, shape),
            Change::NoTensor(name) => folder.remove_tensor(name),
            Change::Tensor(name, shape) => folder.add_tensor(name, shape),
            Change::Config(name, json) => {
                folder.config[name] = serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"));
            }
            Change::File(name, text) => folder.replace(name, text),
            Change::NoFile(name) => folder.remove(name),
            Change::Key(..) | Change::NoKey(..) => panic!("{self:?} changes a GGUF file"),
        }
    }
}

impl Given {
    fn set(self, parts: &mut Parts, name: &str) {
        match self {
            Given::U32(value) => parts.set_u32(name, value),
            Given::I32(value) => parts.set(name, gguf::I32, &value.to_le_bytes()),
            Given::F32(value) => parts.set_f32(name, value),
            Given::Bool(value) => parts.set(name, gguf::BOOL, &[value.into()]),
            Given::Text(value) => parts.set_text(name, value),
            Given::U32s(values) => {
                let items: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                parts.set(name, gguf::ARRAY, &gguf::array(gguf::U32, values.len() as u64, &items));
            }
            Given::Bools(values) => {
                let items: Vec<u8> = values.iter().map(|value| u8::from(*value)).collect();
                parts.set(name, gguf::ARRAY, &gguf::array(gguf::BOOL, values.len() as u64, &items));
            }
        }
    }
}

/// The full name of a key.
fn key(parts: &Parts, name: &str) -> String {
    let is_full = ["general.", "tokenizer."].iter().any(|start| name.starts_with(start));
    if is_full { name.to_owned() } else { format!("{}.{name}", parts.architecture()) }
}
