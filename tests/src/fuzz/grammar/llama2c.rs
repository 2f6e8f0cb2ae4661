//! llama2.c: the numbers of a header, then weights; and its vocabulary.

use crate::fuzz::node::{Cursor, Node, Width};

const MAGIC: &[u8] = b"24ka";
/// Bytes of the header of versions 1 and 2.
const HEADER_BYTES: usize = 256;

/// A model of any version.
pub fn llama2c(bytes: &[u8]) -> Node {
    let mut cursor = Cursor(bytes);
    let mut fields = Vec::new();
    let magic = bytes.starts_with(MAGIC);
    // Magic, version, seven numbers, a flag, a group size; version 0 has the seven numbers only.
    let widths: &[usize] = if magic { &[4, 4, 4, 4, 4, 4, 4, 4, 4, 1, 4] } else { &[4; 7] };
    for width in widths {
        fields.extend(cursor.field(*width));
    }
    if magic {
        let read = bytes.len() - cursor.0.len();
        fields.extend(cursor.take(HEADER_BYTES.saturating_sub(read)).map(|zeros| Node::Bytes(zeros.to_vec())));
    }
    // Pieces of the weights, so that they can be lost and doubled.
    let piece = (cursor.0.len() / 16).next_multiple_of(4).max(4);
    fields.extend(cursor.0.chunks(piece).map(|piece| Node::Bytes(piece.to_vec())));
    Node::Group(fields)
}

/// `tokenizer.bin`: the longest token's bytes, then a score and a text for each token.
pub fn tokenizer_bin(bytes: &[u8]) -> Node {
    let mut cursor = Cursor(bytes);
    let mut fields: Vec<Node> = cursor.field(4).into_iter().collect();
    loop {
        let before = cursor;
        match cursor.field(4).zip(cursor.counted_text(Width::Bytes(4))) {
            Some((score, text)) => fields.push(Node::Group(vec![score, text])),
            None => {
                fields.push(Node::Bytes(before.0.to_vec()));
                return Node::Group(fields);
            }
        }
    }
}
