//! GGUF: keys and tensors behind their counts, then the data.

use crate::fuzz::node::{Counts, Cursor, Node, Unit, Width};

const SIZE: Width = Width::Bytes(8);
const STRING: u64 = 8;
const ARRAY: u64 = 9;
const ALIGNMENT: usize = 32;
const DEPTH_MAX: usize = 16;

/// Takes a file apart.
pub fn gguf(bytes: &[u8]) -> Node {
    let mut cursor = Cursor(bytes);
    file(&mut cursor).unwrap_or_else(|| Node::Bytes(bytes.to_vec()))
}

fn file(cursor: &mut Cursor<'_>) -> Option<Node> {
    let (magic, version) = (cursor.field(4)?, cursor.field(4)?);
    let (tensors, keys) = (cursor.number(8)?, cursor.number(8)?);
    let mut lists = Vec::new();
    for (count, item) in [(keys, key as fn(&mut Cursor<'_>) -> Option<Node>), (tensors, tensor)] {
        let mut items = Vec::new();
        while (items.len() as u64) < count {
            let before = *cursor;
            let Some(found) = item(cursor) else {
                *cursor = before;
                break;
            };
            items.push(found);
        }
        let claim = (items.len() as u64 != count).then_some(count);
        lists.push(Counts { claim, items });
    }
    let header = Node::Group(vec![magic, version, Node::Counted { width: SIZE, unit: Unit::Items, lists }]);
    // The data begins at a multiple of the alignment of the whole file.
    let padding = header.bytes().len().next_multiple_of(ALIGNMENT) - header.bytes().len();
    let padding = if cursor.take(padding).is_some() { Node::Pad(ALIGNMENT) } else { Node::Pad(1) };
    Some(Node::Group(vec![header, padding, cursor.rest()]))
}

fn key(cursor: &mut Cursor<'_>) -> Option<Node> {
    let name = cursor.counted_text(SIZE)?;
    let value_type = cursor.number(4)?;
    let number = Node::Number((value_type as u32).to_le_bytes().to_vec());
    Some(Node::Group(vec![name, number, value(cursor, value_type, 0)?]))
}

fn value(cursor: &mut Cursor<'_>, value_type: u64, depth: usize) -> Option<Node> {
    match value_type {
        0 | 1 | 7 => cursor.field(1),
        2 | 3 => cursor.field(2),
        4..=6 => cursor.field(4),
        10..=12 => cursor.field(8),
        STRING => cursor.counted_text(SIZE),
        ARRAY if depth < DEPTH_MAX => {
            let item_type = cursor.number(4)?;
            let count = cursor.number(8)?;
            let mut items = Vec::new();
            for _ in 0..count {
                items.push(value(cursor, item_type, depth + 1)?);
            }
            let number = Node::Number((item_type as u32).to_le_bytes().to_vec());
            Some(Node::Group(vec![number, Node::counted(SIZE, Unit::Items, items)]))
        }
        _ => None,
    }
}

fn tensor(cursor: &mut Cursor<'_>) -> Option<Node> {
    let name = cursor.counted_text(SIZE)?;
    let count = cursor.number(4)?;
    let mut sizes = Vec::new();
    for _ in 0..count {
        sizes.push(cursor.field(8)?);
    }
    let sizes = Node::counted(Width::Bytes(4), Unit::Items, sizes);
    Some(Node::Group(vec![name, sizes, cursor.field(4)?, cursor.field(8)?]))
}
