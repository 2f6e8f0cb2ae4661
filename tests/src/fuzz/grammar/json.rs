//! JSON, with its members in order and as often as they are there; white space is dropped.

use crate::fuzz::node::Node;

/// Nesting that is taken apart.
const DEPTH_MAX: usize = 64;

/// Takes a document apart.
pub fn json(bytes: &[u8]) -> Node {
    let mut parser = Parser { bytes, place: 0 };
    match parser.value(0) {
        Some(node) => {
            parser.space();
            match bytes.get(parser.place..) {
                Some(rest) if !rest.is_empty() => Node::Group(vec![node, Node::Bytes(rest.to_vec())]),
                Some(_) | None => node,
            }
        }
        None => Node::Bytes(bytes.to_vec()),
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl Parser<'_> {
    fn space(&mut self) {
        while self.bytes.get(self.place).is_some_and(u8::is_ascii_whitespace) {
            self.place += 1;
        }
    }

    fn next(&mut self) -> Option<u8> {
        self.space();
        self.bytes.get(self.place).copied()
    }

    fn value(&mut self, depth: usize) -> Option<Node> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.next()? {
            b'{' => self.list(b'}', depth, Parser::member),
            b'[' => self.list(b']', depth, Parser::value),
            b'"' => self.string(),
            _ => self.word(),
        }
    }

    fn list(&mut self, close: u8, depth: usize, item: fn(&mut Self, usize) -> Option<Node>) -> Option<Node> {
        let open = self.bytes[self.place];
        self.place += 1;
        let mut items = Vec::new();
        while self.next()? != close {
            items.push(item(self, depth + 1)?);
            if self.next()? == b',' {
                self.place += 1;
            }
        }
        self.place += 1;
        Some(Node::List { open: vec![open], between: vec![b','], close: vec![close], items })
    }

    fn member(&mut self, depth: usize) -> Option<Node> {
        let name = match self.next()? {
            b'"' => self.string()?,
            _ => return None,
        };
        if self.next()? != b':' {
            return None;
        }
        self.place += 1;
        Some(Node::List {
            open: Vec::new(),
            between: vec![b':'],
            close: Vec::new(),
            items: vec![name, self.value(depth)?],
        })
    }

    fn string(&mut self) -> Option<Node> {
        let start = self.place + 1;
        let mut end = start;
        while *self.bytes.get(end)? != b'"' {
            end += if self.bytes[end] == b'\\' { 2 } else { 1 };
        }
        self.place = end + 1;
        Some(Node::quoted(&self.bytes[start..end]))
    }

    fn word(&mut self) -> Option<Node> {
        let rest = &self.bytes[self.place..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count();
        self.place += length;
        (length > 0).then(|| Node::Word(rest[..length].to_vec()))
    }
}
