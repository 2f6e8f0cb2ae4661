//! Grammars: how files of each format are taken apart into fields. Each takes any bytes; what it does not understand
//! stays as bytes.

mod flm;
mod gguf;
mod json;
mod llama2c;
mod protobuf;
mod text;

pub use flm::flm;
pub use gguf::gguf;
pub use json::json;
pub use llama2c::{llama2c, tokenizer_bin};
pub use protobuf::protobuf;
pub use text::{lines, template};

use super::node::{Cursor, Node, Unit, Width};

/// Bytes of the length in front of a file among several.
const FRAME: Width = Width::Bytes(4);

/// safetensors: the header's length, the header, the data.
pub fn safetensors(bytes: &[u8]) -> Node {
    let mut cursor = Cursor(bytes);
    let header = cursor.number(8).and_then(|length| cursor.take(usize::try_from(length).ok()?));
    match header {
        Some(header) => {
            Node::Group(vec![Node::counted(Width::Bytes(8), Unit::Bytes, vec![json(header)]), cursor.rest()])
        }
        None => Node::Bytes(bytes.to_vec()),
    }
}

/// What makes a tree of a file.
pub type Grammar = fn(&[u8]) -> Node;

/// Several files in one input, each behind its length, each with a grammar; what is left belongs to the last.
pub fn frames(bytes: &[u8], grammars: &[Grammar]) -> Node {
    let files = split_frames(bytes, grammars.len());
    let parse = |(file, grammar): (Vec<u8>, &Grammar)| Node::counted(FRAME, Unit::Bytes, vec![grammar(&file)]);
    Node::Group(files.into_iter().zip(grammars).map(parse).collect())
}

/// Files as one input.
pub fn join_frames(files: &[Vec<u8>]) -> Vec<u8> {
    let frame = |file: &Vec<u8>| Node::counted(FRAME, Unit::Bytes, vec![Node::Bytes(file.clone())]);
    Node::Group(files.iter().map(frame).collect()).bytes()
}

/// The files of an input, `count` of them; a length beyond the end takes what is there.
pub fn split_frames(bytes: &[u8], count: usize) -> Vec<Vec<u8>> {
    let mut cursor = Cursor(bytes);
    let one = |_| {
        let length = cursor.number(4).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        cursor.take(length.min(cursor.0.len())).unwrap_or_default().to_vec()
    };
    (0..count).map(one).collect()
}
