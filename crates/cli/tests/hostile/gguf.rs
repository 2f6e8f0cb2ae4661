//! Lies in GGUF files: the container. Those about the model and its tokenizer are in `gguf_model.rs`.

use crate::case::{Call, Case, Entry, Files, MEMORY_KIB};
use crate::gguf_parts::{ARRAY, I32, Key, Parts, STRING, Tensor, U32, U64, array, string};
use crate::random::Random;

/// The name of the file.
pub const MODEL: &str = "model.gguf";

/// A change of one thing.
pub type Lie = (&'static str, fn(&mut Parts, &mut Random));

const READERS: &[Call] = &[Call::Inspect, Call::Quantize, Call::Run];
const ALL: &[Call] = &[Call::Inspect, Call::Show, Call::Tokenize, Call::Quantize, Call::Run, Call::Verify, Call::Diff];

/// Names that move the cursor or turn the text around.
const CONTROL_NAME: &[u8] = "a\u{1b}[2J\u{7}\r\n\u{9b}\u{202e}\u{2066}\u{200f}b".as_bytes();

/// Sizes that programs get wrong.
const HUGE: [u64; 6] = [1 << 31, 1 << 32, 1 << 61, 1 << 62, 1 << 63, u64::MAX];

const HEADER: &[Lie] = &[
    ("magic with a flipped bit", |g, r| g.magic[r.below(4)] ^= 1 << r.below(8)),
    ("magic backwards", |g, _| g.magic.reverse()),
    ("version 0", |g, _| g.version = 0),
    ("version 1", |g, _| g.version = 1),
    ("version 4", |g, _| g.version = 4),
    ("version far away", |g, r| g.version = 5 + r.next() as u32 % 0xfff),
    ("version -1", |g, _| g.version = u32::MAX),
    ("big-endian", |g, _| g.version = 3 << 24),
    ("one tensor more", |g, _| g.tensor_count = Some(g.tensors.len() as u64 + 1)),
    ("one key more", |g, _| g.key_count = Some(g.keys.len() as u64 + 1)),
    ("one key less", |g, _| g.key_count = Some(g.keys.len() as u64 - 1)),
    ("no keys", |g, _| g.key_count = Some(0)),
    ("tensors 2^31", |g, _| g.tensor_count = Some(1 << 31)),
    ("tensors 2^63", |g, _| g.tensor_count = Some(1 << 63)),
    ("tensors 2^64-1", |g, _| g.tensor_count = Some(u64::MAX)),
    ("tensors huge", |g, r| g.tensor_count = Some(*r.pick(&HUGE))),
    ("keys 2^31", |g, _| g.key_count = Some(1 << 31)),
    ("keys 2^63", |g, _| g.key_count = Some(1 << 63)),
    ("keys 2^64-1", |g, _| g.key_count = Some(u64::MAX)),
    ("keys huge", |g, r| g.key_count = Some(*r.pick(&HUGE))),
];

const KEYS: &[Lie] = &[
    ("key without name", |g, _| g.add(b"", U32, &[0; 4])),
    ("key with a name of 65536 bytes", |g, _| g.add(&[b'k'; 65_536], U32, &[0; 4])),
    ("key with a name of huge length", |g, r| any_key(g, r).name_length = Some(*r.pick(&HUGE))),
    ("key with a name of 2^64-1 bytes", |g, r| any_key(g, r).name_length = Some(u64::MAX)),
    ("key twice", |g, r| {
        let again = any_key(g, r).clone();
        g.keys.push(again);
    }),
    ("key with control characters twice", |g, _| {
        g.add(CONTROL_NAME, U32, &[0; 4]);
        g.add(CONTROL_NAME, U32, &[0; 4]);
    }),
    ("value type 13", |g, r| any_key(g, r).value_type = 13),
    ("value type far away", |g, r| any_key(g, r).value_type = 14 + r.next() as u32 % 1000),
    ("value type -1", |g, r| any_key(g, r).value_type = u32::MAX),
    ("bool of 2", |g, _| g.set("tokenizer.ggml.add_bos_token", 7, &[2])),
    ("text of 2^64-1 bytes", |g, _| g.set("general.name", STRING, &u64::MAX.to_le_bytes())),
    ("text of huge length", |g, r| g.set("general.name", STRING, &r.pick(&HUGE).to_le_bytes())),
    ("template that is not UTF-8", |g, _| g.set("tokenizer.chat_template", STRING, &string(b"\xff"))),
    ("array of an unknown type", |g, _| g.set("x.y", ARRAY, &array(13, 1, &[0; 8]))),
    ("array of 2^63 bytes", |g, _| g.set("x.y", ARRAY, &array(0, 1 << 63, &[]))),
    ("array of 2^61 u64", |g, _| g.set("x.y", ARRAY, &array(U64, 1 << 61, &[]))),
    ("array of 2^64-1 texts", |g, _| g.set("x.y", ARRAY, &array(STRING, u64::MAX, &[]))),
    ("array of huge count", |g, r| g.set("x.y", ARRAY, &array(r.below(13) as u32, *r.pick(&HUGE), &[]))),
    ("array of 2^60 arrays", |g, _| g.set("x.y", ARRAY, &array(ARRAY, 1 << 60, &[]))),
    ("arrays 9 deep", |g, _| g.set("x.y", ARRAY, &nested(9))),
    ("arrays 100000 deep", |g, _| g.set("x.y", ARRAY, &nested(100_000))),
    ("alignment 0", |g, _| g.set_u32("general.alignment", 0)),
    ("alignment 1", |g, _| g.set_u32("general.alignment", 1)),
    ("alignment 48", |g, _| g.set_u32("general.alignment", 48)),
    ("alignment 2^31", |g, _| g.set_u32("general.alignment", 1 << 31)),
    ("alignment -32", |g, _| g.set("general.alignment", I32, &(-32_i32).to_le_bytes())),
    ("alignment 2^63", |g, _| g.set("general.alignment", U64, &(1_u64 << 63).to_le_bytes())),
    ("alignment as text", |g, _| g.set_text("general.alignment", "32")),
    ("alignment that tensors do not have", |g, _| g.set_u32("general.alignment", 1 << 16)),
];

const TENSORS: &[Lie] = &[
    ("tensor without name", |g, r| any_tensor(g, r).name.clear()),
    ("tensor with a name of 2000 bytes", |g, r| any_tensor(g, r).name = vec![b't'; 2000]),
    ("tensor twice", |g, r| {
        let place = r.below(g.tensors.len() - 1);
        g.tensors[place + 1].name = g.tensors[place].name.clone();
    }),
    ("tensor with control characters out of the file", |g, _| {
        g.tensors[3].name = CONTROL_NAME.to_vec();
        g.tensors[3].offset = 1 << 40;
    }),
    ("tensor of no dimensions", |g, r| any_tensor(g, r).dimensions.clear()),
    ("tensor of 5 dimensions", |g, r| any_tensor(g, r).dimensions.extend([1, 1, 1, 1])),
    ("tensor of 2^32-1 dimensions", |g, r| any_tensor(g, r).dimension_count = Some(u32::MAX)),
    ("dimension 0", |g, r| any_tensor(g, r).dimensions[0] = 0),
    ("dimension 2^63", |g, r| any_tensor(g, r).dimensions[0] = 1 << 63),
    ("dimension 2^64-1", |g, r| any_tensor(g, r).dimensions[0] = u64::MAX),
    ("dimension 2^62, which wraps to 0 bytes", |g, r| any_tensor(g, r).dimensions[0] = 1 << 62),
    ("dimensions whose product wraps", |g, r| any_tensor(g, r).dimensions = vec![1 << 32, 1 << 32]),
    ("dimensions whose product is 1 by wrapping", |g, r| any_tensor(g, r).dimensions = vec![u64::MAX, u64::MAX]),
    ("dimensions whose product passes 128 bits", |g, r| any_tensor(g, r).dimensions = vec![u64::MAX; 4]),
    ("dimensions larger than the file", |g, r| any_tensor(g, r).dimensions = vec![1 << r.between(20, 40)]),
    ("tensor type 255", |g, r| any_tensor(g, r).dtype = 255),
    ("tensor type 4, retired", |g, r| any_tensor(g, r).dtype = 4),
    ("tensor type -1", |g, r| any_tensor(g, r).dtype = u32::MAX),
    ("rows that are no whole blocks", |g, _| {
        let norm = g.tensor("output_norm.weight");
        (norm.dtype, norm.dimensions[0]) = (2, 63);
    }),
    ("offset one too far", |g, r| any_tensor(g, r).offset += 1),
    ("offset of another", |g, r| {
        let (first, second) = (r.below(8), r.between(8, 20));
        g.tensors[second].offset = g.tensors[first].offset;
    }),
    ("offset that overlaps by one unit", |g, r| {
        let place = r.between(1, g.tensors.len());
        g.tensors[place].offset -= 32;
    }),
    ("offset at the end of the file", |g, r| {
        let end = g.data.len() as u64;
        any_tensor(g, r).offset = end;
    }),
    ("offset 2^63", |g, r| any_tensor(g, r).offset = 1 << 63),
    ("offset that wraps", |g, r| any_tensor(g, r).offset = u64::MAX - 31),
    ("offset that wraps to the header", |g, r| {
        let header = g.ends().last().copied().unwrap_or(0).next_multiple_of(32) as u64;
        any_tensor(g, r).offset = 0_u64.wrapping_sub(header);
    }),
];

const ACCEPTED: &[Lie] = &[
    ("key in another encoding", |g, _| g.add(b"general.\xff\xfe", U32, &[0; 4])),
    ("key that is an overlong slash", |g, _| g.add(b"\xc0\xaf", U32, &[0; 4])),
    ("key that is a surrogate", |g, _| g.add(b"\xed\xa0\x80", U32, &[0; 4])),
    ("text in another encoding", |g, _| g.set("general.name", STRING, &string(b"\xff\xfe\x1b[2J"))),
    ("array with a text in another encoding", |g, _| g.set("x.y", ARRAY, &array(STRING, 1, &string(b"\x80")))),
    ("as it was", |_, _| ()),
    ("version 2", |g, _| g.version = 2),
    ("alignment 64", |g, _| realign(g, 64)),
    ("alignment 4096", |g, _| realign(g, 4096)),
    ("an unknown key", |g, r| g.set_u32("somebody.else.has_a_key", r.next() as u32)),
    ("an empty text", |g, _| g.set_text("general.name", "")),
    ("a name with control characters", |g, _| {
        g.set("general.name", STRING, &string(CONTROL_NAME));
        g.add(CONTROL_NAME, U32, &[0; 4]);
    }),
    ("an empty array", |g, _| g.set("x.y", ARRAY, &array(STRING, 0, &[]))),
    ("arrays 8 deep", |g, _| g.set("x.y", ARRAY, &nested(8))),
    ("many arrays without items", |g, _| g.set("x.y", ARRAY, &array(ARRAY, 50_000, &array(0, 0, &[]).repeat(50_000)))),
    ("a text of a megabyte", |g, _| g.set("general.description", STRING, &string(&vec![b'x'; 1 << 20]))),
    ("keys backwards", |g, _| g.keys.reverse()),
    ("tensors backwards", |g, _| g.tensors.reverse()),
    ("tensors in any order", |g, r| {
        for place in (1..g.tensors.len()).rev() {
            g.tensors.swap(place, r.below(place + 1));
        }
    }),
    ("counts as u64", |g, _| g.set("qwen2.block_count", U64, &2_u64.to_le_bytes())),
    ("a byte behind the data", |g, _| g.data.push(0)),
];

/// All cases about the container.
pub fn cases(seed: u64, good: &[u8]) -> Vec<Case> {
    let parts = Parts::read(good);
    assert!(parts.bytes() == good, "a file taken apart and put together is the same");
    let mut cases = lies(seed, &parts, &[HEADER, KEYS, TENSORS].concat(), READERS, &[]);
    cases.extend(lies(seed, &parts, ACCEPTED, &[], ALL));
    cases.extend(cuts(seed, &parts));
    cases.extend(things(good));
    cases
}

/// Files with a change each.
pub fn lies(
    seed: u64,
    good: &Parts,
    lies: &[Lie],
    refused_by: &'static [Call],
    accepted_by: &'static [Call],
) -> Vec<Case> {
    let case = |(name, lie): &Lie| {
        let mut parts = good.clone();
        lie(&mut parts, &mut Random::new(seed, name));
        file_case(name, &parts, refused_by, accepted_by)
    };
    lies.iter().map(case).collect()
}

/// A file as a case.
pub fn file_case(name: &str, parts: &Parts, refused_by: &'static [Call], accepted_by: &'static [Call]) -> Case {
    Case { accepted_by, ..case(name, vec![(MODEL.to_owned(), Entry::File(parts.bytes()))], refused_by) }
}

/// Files that end early: behind fields of the header, within them, and within the data.
fn cuts(seed: u64, good: &Parts) -> Vec<Case> {
    let (bytes, ends) = (good.bytes(), good.ends());
    let mut random = Random::new(seed, "cuts");
    let mut places = vec![0, 1, 4, 8, 16, 24, 32, ends[ends.len() - 1], bytes.len() - good.data.len(), bytes.len() - 1];
    places.extend((0..6).map(|_| *random.pick(&ends[4..])));
    places.extend((0..3).map(|_| random.between(33, ends[ends.len() - 1])));
    places.extend((0..3).map(|_| random.between(bytes.len() - good.data.len(), bytes.len())));
    places.sort_unstable();
    places.dedup();
    let cut = |place: &usize| (MODEL.to_owned(), Entry::File(bytes[..*place].to_vec()));
    places.iter().map(|place| case(&format!("cut at byte {place}"), vec![cut(place)], READERS)).collect()
}

/// What stands where a file should, and holes.
fn things(good: &[u8]) -> Vec<Case> {
    let alone = |entry| vec![(MODEL.to_owned(), entry)];
    let link = |target: &str| alone(Entry::Link(target.to_owned()));
    let mut short = good.to_vec();
    short[8..16].copy_from_slice(&(1_u64 << 33).to_le_bytes());
    let mut cases = vec![
        case("nothing", Vec::new(), READERS),
        case("a pipe", alone(Entry::Pipe), READERS),
        case("a directory", alone(Entry::Folder), READERS),
        case("a link to itself", link(MODEL), READERS),
        case("a link to a device", link("/dev/zero"), READERS),
        case("a link to nothing", link("nowhere"), READERS),
        case("a hole of 64 GiB", alone(Entry::Sparse(Vec::new(), 64 << 30)), READERS),
        case("2^33 tensors before a hole of 1 TiB", alone(Entry::Sparse(short, 1 << 40)), READERS),
    ];
    let blob = ("blobs/0123abcd".to_owned(), Entry::File(good.to_vec()));
    cases.push(Case {
        accepted_by: ALL,
        ..case("a link into a cache", [link("blobs/0123abcd"), vec![blob]].concat(), &[])
    });
    cases.push(case("20000 tensors over the same 8 MiB", alone(Entry::File(same_bytes(good))), READERS));
    let hole = alone(Entry::Sparse(in_a_hole(good), 2 << 40));
    cases.push(Case {
        accepted_by: &[Call::Inspect, Call::Show],
        ..case("a tensor in a hole of a terabyte", hole, &[])
    });
    let hole = alone(Entry::Sparse(good.to_vec(), 8 << 30));
    cases.push(Case { accepted_by: &[Call::Inspect, Call::Show], ..case("a hole behind the data", hole, &[]) });
    cases
}

/// 20000 tensors that all have the same bytes: a look at each would read 160 GB.
fn same_bytes(good: &[u8]) -> Vec<u8> {
    let mut parts = Parts::read(good);
    parts.data.resize(8 << 20, 1);
    let tensor = |number: u32| Tensor {
        name: format!("blk.{number}.attn_q.weight").into_bytes(),
        dimension_count: None,
        dimensions: vec![1 << 11, 1 << 10],
        dtype: 0,
        offset: 0,
    };
    parts.tensors = (0..20_000).map(tensor).collect();
    parts.bytes()
}

/// One more tensor, of 1 TiB, behind the others.
fn in_a_hole(good: &[u8]) -> Vec<u8> {
    let mut parts = Parts::read(good);
    let offset = parts.data.len().next_multiple_of(32) as u64;
    let (name, dimensions) = (b"extra.weight".to_vec(), vec![1 << 20, 1 << 18]);
    parts.tensors.push(Tensor { name, dimension_count: None, dimensions, dtype: 0, offset });
    parts.bytes()
}

fn case(name: &str, files: Files, refused_by: &'static [Call]) -> Case {
    Case {
        name: name.to_owned(),
        files,
        model: MODEL,
        trace: None,
        named: MODEL,
        says: "",
        memory_kib: MEMORY_KIB,
        refused_by,
        accepted_by: &[],
    }
}

fn any_key<'a>(parts: &'a mut Parts, random: &mut Random) -> &'a mut Key {
    let place = random.below(parts.keys.len());
    &mut parts.keys[place]
}

fn any_tensor<'a>(parts: &'a mut Parts, random: &mut Random) -> &'a mut Tensor {
    let place = random.below(parts.tensors.len());
    &mut parts.tensors[place]
}

/// Arrays of one array each, around an empty one of bytes.
fn nested(depth: usize) -> Vec<u8> {
    [array(ARRAY, 1, &[]).repeat(depth - 1), array(0, 0, &[])].concat()
}

/// The same tensors at wider distances.
fn realign(parts: &mut Parts, alignment: usize) {
    parts.set_u32("general.alignment", alignment as u32);
    let mut data = Vec::new();
    for place in 0..parts.tensors.len() {
        let end = parts.tensors.get(place + 1).map_or(parts.data.len(), |next| next.offset as usize);
        let bytes = parts.data[parts.tensors[place].offset as usize..end].to_vec();
        parts.tensors[place].offset = data.len() as u64;
        data.extend(bytes);
        data.resize(data.len().next_multiple_of(alignment), 0);
    }
    (parts.data, parts.alignment) = (data, alignment);
}
