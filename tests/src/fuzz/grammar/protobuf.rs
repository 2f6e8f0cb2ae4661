//! Protobuf: fields behind their tags. A field of bytes that is a message itself is taken apart too.

use crate::fuzz::node::{Cursor, Node, Unit, Width};

/// Takes a message apart.
pub fn protobuf(bytes: &[u8]) -> Node {
    message(bytes, true).unwrap_or_else(|| Node::Bytes(bytes.to_vec()))
}

fn message(bytes: &[u8], outermost: bool) -> Option<Node> {
    let mut cursor = Cursor(bytes);
    let mut fields = Vec::new();
    while !cursor.0.is_empty() {
        let tag = cursor.varint()?;
        let value = match tag & 7 {
            0 => Node::Varint(cursor.varint()?),
            1 => cursor.field(8)?,
            5 => cursor.field(4)?,
            2 => {
                let length = usize::try_from(cursor.varint()?).ok()?;
                let inside = cursor.take(length)?;
                // A piece's text may look like a message; only the outermost fields are messages in this format.
                let inner = if outermost { message(inside, false) } else { None };
                let inner = inner.unwrap_or_else(|| Node::Text(inside.to_vec()));
                Node::counted(Width::Varint, Unit::Bytes, vec![inner])
            }
            _ => return None,
        };
        fields.push(Node::Group(vec![Node::Varint(tag), value]));
    }
    Some(Node::Group(fields))
}
