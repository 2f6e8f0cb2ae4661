//! Traces of any form: opened, read, and compared with a model.

use super::super::grammar::split_frames;
use super::super::node::{Cursor, Node, Unit, Width};
use super::super::seeds::{device, fixture_file, printed_model, verified};
use super::super::{Answer, law, refused};
use std::fs;
use std::path::Path;
use trueup::formats::{SafetensorsFile, Trace, TraceValues};
use trueup::verify::{TraceOptions, TraceTokens, compare_trace};

/// Elements of a trace that are looked at one by one.
const ELEMENTS_MAX: u64 = 1 << 22;

/// A safetensors trace.
pub fn safetensors(input: &[u8], folder: &Path) -> Result<Answer, String> {
    check(input, &folder.join("trace.safetensors"))
}

/// What llama.cpp's eval-callback example prints.
pub fn text(input: &[u8], folder: &Path) -> Result<Answer, String> {
    check(input, &folder.join("trace.txt"))
}

/// An archive of NumPy: as it stands, or put together of arrays so that all its sums are right.
///
/// ```text
/// 0 | archive            1 | for each array: name, method u16, contents, each behind its length
/// ```
pub fn npz(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let archive = match input {
        [1, arrays @ ..] => archive(&entries(arrays)),
        [_, archive @ ..] => archive.to_vec(),
        [] => Vec::new(),
    };
    check(&archive, &folder.join("trace.npz"))
}

/// Both forms of the same trace.
pub fn npz_seeds() -> Vec<Vec<u8>> {
    let arrays = arrays_of(&verified().trace);
    let entry = |(name, contents): &(Vec<u8>, Vec<u8>)| {
        let text =
            |bytes: &[u8]| Node::counted(Width::Bytes(4), Unit::Bytes, vec![Node::Bytes(bytes.to_vec())]).bytes();
        [text(name), vec![0, 0], text(contents)].concat()
    };
    let logical = arrays.iter().map(entry).collect::<Vec<_>>().concat();
    let entries: Vec<Entry> =
        arrays.into_iter().take(6).map(|(name, contents)| Entry { name, method: 0, contents }).collect();
    vec![[&[1][..], &logical].concat(), [&[0][..], &archive(&entries)].concat()]
}

/// Fields of both forms.
pub fn npz_grammar(bytes: &[u8]) -> Node {
    match bytes.split_first() {
        Some((1, arrays)) => {
            let mut fields = vec![Node::Bytes(vec![1])];
            let file = |bytes: &[u8], inside: Node| {
                if bytes.is_empty() {
                    Node::Bytes(Vec::new())
                } else {
                    Node::counted(Width::Bytes(4), Unit::Bytes, vec![inside])
                }
            };
            for Entry { name, method, contents } in entries(arrays) {
                let name = file(&name, Node::Text(name.clone()));
                fields.push(Node::Group(vec![
                    name,
                    Node::Number(method.to_le_bytes().to_vec()),
                    file(&contents, npy(&contents)),
                ]));
            }
            Node::Group(fields)
        }
        Some((form, archive)) => {
            // Records begin with "PK".
            let mut records = Vec::new();
            let mut rest = archive;
            while let Some(next) = rest.windows(2).skip(1).position(|pair| pair == b"PK") {
                let (record, after) = rest.split_at(next + 1);
                records.push(record_fields(record));
                rest = after;
            }
            records.push(record_fields(rest));
            Node::Group(vec![Node::Bytes(vec![*form]), Node::Group(records)])
        }
        None => Node::Bytes(Vec::new()),
    }
}

/// A record of an archive: 23 numbers of two bytes, and what follows.
fn record_fields(record: &[u8]) -> Node {
    let mut cursor = Cursor(record);
    let mut fields: Vec<Node> = (0..23.min(record.len() / 2)).filter_map(|_| cursor.field(2)).collect();
    fields.push(cursor.rest());
    Node::Group(fields)
}

/// An array: magic and version, a header behind its length, the elements.
fn npy(contents: &[u8]) -> Node {
    let mut cursor = Cursor(contents);
    let parse = |cursor: &mut Cursor<'_>| {
        let magic = cursor.field(8)?;
        let length = usize::try_from(cursor.number(2)?).ok()?;
        let header = super::super::grammar::lines(cursor.take(length)?);
        Some(Node::Group(vec![magic, Node::counted(Width::Bytes(2), Unit::Bytes, vec![header]), cursor.rest()]))
    };
    parse(&mut cursor).unwrap_or_else(|| Node::Bytes(contents.to_vec()))
}

/// One file of an archive.
struct Entry {
    name: Vec<u8>,
    method: u16,
    contents: Vec<u8>,
}

fn entries(mut bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    while !bytes.is_empty() && entries.len() < 1 << 12 {
        let name = split_frames(bytes, 1).swap_remove(0);
        bytes = bytes.get(4 + name.len()..).unwrap_or_default();
        let method = bytes.first_chunk().map_or(0, |method| u16::from_le_bytes(*method));
        bytes = bytes.get(2..).unwrap_or_default();
        let contents = split_frames(bytes, 1).swap_remove(0);
        bytes = bytes.get(4 + contents.len()..).unwrap_or_default();
        entries.push(Entry { name, method, contents });
    }
    entries
}

/// PKWARE's APPNOTE: local headers with contents, the directory, its end.
fn archive(entries: &[Entry]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for Entry { name, method, contents } in entries {
        let stored = if *method == 8 { stored_block(contents) } else { contents.clone() };
        let place = (file.len() as u32).to_le_bytes();
        let words = [20, 0, *method, 0, 0].map(u16::to_le_bytes).concat();
        let sizes = [checksum(contents), stored.len() as u32, contents.len() as u32].map(u32::to_le_bytes).concat();
        let lengths = [name.len() as u16, 0].map(u16::to_le_bytes).concat();
        let fields = [words, sizes, lengths].concat();
        file.extend([b"PK\x03\x04", &fields[..], name, &stored].concat());
        directory.extend([b"PK\x01\x02\x14\x00", &fields[..], &[0; 10], &place, name].concat());
    }
    let (count, place) = ((entries.len() as u16).to_le_bytes(), file.len() as u32);
    file.extend(&directory);
    file.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count].concat());
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(place.to_le_bytes());
    file.extend([0, 0]);
    file
}

/// Bytes in blocks that are not compressed (RFC 1951).
fn stored_block(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let count = bytes.chunks(u16::MAX.into()).len();
    for (number, block) in bytes.chunks(u16::MAX.into()).enumerate() {
        let length = block.len() as u16;
        out.push(u8::from(number + 1 == count));
        out.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
        out.extend(block);
    }
    out
}

/// CRC-32 of ISO 3309, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}

/// Names and `.npy` contents of the arrays and ids of a safetensors trace.
fn arrays_of(trace: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = scratch.path().join("trace.safetensors");
    fs::write(&path, trace).expect("a file can be written");
    let file = SafetensorsFile::open(&path).unwrap_or_else(|error| panic!("{error}"));
    let npy = |descr: &str, shape: &str, data: &[u8]| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape},), }}\n");
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
    };
    let mut arrays = Vec::new();
    for (number, tensor) in file.tensors().iter().enumerate() {
        // Archives of NumPy hold no other type of values.
        if tensor.dtype != trueup::blocks::DType::F32 {
            continue;
        }
        let mut data = vec![0; tensor.bytes as usize];
        file.read(number, 0, &mut data).unwrap_or_else(|error| panic!("{error}"));
        let shape: Vec<String> = tensor.shape.iter().rev().map(u64::to_string).collect();
        arrays.push((format!("{}.npy", tensor.name).into_bytes(), npy("<f4", &shape.join(", "), &data)));
    }
    for key in ["ids", "tokens"] {
        let text = file.metadata().iter().find(|(name, _)| name == key).map_or("", |(_, text)| text);
        let numbers: Vec<i64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        arrays.push((format!("{key}.npy").into_bytes(), npy("<i8", &numbers.len().to_string(), &data)));
    }
    arrays
}

/// The beginnings of both texts of the fixtures, cut behind a tensor.
pub fn text_seeds() -> Vec<Vec<u8>> {
    let cut = |name: &str| {
        let text = fixture_file(name);
        let text = String::from_utf8_lossy(&text).into_owned();
        let end = text.match_indices("sum = ").nth(24).map_or(text.len(), |(place, _)| place);
        let end = text[end..].find('\n').map_or(text.len(), |line| end + line + 1);
        // Spaces mean nothing there.
        text[..end].lines().map(|line| format!("{}\n", line.trim())).collect::<String>().into_bytes()
    };
    vec![cut("traces/llama2.llama_cpp.txt"), cut("traces/llama2.flash_attn.txt")]
}

/// Opens a trace, reads all of it, and compares it with the tiny model where it has tokens for that.
fn check(input: &[u8], path: &Path) -> Result<Answer, String> {
    fs::write(path, input).map_err(|problem| format!("the input cannot be written: {problem}"))?;
    let trace = match Trace::open(path) {
        Ok(trace) => trace,
        Err(problem) => return refused(&problem),
    };
    let again = Trace::open(path).map_err(|problem| format!("refused the second time only: {problem}"))?;
    law(trace.tensors() == again.tensors() && trace.ids() == again.ids(), "the second reading finds another trace")?;
    for tensor in trace.tensors() {
        match trace.read(tensor) {
            Ok(TraceValues::All(values)) => {
                let elements = tensor.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
                law(elements == Some(values.len() as u64), "a tensor has other values than its shape says")?;
            }
            Ok(TraceValues::Shown(shown)) => {
                let inside =
                    |(place, _): &([u64; 4], f64)| place.iter().zip(&tensor.shape).all(|(place, size)| place < size);
                law(shown.values.len() as u64 <= ELEMENTS_MAX, "a text shows more values than it has letters")?;
                law(shown.values.iter().all(inside), "a shown value lies outside of its tensor")?;
            }
            Err(problem) => return refused(&problem),
        }
    }
    let model = if trace.is_printed() { printed_model() } else { &verified().model };
    let tokens = match TraceTokens::new(&trace, None, model) {
        Ok(tokens) => tokens,
        Err(problem) => return refused(&problem),
    };
    law(tokens.steps.iter().sum::<usize>() == tokens.ids.len(), "steps do not add up to the ids")?;
    let options = TraceOptions { threads: Some(1), ..TraceOptions::default() };
    match compare_trace(model.clone(), device(), &trace, &options) {
        Ok(report) => {
            serde_json::to_string(&report).map_err(|problem| format!("the report is no JSON: {problem}"))?;
            Ok(Answer::Accepted("compared"))
        }
        Err(problem) => refused(&problem),
    }
}
