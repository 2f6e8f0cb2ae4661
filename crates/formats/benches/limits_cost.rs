//! What the limits of reading cost: opening a GGUF file as it is done, and building the same values of the same bytes
//! without a look at any of them, in turns. The first is `Gguf::open`: counts held against what is left of the file,
//! depths and lengths against their limits, names against each other, bytes of tensors against a second owner. The
//! second is written here and believes everything.
//!
//! ```text
//! cargo bench -p trueup-formats --bench limits_cost
//! ```
#![allow(clippy::print_stdout, reason = "a measurement for people")]

use hashbrown::{DefaultHashBuilder, HashTable};
use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::hint::black_box;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;
use trueup_blocks::DType;
use trueup_formats::gguf::{Gguf, GgufPlan, GgufWriter, Metadata, Value};
use trueup_formats::{Checkpoint, TensorInfo};

/// Pairs that are timed; a pair is one run of each, in turns first.
const PAIRS: usize = 101;

fn main() {
    let folder = tempfile::tempdir().expect("a directory for two files");
    let tensors: Vec<TensorInfo> = (0..50_000).map(tensor).collect();
    let many = write(&folder.path().join("tensors.gguf"), &Metadata::default(), &tensors);
    let vocabulary = write(&folder.path().join("vocabulary.gguf"), &vocabulary(), &tensors[..1]);
    for (what, (path, header_bytes)) in [("50,000 tensors", many), ("262,144 tokens", vocabulary)] {
        compare(what, &path, header_bytes);
    }
}

fn tensor(number: usize) -> TensorInfo {
    let name = format!("blk.{}.ffn_gate_exps.{}.weight", number / 100, number % 100);
    TensorInfo { name, shape: vec![32, 2], dtype: DType::F32, bytes: 256 }
}

/// Tokens, scores, types and merges.
fn vocabulary() -> Metadata {
    let count = 1 << 18;
    let mut metadata = Metadata::default();
    let token = |number: i32| format!("tok{:x}", number.wrapping_mul(40_503) & 0xF_FFFF);
    metadata.insert("tokenizer.ggml.tokens", Value::from((0..count).map(token).collect::<Vec<String>>()));
    metadata.insert("tokenizer.ggml.scores", Value::from((0..count).map(|n| -n as f32).collect::<Vec<f32>>()));
    metadata.insert("tokenizer.ggml.token_type", Value::from(vec![1_i32; 1 << 18]));
    let merge = |number: i32| format!("{} {}", token(number), token(number + 1));
    metadata.insert("tokenizer.ggml.merges", Value::from((0..count).map(merge).collect::<Vec<String>>()));
    metadata
}

/// Writes a file of zeros; gives its path and the bytes before its data.
fn write(path: &Path, metadata: &Metadata, tensors: &[TensorInfo]) -> (std::path::PathBuf, usize) {
    let plan = GgufPlan::new(path, metadata, tensors, None).expect("a plan");
    let writer = GgufWriter::create(plan, &[]).expect("a file");
    for (number, tensor) in tensors.iter().enumerate() {
        writer.write(number, 0, &vec![0; tensor.bytes as usize]).expect("bytes can be written");
    }
    writer.finish().expect("the file is whole");
    let data: u64 = tensors.iter().map(|tensor| tensor.bytes).sum();
    let bytes = fs::metadata(path).expect("it was written").len();
    (path.to_owned(), (bytes - data) as usize)
}

fn compare(what: &str, path: &Path, header_bytes: usize) {
    let checked = Gguf::open(path).expect("a valid file");
    let believed = Believed::open(path, header_bytes);
    assert_eq!(believed.tensors, checked.tensors(), "both read the same");
    assert_eq!(believed.entries.len(), checked.metadata().iter().len(), "both read the same");
    let seconds = |run: &dyn Fn()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    let with = || drop(black_box(Gguf::open(path)));
    let without = || drop(black_box(Believed::open(path, header_bytes)));
    let (mut on, mut off, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let (a, b) = if pair % 2 == 0 {
            let a = seconds(&with);
            (a, seconds(&without))
        } else {
            let b = seconds(&without);
            (seconds(&with), b)
        };
        on.push(a);
        off.push(b);
        ratios.push(a / b);
    }
    let [on, off, ratio] = [on, off, ratios].map(median);
    println!("{what}: {:.2} ms with limits, {:.2} ms without, ratio {ratio:.3}", on * 1e3, off * 1e3);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What a file claims, as it stands there.
#[allow(dead_code)]
struct Believed {
    entries: Vec<(String, Item)>,
    places: HashMap<String, usize>,
    tensors: Vec<TensorInfo>,
    names: HashTable<u32>,
    ranges: Vec<Range<u64>>,
}

/// The kinds of values that the files of this measurement have; nobody looks at them.
#[allow(dead_code)]
enum Item {
    Number(u32),
    Strings(Vec<String>),
    Floats(Vec<f32>),
    Integers(Vec<i32>),
}

impl Believed {
    fn open(path: &Path, header_bytes: usize) -> Believed {
        let mut bytes = vec![0; header_bytes];
        File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).expect("the header can be read");
        let mut bytes = &bytes[8..];
        let (tensors, keys) = (long(&mut bytes), long(&mut bytes));
        let names = HashTable::with_capacity(tensors as usize);
        let (entries, places) = (Vec::new(), HashMap::new());
        let mut believed = Believed { entries, places, tensors: Vec::new(), names, ranges: Vec::new() };
        for place in 0..keys as usize {
            let (key, item) = (string(&mut bytes), item(&mut bytes));
            believed.places.insert(key.clone(), place);
            believed.entries.push((key, item));
        }
        believed.tensors.reserve(tensors as usize);
        believed.ranges.reserve(tensors as usize);
        let hasher = DefaultHashBuilder::default();
        for number in 0..tensors {
            let (name, dimensions) = (string(&mut bytes), short(&mut bytes));
            let shape: Vec<u64> = (0..dimensions).map(|_| long(&mut bytes)).collect();
            let dtype = DType::from_gguf_id(short(&mut bytes)).expect("a type");
            let offset = long(&mut bytes) + header_bytes as u64;
            let size = dtype.row_bytes(shape.iter().product()).expect("whole blocks");
            believed
                .names
                .insert_unique(hasher.hash_one(name.as_str()), number as u32, |_| unreachable!("it has room"));
            believed.ranges.push(offset..offset + size);
            believed.tensors.push(TensorInfo { name, shape, dtype, bytes: size });
        }
        believed
    }
}

fn item(bytes: &mut &[u8]) -> Item {
    match short(bytes) {
        9 => {
            let (kind, count) = (short(bytes), long(bytes) as usize);
            match kind {
                8 => Item::Strings((0..count).map(|_| string(bytes)).collect()),
                6 => Item::Floats(numbers(bytes, count).map(f32::from_bits).collect()),
                _ => Item::Integers(numbers(bytes, count).map(|bits| bits as i32).collect()),
            }
        }
        _ => Item::Number(short(bytes)),
    }
}

fn numbers<'a>(bytes: &mut &'a [u8], count: usize) -> impl Iterator<Item = u32> + use<'a> {
    let (numbers, rest) = bytes.split_at(4 * count);
    *bytes = rest;
    numbers.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

fn short(bytes: &mut &[u8]) -> u32 {
    let (number, rest) = bytes.split_first_chunk().expect("four bytes");
    *bytes = rest;
    u32::from_le_bytes(*number)
}

fn long(bytes: &mut &[u8]) -> u64 {
    let (number, rest) = bytes.split_first_chunk().expect("eight bytes");
    *bytes = rest;
    u64::from_le_bytes(*number)
}

/// A text is UTF-8 in Rust, with or without limits.
fn string(bytes: &mut &[u8]) -> String {
    let count = long(bytes) as usize;
    let (text, rest) = bytes.split_at(count);
    *bytes = rest;
    std::str::from_utf8(text).expect("a text").to_owned()
}
