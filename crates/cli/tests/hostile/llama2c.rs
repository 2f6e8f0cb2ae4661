//! Lies in llama2.c files, in their three versions, and in `tokenizer.bin` beside them.
//!
//! The good files are written here, by the rules of llama2.c's `export.py` and `tokenizer.py`, with small weights.

use crate::case::{Call, Case, Entry, Files, MEMORY_KIB};
use crate::random::Random;

const MODEL: &str = "model.bin";
const TOKENIZER: &str = "tokenizer.bin";
const READERS: &[Call] = &[Call::Inspect, Call::Tokenize, Call::Convert];
const ALL: &[Call] = &[Call::Inspect, Call::Show, Call::Tokenize, Call::Convert, Call::Diff];

/// dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, max_seq_len.
const NUMBERS: [i32; 7] = [16, 32, 2, 4, 2, 300, 64];
const NAMES: [&str; 7] = ["dim", "hidden_dim", "layers", "heads", "KV heads", "vocabulary", "context"];

/// Values that share a scale in version 2.
const GROUP: i32 = 16;

/// A file's parts.
#[derive(Clone)]
struct Parts {
    /// Magic and version; version 0 has none.
    start: Option<([u8; 4], i32)>,
    numbers: [i32; 7],
    shared: u8,
    group: Option<i32>,
    padding: u8,
    data: Vec<u8>,
    tokens: Vec<Token>,
    longest: Option<u32>,
    tokenizer_tail: Vec<u8>,
}

#[derive(Clone)]
struct Token {
    score: f32,
    length: i32,
    bytes: Vec<u8>,
}

impl Parts {
    fn good(version: i32) -> Parts {
        Parts {
            start: (version > 0).then_some((*b"24ka", version)),
            numbers: NUMBERS,
            shared: 1,
            group: (version == 2).then_some(GROUP),
            padding: 0,
            data: data(version),
            tokens: (0..300).map(token).collect(),
            longest: None,
            tokenizer_tail: Vec::new(),
        }
    }

    fn model(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some((magic, version)) = self.start {
            bytes.extend(magic);
            bytes.extend(version.to_le_bytes());
        }
        self.numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        if self.start.is_some() {
            bytes.push(self.shared);
            self.group.iter().for_each(|group| bytes.extend(group.to_le_bytes()));
            bytes.resize(256, self.padding);
        }
        bytes.extend(&self.data);
        bytes
    }

    fn tokenizer(&self) -> Vec<u8> {
        let longest = self.tokens.iter().map(|token| token.bytes.len() as u32).max().unwrap_or(0);
        let mut bytes = self.longest.unwrap_or(longest).to_le_bytes().to_vec();
        for token in &self.tokens {
            bytes.extend(token.score.to_le_bytes());
            bytes.extend(token.length.to_le_bytes());
            bytes.extend(&token.bytes);
        }
        bytes.extend(&self.tokenizer_tail);
        bytes
    }

    fn files(&self) -> Files {
        let file = |name: &str, bytes| (name.to_owned(), Entry::File(bytes));
        vec![file(MODEL, self.model()), file(TOKENIZER, self.tokenizer())]
    }

    fn set_token(&mut self, id: usize, bytes: &[u8]) {
        self.tokens[id] = Token { score: 0.0, length: bytes.len() as i32, bytes: bytes.to_vec() };
    }
}

/// `<unk>`, the two roles, a token for each byte, then characters.
fn token(id: usize) -> Token {
    let text = match id {
        0 => "<unk>".to_owned(),
        1 => "\n<s>\n".to_owned(),
        2 => "\n</s>\n".to_owned(),
        3..259 => format!("<0x{:02X}>", id - 3),
        _ => char::from(b' ' + (id - 259) as u8).to_string() + if id > 290 { "e" } else { "" },
    };
    Token { score: -(id as f32), length: text.len() as i32, bytes: text.into_bytes() }
}

/// Small weights in the order of a version.
fn data(version: i32) -> Vec<u8> {
    let [dim, hidden, layers, heads, kv_heads, vocabulary, context] = NUMBERS.map(|number| number as usize);
    let kv_dim = dim / heads * kv_heads;
    let attention = layers * (2 * dim * dim + 2 * dim * kv_dim);
    let (norms, rest) = (dim * (2 * layers + 1), attention + 3 * layers * dim * hidden);
    let mut random = Random::new(0, "weights");
    let mut weights =
        |count: usize| -> Vec<f32> { (0..count).map(|_| random.below(200) as f32 / 1000.0 - 0.1).collect() };
    let mut bytes = Vec::new();
    if version == 2 {
        weights(norms).iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        let sizes =
            [vec![vocabulary * dim], vec![dim * dim; layers], vec![dim * kv_dim; 2 * layers], vec![dim * dim; layers]];
        for size in [sizes.concat(), vec![dim * hidden; 3 * layers]].concat() {
            bytes.extend((0..size).map(|place| (place % 200) as u8));
            (0..size / GROUP as usize).for_each(|_| bytes.extend(0.001_f32.to_le_bytes()));
        }
        return bytes;
    }
    weights(norms + rest + vocabulary * dim).iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    if version == 0 {
        let pairs = dim / heads / 2;
        let frequency = |pair: usize| 1.0 / 10_000_f32.powf(2.0 * pair as f32 / (2 * pairs) as f32);
        let angles: Vec<f32> =
            (0..context * pairs).map(|place| (place / pairs) as f32 * frequency(place % pairs)).collect();
        angles.iter().for_each(|angle| bytes.extend(angle.cos().to_le_bytes()));
        angles.iter().for_each(|angle| bytes.extend(angle.sin().to_le_bytes()));
    }
    bytes
}

/// Version and change of one thing.
type Lie = (&'static str, i32, fn(&mut Parts, &mut Random));

const FILE: &[Lie] = &[
    ("magic with a flipped bit", 1, |p, r| flip(p, r)),
    ("magic backwards", 1, |p, _| p.start = Some((*b"ak42", 1))),
    ("version 0 with magic", 1, |p, _| p.start = Some((*b"24ka", 0))),
    ("version 3", 1, |p, _| p.start = Some((*b"24ka", 3))),
    ("version -1", 2, |p, _| p.start = Some((*b"24ka", -1))),
    ("version 1 of a file of version 2", 2, |p, _| p.start = Some((*b"24ka", 1))),
    ("version 2 of a file of version 1", 1, |p, _| p.start = Some((*b"24ka", 2))),
    ("shared 2", 1, |p, _| p.shared = 2),
    ("shared 255", 2, |p, _| p.shared = 255),
    ("not shared, but no head", 1, |p, _| p.shared = 0),
    ("negative vocabulary, but no head", 0, |p, _| p.numbers[5] = -300),
    ("padding", 1, |p, _| p.padding = 1),
    ("group 0", 2, |p, _| p.group = Some(0)),
    ("group -1", 2, |p, _| p.group = Some(-1)),
    ("group that does not divide", 2, |p, _| p.group = Some(7)),
    ("group 2^31-1", 2, |p, _| p.group = Some(i32::MAX)),
    ("group twice as large", 2, |p, _| p.group = Some(2 * GROUP)),
    ("a byte more", 0, |p, _| p.data.push(0)),
    ("a byte less", 0, |p, _| p.data.truncate(p.data.len() - 1)),
    ("a byte more, version 1", 1, |p, _| p.data.push(0)),
    ("a byte less, version 2", 2, |p, _| p.data.truncate(p.data.len() - 1)),
    ("cut in the weights", 0, |p, r| p.data.truncate(r.below(p.data.len()))),
    ("cut in the weights, version 1", 1, |p, r| p.data.truncate(r.below(p.data.len()))),
    ("cut in the weights, version 2", 2, |p, r| p.data.truncate(r.below(p.data.len()))),
    ("no weights", 0, |p, _| p.data.clear()),
    ("rope table of NaN", 0, |p, _| table(p, f32::NAN)),
    ("rope table of infinities", 0, |p, _| table(p, f32::INFINITY)),
    ("rope table of 2", 0, |p, _| table(p, 2.0)),
];

const TOKENS: &[Lie] = &[
    ("one token less", 0, |p, _| drop(p.tokens.pop())),
    ("one token more", 0, |p, _| p.tokens.push(token(298))),
    ("no tokens", 0, |p, _| p.tokens.clear()),
    ("token of negative length", 0, |p, r| any(p, r).length = -1),
    ("token of length -2^31", 0, |p, r| any(p, r).length = i32::MIN),
    ("token of length 2^31-1", 0, |p, r| any(p, r).length = i32::MAX),
    ("token one byte longer", 0, |p, r| any(p, r).length += 1),
    ("score NaN", 0, |p, r| any(p, r).score = f32::NAN),
    ("score infinite", 0, |p, r| any(p, r).score = f32::INFINITY),
    ("longest token 0", 0, |p, _| p.longest = Some(0)),
    ("a byte behind the tokens", 0, |p, _| p.tokenizer_tail.push(0)),
    ("a megabyte behind the tokens", 0, |p, _| p.tokenizer_tail = vec![0; 1 << 20]),
];

const ACCEPTED: &[Lie] = &[
    ("version 0", 0, |_, _| ()),
    ("version 1", 1, |_, _| ()),
    ("version 2", 2, |_, _| ()),
    ("longest token 2^32-1", 1, |p, _| p.longest = Some(u32::MAX)),
    ("a token with control characters", 1, |p, _| p.set_token(270, "\u{1b}[2J\u{202e}\u{7}".as_bytes())),
    ("context of another length", 1, |p, r| p.numbers[6] = r.between(65, 5000) as i32),
    ("head of its own", 1, |p, _| {
        p.shared = 0;
        let embedding = p.data[5 * 64..5 * 64 + 300 * 16 * 4].to_vec();
        p.data.extend(embedding);
    }),
];

/// All cases.
pub fn cases(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for version in 0..3 {
        cases.extend(numbers(seed, version));
    }
    cases.extend(lies(seed, FILE, READERS, MODEL));
    cases.extend(lies(seed, TOKENS, READERS, TOKENIZER));
    let accepted = lies(seed, ACCEPTED, &[], MODEL).into_iter();
    cases.extend(accepted.map(|good| Case { accepted_by: ALL, ..good }));
    let text = [("a token that is no UTF-8", 1, (|p, _| p.set_token(270, b"\xff\xfe")) as fn(&mut Parts, &mut Random))];
    cases.extend(lies(seed, &text, &[Call::Tokenize, Call::Convert], TOKENIZER));
    cases.extend(things(seed));
    cases
}

/// Each of the seven numbers, with each value that cannot be.
fn numbers(seed: u64, version: i32) -> Vec<Case> {
    let mut cases = Vec::new();
    for (place, name) in NAMES.iter().enumerate() {
        let huge = 1 << Random::new(seed, name).between(12, 31);
        for (what, value) in [
            ("0", 0),
            ("-1", -1),
            ("-2^31", i32::MIN),
            ("2^31-1", i32::MAX),
            ("one more", NUMBERS[place] + 1),
            ("huge", huge),
        ] {
            let mut parts = Parts::good(version);
            parts.numbers[place] = value;
            let believed = place == 6 && version > 0 && (1..=1 << 28).contains(&value);
            if !believed {
                cases.push(case(&format!("{name} {what}, version {version}"), parts.files(), READERS, MODEL));
            }
        }
    }
    cases
}

fn lies(seed: u64, lies: &[Lie], refused_by: &'static [Call], named: &'static str) -> Vec<Case> {
    let lie = |(name, version, lie): &Lie| {
        let mut parts = Parts::good(*version);
        lie(&mut parts, &mut Random::new(seed, name));
        case(name, parts.files(), refused_by, named)
    };
    lies.iter().map(lie).collect()
}

/// Cut headers, holes, and what is no file.
fn things(seed: u64) -> Vec<Case> {
    let good = Parts::good(1);
    let model = |entry| vec![(MODEL.to_owned(), entry)];
    let tokenizer = |entry| vec![(MODEL.to_owned(), Entry::File(good.model())), (TOKENIZER.to_owned(), entry)];
    let mut random = Random::new(seed, "things");
    let mut cut = |length: usize| Entry::File(good.model()[..random.below(length)].to_vec());
    let table = good.tokenizer();
    let half = Entry::File(table[..table.len() / 2].to_vec());
    vec![
        case("cut in the header", model(cut(250)), READERS, MODEL),
        case("empty", model(Entry::File(Vec::new())), READERS, MODEL),
        case("zeros", model(Entry::File(vec![0; 4096])), READERS, MODEL),
        case("ones", model(Entry::File(vec![0xff; 4096])), READERS, MODEL),
        case("a hole of 1 TiB", model(Entry::Sparse(good.model(), 1 << 40)), READERS, MODEL),
        case("a pipe", model(Entry::Pipe), READERS, MODEL),
        case("a link to itself", model(Entry::Link(MODEL.to_owned())), READERS, MODEL),
        case("tokenizer empty", tokenizer(Entry::File(Vec::new())), READERS, TOKENIZER),
        case("tokenizer cut", tokenizer(half), READERS, TOKENIZER),
        case("tokenizer a pipe", tokenizer(Entry::Pipe), READERS, TOKENIZER),
        case("tokenizer a directory", tokenizer(Entry::Folder), READERS, TOKENIZER),
        case("tokenizer a hole of 1 TiB", tokenizer(Entry::Sparse(table, 1 << 40)), READERS, TOKENIZER),
    ]
}

fn case(name: &str, files: Files, refused_by: &'static [Call], named: &'static str) -> Case {
    Case {
        name: name.to_owned(),
        files,
        model: MODEL,
        trace: None,
        named,
        says: "",
        memory_kib: MEMORY_KIB,
        refused_by,
        accepted_by: &[],
    }
}

fn any<'a>(parts: &'a mut Parts, random: &mut Random) -> &'a mut Token {
    let place = random.below(parts.tokens.len() - 1);
    &mut parts.tokens[place]
}

fn flip(parts: &mut Parts, random: &mut Random) {
    let (magic, _) = parts.start.as_mut().expect("version 1 has magic");
    magic[random.below(4)] ^= 1 << random.below(8);
}

/// Sets all of the rope table of version 0.
fn table(parts: &mut Parts, value: f32) {
    let size = (NUMBERS[6] * NUMBERS[0] / NUMBERS[3]) as usize * 4;
    let start = parts.data.len() - size;
    parts.data[start..].chunks_exact_mut(4).for_each(|chunk| chunk.copy_from_slice(&value.to_le_bytes()));
}
