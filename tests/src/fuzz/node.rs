//! A file as a tree of fields: taken apart by a grammar, changed anywhere, and put together again with its counts
//! right, or wrong on purpose.
//!
//! ```text
//! GGUF   Group ─┬─ Number "GGUF"
//!               ├─ Number 3                       one list of a `Counted` for each count in front of it
//!               ├─ Counted ─┬─ keys ──── Group ── Counted name, Number type, value ...
//!               │           └─ tensors ─ Group ── Counted name, Counted dimensions, Number type, Number offset
//!               └─ Pad, Bytes
//! ```

/// How a count stands in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// That many bytes, little-endian; at most 8.
    Bytes(usize),
    /// Seven bits a byte, the lowest first, as protobuf writes it.
    Varint,
}

/// What a count counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes of the list.
    Bytes,
    /// Items of the list.
    Items,
}

/// A list and its count.
#[derive(Clone, PartialEq, Debug)]
pub struct Counts {
    /// What the file says instead of the truth.
    pub claim: Option<u64>,
    /// What is counted.
    pub items: Vec<Node>,
}

/// A part of a file.
#[derive(Clone, PartialEq, Debug)]
pub enum Node {
    /// A little-endian number, or one like it: 1 to 8 bytes.
    Number(Vec<u8>),
    /// A number in seven bits a byte.
    Varint(u64),
    /// A number or another word in a text.
    Word(Vec<u8>),
    /// Text of any length.
    Text(Vec<u8>),
    /// What no grammar looks into.
    Bytes(Vec<u8>),
    /// Fields that stand behind each other.
    Group(Vec<Node>),
    /// Items between signs: `{`, `,`, `}`.
    List {
        /// Before the first.
        open: Vec<u8>,
        /// Between two.
        between: Vec<u8>,
        /// Behind the last.
        close: Vec<u8>,
        /// The items.
        items: Vec<Node>,
    },
    /// Lists behind their counts. The counts of several lists stand in the reverse of the lists' order.
    Counted {
        /// How the counts are written.
        width: Width,
        /// What they count.
        unit: Unit,
        /// The lists.
        lists: Vec<Counts>,
    },
    /// Zeros up to a multiple of this many bytes of the file.
    Pad(usize),
}

impl Node {
    /// A text behind its length.
    pub fn counted_text(width: Width, text: &[u8]) -> Node {
        Node::counted(width, Unit::Bytes, vec![Node::Text(text.to_vec())])
    }

    /// A list behind its count.
    pub fn counted(width: Width, unit: Unit, items: Vec<Node>) -> Node {
        Node::Counted { width, unit, lists: vec![Counts { claim: None, items }] }
    }

    /// A text between quotation marks.
    pub fn quoted(text: &[u8]) -> Node {
        Node::List {
            open: b"\"".to_vec(),
            between: Vec::new(),
            close: b"\"".to_vec(),
            items: vec![Node::Text(text.to_vec())],
        }
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Node::Number(bytes) | Node::Word(bytes) | Node::Text(bytes) | Node::Bytes(bytes) => out.extend(bytes),
            Node::Varint(value) => write_varint(*value, out),
            Node::Group(items) => items.iter().for_each(|item| item.write(out)),
            Node::List { open, between, close, items } => {
                out.extend(open);
                for (number, item) in items.iter().enumerate() {
                    if number > 0 {
                        out.extend(between);
                    }
                    item.write(out);
                }
                out.extend(close);
            }
            Node::Counted { width, unit, lists } => write_counted(*width, *unit, lists, out),
            Node::Pad(multiple) => out.resize(out.len().next_multiple_of((*multiple).max(1)), 0),
        }
    }

    /// The lists of fields inside, each of which may grow and shrink.
    pub fn lists(&mut self) -> Vec<&mut Vec<Node>> {
        match self {
            Node::Group(items) | Node::List { items, .. } => vec![items],
            Node::Counted { lists, .. } => lists.iter_mut().map(|list| &mut list.items).collect(),
            Node::Number(_) | Node::Varint(_) | Node::Word(_) | Node::Text(_) | Node::Bytes(_) | Node::Pad(_) => {
                Vec::new()
            }
        }
    }

    /// The fields inside.
    pub fn children(&self) -> Vec<&Node> {
        match self {
            Node::Group(items) | Node::List { items, .. } => items.iter().collect(),
            Node::Counted { lists, .. } => lists.iter().flat_map(|list| &list.items).collect(),
            Node::Number(_) | Node::Varint(_) | Node::Word(_) | Node::Text(_) | Node::Bytes(_) | Node::Pad(_) => {
                Vec::new()
            }
        }
    }

    /// Whether two fields are of one kind, so that one can stand for the other.
    pub fn is_like(&self, other: &Node) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

fn write_counted(width: Width, unit: Unit, lists: &[Counts], out: &mut Vec<u8>) {
    let mut inside = Vec::new();
    let mut counts = Vec::new();
    for list in lists {
        let before = inside.len();
        // Padding inside a counted list counts from the list's start.
        list.items.iter().for_each(|item| item.write(&mut inside));
        let truth = match unit {
            Unit::Bytes => inside.len() - before,
            Unit::Items => list.items.len(),
        };
        counts.push(list.claim.unwrap_or(truth as u64));
    }
    for count in counts.into_iter().rev() {
        match width {
            Width::Bytes(bytes) => out.extend(&count.to_le_bytes()[..bytes.min(8)]),
            Width::Varint => write_varint(count, out),
        }
    }
    out.extend(inside);
}

fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes bytes apart from the front; what is missing ends the grammar's work.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    /// The next bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next little-endian number of up to 8 bytes.
    pub fn number(&mut self, bytes: usize) -> Option<u64> {
        let mut value = [0; 8];
        value.get_mut(..bytes)?.copy_from_slice(self.take(bytes)?);
        Some(u64::from_le_bytes(value))
    }

    /// The next number of seven bits a byte.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A text behind its length.
    pub fn counted_text(&mut self, width: Width) -> Option<Node> {
        let count = match width {
            Width::Bytes(bytes) => self.number(bytes)?,
            Width::Varint => self.varint()?,
        };
        Some(Node::counted_text(width, self.take(usize::try_from(count).ok()?)?))
    }

    /// A number as a field.
    pub fn field(&mut self, bytes: usize) -> Option<Node> {
        self.take(bytes).map(|bytes| Node::Number(bytes.to_vec()))
    }

    /// Everything that is left, as one field.
    pub fn rest(&mut self) -> Node {
        Node::Bytes(std::mem::take(&mut self.0).to_vec())
    }
}
