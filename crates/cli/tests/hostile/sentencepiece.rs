//! Lies in `tokenizer.model`: a protobuf of pieces and settings.

use crate::case::{Call, Case, Entry};
use crate::folder::Folder;
use crate::random::Random;
use crate::safetensors::with_change;

const FILE: &str = "tokenizer.model";
const READERS: &[Call] = &[Call::Tokenize, Call::Convert];

/// A field of the outermost message: its number, its wire type, its bytes behind the tag.
#[derive(Clone)]
pub struct Field {
    pub number: u64,
    wire: u8,
    bytes: Vec<u8>,
}

pub type Fields = Vec<Field>;

/// A change of one thing.
type Lie = (&'static str, fn(&mut Fields, &mut Random));

const LIES: &[Lie] = &[
    ("spm: no pieces", |f, _| f.retain(|field| field.number != 1)),
    ("spm: a hundred pieces more", |f, _| {
        (0..100).for_each(|n| f.insert(300, piece(format!("extra{n}").as_bytes(), -9.0, 1)))
    }),
    ("spm: a piece that is no UTF-8", |f, r| *any(f, r) = piece(b"\xff\xfe", -1.0, 1)),
    ("spm: a piece with score NaN", |f, r| *any(f, r) = piece(b"zzz", f32::NAN, 1)),
    ("spm: a piece of type 0", |f, r| *any(f, r) = piece(b"zzz", -1.0, 0)),
    ("spm: a piece of type 7", |f, r| *any(f, r) = piece(b"zzz", -1.0, 7)),
    ("spm: a piece of type 2^63", |f, r| *any(f, r) = piece(b"zzz", -1.0, 1 << 63)),
    ("spm: a piece that ends early", |f, r| {
        let field = any(f, r);
        field.bytes[1] = 0x7f;
    }),
    ("spm: a piece of 2^64-1 bytes", |f, r| any(f, r).bytes = varint(u64::MAX)),
    ("spm: a piece of 2^31 bytes", |f, r| any(f, r).bytes = varint(1 << 31)),
    ("spm: a length without end", |f, r| any(f, r).bytes = vec![0xff; 12]),
    ("spm: wire type 3", |f, r| any(f, r).wire = 3),
    ("spm: wire type 4", |f, r| any(f, r).wire = 4),
    ("spm: wire type 7", |f, r| any(f, r).wire = 7),
    ("spm: words", |f, _| f.push(message(2, &[0x18, 3]))),
    ("spm: characters", |f, _| f.push(message(2, &[0x18, 4]))),
    ("spm: spaces behind words", |f, _| f.push(message(2, &[0xc0, 1, 1]))),
    ("spm: no settings of the model", |f, _| f.retain(|field| field.number != 2)),
    ("spm: a map of two bytes", |f, _| f.push(message(3, &[0x12, 2, 0, 0]))),
    ("spm: a map of 2^32-4 bytes", |f, _| f.push(message(3, &[0x12, 8, 0xfc, 0xff, 0xff, 0xff, 0, 0, 0, 0]))),
    ("spm: a map that leads to no text", |f, _| f.push(message(3, &[0x12, 8, 4, 0, 0, 0, 0, 1, 0, 0]))),
    ("spm: a map for decoded text", |f, _| f.push(message(5, &[0x12, 2, 0, 0]))),
    ("spm: spaces unmarked", |f, _| f.push(message(3, &[0x28, 0]))),
    ("spm: settings that end early", |f, _| f.push(message(2, &[0x18]))),
    ("spm: a normalizer that ends early", |f, _| f.push(message(3, &[0x0a, 9, b'x']))),
];

const ACCEPTED: &[Lie] = &[
    ("spm: as it was", |_, _| ()),
    ("spm: unigram", |f, _| f.push(message(2, &[0x18, 1]))),
    ("spm: a map of nothing", |f, _| f.push(message(3, &[0x12, 8, 4, 0, 0, 0, 0, 0, 0, 0]))),
    ("spm: an unknown field", |f, _| f.push(message(99, b"anything"))),
    ("spm: a field of a number above 2^29", |f, _| f.push(message(1 << 40, b"anything"))),
    ("spm: a piece less than the model has rows", |f, _| drop(f.remove(383))),
    ("spm: settings first", |f, _| f.rotate_right(2)),
    ("spm: a piece of control characters", |f, _| f[310] = piece("\u{1b}[2J\u{202e}".as_bytes(), -300.0, 1)),
];

/// All cases; the folder has a tokenizer.model and no tokenizer.json.
pub fn cases(seed: u64, folder: &Folder, good: &[u8]) -> Vec<Case> {
    let fields = read(good);
    assert!(write(&fields) == good, "a file taken apart and put together is the same");
    let with = |name: &str, bytes: Vec<u8>, refused_by, accepted_by| {
        with_change(name, folder, refused_by, accepted_by, |folder| folder.put(FILE, bytes))
    };
    let changed = |(name, lie): &Lie| {
        let mut fields = fields.clone();
        lie(&mut fields, &mut Random::new(seed, name));
        (*name, write(&fields))
    };
    let lies = LIES.iter().map(changed).map(|(name, bytes)| with(name, bytes, READERS, &[]));
    let truths = ACCEPTED.iter().map(changed).map(|(name, bytes)| with(name, bytes, &[], READERS));
    let mut random = Random::new(seed, "spm");
    let cuts: Vec<(String, usize)> = [1, 2, random.between(3, good.len() / 2), good.len() - 1]
        .into_iter()
        .enumerate()
        .map(|(number, length)| (format!("spm: cut {number}"), length))
        .collect();
    let cuts = cuts.iter().map(|(name, length)| with(name, good[..*length].to_vec(), READERS, &[]));
    let other =
        |name: &str, entry: Entry| with_change(name, folder, READERS, &[], |folder| folder.put_entry(FILE, entry));
    let others = vec![
        with("spm: empty", Vec::new(), READERS, &[]),
        with("spm: ones", vec![0xff; 4096], READERS, &[]),
        with("spm: zeros", vec![0; 4096], READERS, &[]),
        other("spm: a pipe", Entry::Pipe),
        other("spm: a directory", Entry::Folder),
        other("spm: a hole of 1 TiB", Entry::Sparse(good.to_vec(), 1 << 40)),
    ];
    lies.chain(truths).chain(cuts).chain(others).collect()
}

fn any<'a>(fields: &'a mut Fields, random: &mut Random) -> &'a mut Field {
    &mut fields[random.between(262, 340)]
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A message with this content.
pub fn message(number: u64, content: &[u8]) -> Field {
    Field { number, wire: 2, bytes: [varint(content.len() as u64), content.to_vec()].concat() }
}

/// A piece with its score and its type.
pub fn piece(text: &[u8], score: f32, kind: u64) -> Field {
    let mut content = [&[0x0a], &varint(text.len() as u64)[..], text, &[0x15], &score.to_le_bytes()].concat();
    content.push(0x18);
    content.extend(varint(kind));
    message(1, &content)
}

/// Takes a good file apart, whose outermost fields are all messages.
pub fn read(mut bytes: &[u8]) -> Fields {
    let mut fields = Vec::new();
    while let Some((tag, rest)) = bytes.split_first() {
        assert_eq!(tag & 7, 2, "a message");
        let ends = rest.iter().position(|byte| byte & 0x80 == 0).expect("a length") + 1;
        let length = rest[..ends].iter().rev().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
        let (field, after) = rest.split_at(ends + length);
        fields.push(Field { number: u64::from(tag >> 3), wire: 2, bytes: field.to_vec() });
        bytes = after;
    }
    fields
}

/// Puts a file together.
pub fn write(fields: &Fields) -> Vec<u8> {
    let field = |field: &Field| [varint(field.number << 3 | u64::from(field.wire)), field.bytes.clone()].concat();
    fields.iter().flat_map(field).collect()
}
