//! Changes of a tree of fields, by a random stream: numbers that programs get wrong, counts that lie, texts from a
//! list, parts that are lost, doubled, exchanged, or come from another file. At times bytes are changed besides.

use super::node::{Node, Unit, Width};
use super::random::Random;

/// Longest input that a change may make, in bytes.
pub const BYTES_MAX: usize = 1 << 20;

/// Steps from the root to the field that is changed.
const STEPS_MAX: usize = 40;

/// Sizes that programs get wrong.
const SIZES: [u64; 24] = [
    0,
    1,
    2,
    3,
    7,
    8,
    31,
    32,
    127,
    128,
    255,
    256,
    4095,
    65_535,
    65_536,
    1 << 20,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 61,
    1 << 63,
    u64::MAX - 31,
    u64::MAX,
];

/// Bits of f32 that programs get wrong: NaN, infinities, the smallest, the largest, -0, 1.
const FLOATS: [u32; 8] = [0x7fc0_0000, 0x7f80_0000, 0xff80_0000, 1, 0x7f7f_ffff, 0x8000_0000, 0x3f80_0000, 0xbf80_0000];

/// Numbers as text.
const WORDS: [&str; 24] = [
    "0",
    "-1",
    "1",
    "2",
    "-0",
    "0.0",
    "0.5",
    "1e-400",
    "1e400",
    "-1e400",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e19",
    "null",
    "true",
    "false",
    "nan",
    "[]",
    "{}",
];

/// Pieces of text that programs get wrong.
const TEXTS: [&[u8]; 22] = [
    b"",
    b" ",
    b"\0",
    b"\n",
    b"\r\n",
    b"\x1b[2J",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\xf4\x90\x80\x80",
    b"\\u0000",
    b"\\ud800",
    b"\\",
    b"/",
    b"..",
    "\u{202e}".as_bytes(),
    "\u{feff}".as_bytes(),
    "e\u{301}\u{301}".as_bytes(),
    "\u{fb01}".as_bytes(),
    "\u{1f468}\u{200d}\u{1f469}".as_bytes(),
    "\u{2581}".as_bytes(),
    "\u{120}".as_bytes(),
];

/// What a change may draw on.
pub struct Sources<'a> {
    /// Inputs taken apart, whose parts may be put in.
    pub donors: &'a [Node],
    /// Texts of the target.
    pub words: &'a [&'a str],
}

/// Another input: one to four changes of the tree, at times of its bytes.
pub fn mutate(input: &Node, sources: &Sources<'_>, random: &mut Random) -> Vec<u8> {
    let mut tree = input.clone();
    for _ in 0..=random.below(4).min(random.below(4)) {
        change(&mut tree, sources, random);
    }
    let mut bytes = tree.bytes();
    if random.once_in(10) {
        change_bytes(&mut bytes, random);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

/// One change somewhere: every level of the tree is as likely as the next.
fn change(tree: &mut Node, sources: &Sources<'_>, random: &mut Random) {
    let mut node = tree;
    for _ in 0..STEPS_MAX {
        let inside = node.children().len();
        if inside == 0 || random.once_in(5) {
            break;
        }
        let mut place = random.below(inside);
        let mut lists = node.lists();
        let list = lists.iter().position(|list| {
            let here = place < list.len();
            if !here {
                place -= list.len();
            }
            here
        });
        let Some(list) = list else { return };
        node = &mut lists.swap_remove(list)[place];
    }
    if random.once_in(8) && !sources.donors.is_empty() {
        *node = donor(node, sources, random);
        return;
    }
    match node {
        Node::Number(bytes) => change_number(bytes, random),
        Node::Varint(value) => *value = *random.pick(&SIZES),
        Node::Word(word) => change_word(word, sources, random),
        Node::Text(text) => change_text(text, sources, random),
        Node::Bytes(bytes) => change_bytes(bytes, random),
        Node::Group(items) => change_list(items, sources, random),
        Node::List { open, close, items, .. } => {
            if random.once_in(12) {
                let depth = 1 << random.below(13);
                (*open, *close) = (open.repeat(depth), close.repeat(depth));
            } else {
                change_list(items, sources, random);
            }
        }
        Node::Counted { width, unit, lists } => {
            let list = random.below(lists.len());
            let list = &mut lists[list];
            if random.once_in(3) {
                list.claim = Some(claim(list.items.len(), *width, *unit, random));
            } else {
                change_list(&mut list.items, sources, random);
            }
        }
        Node::Pad(multiple) => *multiple = *random.pick(&[1, 8, 16, 32, 64]),
    }
}

/// A part of another input, of the same kind where one is found.
fn donor(like: &Node, sources: &Sources<'_>, random: &mut Random) -> Node {
    let mut found = random.pick(sources.donors);
    for _ in 0..32 {
        let mut node = random.pick(sources.donors);
        for _ in 0..random.below(STEPS_MAX) {
            let inside = node.children();
            if inside.is_empty() {
                break;
            }
            node = inside[random.below(inside.len())];
            if node.is_like(like) {
                found = node;
            }
        }
        if found.is_like(like) {
            break;
        }
    }
    found.clone()
}

fn claim(items: usize, width: Width, unit: Unit, random: &mut Random) -> u64 {
    let truth = match unit {
        Unit::Bytes => items as u64 * 8,
        Unit::Items => items as u64,
    };
    match (random.below(4), width) {
        (0, _) => truth.wrapping_add(1),
        (1, _) => truth.wrapping_sub(1),
        (2, Width::Bytes(bytes)) => u64::MAX >> (64 - 8 * bytes.clamp(1, 8)),
        _ => *random.pick(&SIZES),
    }
}

fn change_number(bytes: &mut [u8], random: &mut Random) {
    let mut value = [0; 8];
    let width = bytes.len().min(8);
    value[..width].copy_from_slice(&bytes[..width]);
    let value = u64::from_le_bytes(value);
    let changed = match random.below(6) {
        0 => value.wrapping_add(1 + random.below(4) as u64),
        1 => value.wrapping_sub(1 + random.below(4) as u64),
        2 => value ^ 1 << random.below(8 * width.max(1)),
        3 => u64::from(*random.pick(&FLOATS)),
        4 => random.number() % 40,
        _ => *random.pick(&SIZES),
    };
    bytes[..width].copy_from_slice(&changed.to_le_bytes()[..width]);
}

fn change_word(word: &mut Vec<u8>, sources: &Sources<'_>, random: &mut Random) {
    match random.below(6) {
        0 if !sources.words.is_empty() => *word = random.pick(sources.words).as_bytes().to_vec(),
        1 => {
            let place = random.below(word.len());
            if let Some(byte) = word.get_mut(place) {
                *byte = b'0' + random.below(10) as u8;
            }
        }
        2 => word.push(b'0' + random.below(10) as u8),
        3 => *word = (random.number() % 500).to_string().into_bytes(),
        _ => *word = random.pick(&WORDS).as_bytes().to_vec(),
    }
}

fn change_text(text: &mut Vec<u8>, sources: &Sources<'_>, random: &mut Random) {
    let place = random.below(text.len() + 1);
    match random.below(8) {
        0 | 1 if !sources.words.is_empty() => *text = random.pick(sources.words).as_bytes().to_vec(),
        2 if !sources.words.is_empty() => drop(text.splice(place..place, random.pick(sources.words).bytes())),
        3 => text.truncate(place),
        4 => *text = text.repeat(1 + random.below(40)),
        5 => *text = random.pick(&TEXTS).repeat(1 + (1 << random.below(12))),
        6 => drop(text.drain(place..(place + 1 + random.below(8)).min(text.len()).max(place))),
        _ => drop(text.splice(place..place, random.pick(&TEXTS).iter().copied())),
    }
    text.truncate(BYTES_MAX / 4);
}

fn change_list(items: &mut Vec<Node>, sources: &Sources<'_>, random: &mut Random) {
    let place = random.below(items.len());
    let other = random.below(items.len());
    if items.is_empty() {
        items.push(random.pick(sources.donors).clone());
        return;
    }
    match random.below(9) {
        0 | 1 => drop(items.remove(place)),
        2 => items.insert(other, items[place].clone()),
        3 => items.swap(place, other),
        4 => items.truncate(place),
        5 => {
            let copies = (1 << random.below(9)).min(BYTES_MAX / 4 / items[place].bytes().len().max(1));
            let copy = items[place].clone();
            items.splice(place..place, std::iter::repeat_n(copy, copies));
        }
        6 => items[place] = items[other].clone(),
        7 => items.reverse(),
        _ => items.insert(place, donor(&items[place], sources, random)),
    }
}

fn change_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        bytes.extend(random.number().to_le_bytes());
        return;
    }
    let place = random.below(bytes.len());
    let end = (place + 1 + random.below(64)).min(bytes.len());
    match random.below(7) {
        0 => bytes[place] ^= 1 << random.below(8),
        1 => bytes[place] = random.number() as u8,
        2 => bytes.truncate(place),
        3 => drop(bytes.drain(place..end)),
        4 => drop(bytes.splice(place..place, bytes[place..end].to_vec())),
        5 => bytes[place..end].fill(*random.pick(&[0, 0xff, 0x7f, 0x80, b' '])),
        _ => {
            let size = random.pick(&SIZES).to_le_bytes();
            let end = (place + 8).min(bytes.len());
            bytes[place..end].copy_from_slice(&size[..end - place]);
        }
    }
}
