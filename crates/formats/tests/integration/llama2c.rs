//! llama2.c files of all versions, made here by the rule of the format, and ones that lie.

use crate::support::{Faults, find, golden, read_f32, write};
use std::path::{Path, PathBuf};
use trueup_formats::llama2c::{Llama2c, TokenizerBin, Version};
use trueup_formats::{Checkpoint, Description, OpenOptions, SourceFile, open};

/// A model to export: sizes as in the header, weights by a seeded rule.
#[derive(Clone)]
struct Model {
    dim: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    vocabulary: usize,
    context: usize,
    shared: bool,
}

const MODEL: Model =
    Model { dim: 16, hidden: 24, layers: 2, heads: 4, kv_heads: 2, vocabulary: 10, context: 8, shared: true };

impl Model {
    fn head(&self) -> usize {
        self.dim / self.heads
    }

    /// Sizes of a tensor, outermost first, by the part of its name that is not the layer.
    fn size(&self, name: &str) -> usize {
        let (dim, kv) = (self.dim, self.head() * self.kv_heads);
        match name {
            "tok_embeddings" | "output" => self.vocabulary * dim,
            "attention_norm" | "ffn_norm" | "norm" => dim,
            "attention.wq" | "attention.wo" => dim * dim,
            "attention.wk" | "attention.wv" => kv * dim,
            "feed_forward.w1" | "feed_forward.w2" | "feed_forward.w3" => self.hidden * dim,
            other => panic!("no tensor {other}"),
        }
    }

    /// Numbers between -1 and 1 that depend on the name alone.
    fn weights(&self, name: &str) -> Vec<f32> {
        let last = name.strip_suffix(".weight").unwrap();
        let part = last.strip_prefix("layers.").map_or(last, |rest| rest.split_once('.').unwrap().1);
        let mut state = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        (0..self.size(part))
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1 << 23) as f32 - 1.0
            })
            .collect()
    }

    /// One kind of tensor of all layers.
    fn every(&self, part: &str) -> Vec<String> {
        (0..self.layers).map(|layer| format!("layers.{layer}.{part}.weight")).collect()
    }

    fn numbers(&self, vocabulary: i32) -> Vec<u8> {
        let sizes = [self.dim, self.hidden, self.layers, self.heads, self.kv_heads].map(|size| size as i32);
        sizes.into_iter().chain([vocabulary, self.context as i32]).flat_map(i32::to_le_bytes).collect()
    }

    fn names_v0(&self) -> Vec<String> {
        let layers = ["attention_norm", "attention.wq", "attention.wk", "attention.wv", "attention.wo", "ffn_norm"];
        let feed_forward = ["feed_forward.w1", "feed_forward.w2", "feed_forward.w3"];
        let mut names = vec!["tok_embeddings.weight".to_owned()];
        names.extend(layers.iter().chain(&feed_forward).flat_map(|part| self.every(part)));
        names.push("norm.weight".to_owned());
        names
    }

    fn norms_v1(&self) -> Vec<String> {
        [self.every("attention_norm"), self.every("ffn_norm"), vec!["norm.weight".to_owned()]].concat()
    }

    fn matrices_v1(&self) -> Vec<String> {
        let parts = ["attention.wq", "attention.wk", "attention.wv", "attention.wo"];
        let feed_forward = ["feed_forward.w1", "feed_forward.w2", "feed_forward.w3"];
        let mut names = vec!["tok_embeddings.weight".to_owned()];
        names.extend(parts.iter().chain(&feed_forward).flat_map(|part| self.every(part)));
        names.extend((!self.shared).then(|| "output.weight".to_owned()));
        names
    }

    fn put(&self, out: &mut Vec<u8>, names: &[String]) {
        names.iter().for_each(|name| out.extend(self.weights(name).iter().flat_map(|weight| weight.to_le_bytes())));
    }

    /// `angle(p, i) = p * theta^(-2 i / head)`, in f64 and rounded once.
    fn angles(&self, theta: f64) -> Vec<u8> {
        let pairs = self.head() / 2;
        let angle = |index: usize| (index / pairs) as f64 * theta.powf(-((index % pairs) as f64) / pairs as f64);
        let angles = (0..self.context * pairs).map(angle);
        let sines: Vec<f32> = angles.clone().map(|angle| angle.sin() as f32).collect();
        angles.map(|angle| angle.cos() as f32).chain(sines).flat_map(f32::to_le_bytes).collect()
    }

    fn v0(&self, theta: f64) -> Vec<u8> {
        let sign = if self.shared { 1 } else { -1 };
        let mut out = self.numbers(sign * self.vocabulary as i32);
        self.put(&mut out, &self.names_v0());
        out.extend(self.angles(theta));
        self.put(&mut out, &if self.shared { vec![] } else { vec!["output.weight".to_owned()] });
        out
    }

    fn header(&self, version: i32, vocabulary: i32, group: Option<i32>) -> Vec<u8> {
        let mut out =
            [&b"24ka"[..], &version.to_le_bytes(), &self.numbers(vocabulary), &[u8::from(self.shared)]].concat();
        out.extend(group.into_iter().flat_map(i32::to_le_bytes));
        out.resize(256, 0);
        out
    }

    fn v1(&self) -> Vec<u8> {
        let mut out = self.header(1, self.vocabulary as i32, None);
        self.put(&mut out, &self.norms_v1());
        self.put(&mut out, &self.matrices_v1());
        out
    }

    fn v2(&self, group: usize) -> Vec<u8> {
        let mut out = self.header(2, self.vocabulary as i32, Some(group as i32));
        self.put(&mut out, &self.norms_v1());
        for name in self.matrices_v1() {
            let (values, scales) = quantize(&self.weights(&name), group);
            out.extend(values.iter().map(|value| *value as u8));
            out.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
        }
        out
    }
}

/// Scale: largest magnitude / 127; value: quotient rounded half to even.
fn quantize(weights: &[f32], group: usize) -> (Vec<i8>, Vec<f32>) {
    let largest = |chunk: &[f32]| chunk.iter().fold(0.0_f32, |max, weight| max.max(weight.abs()));
    let scales: Vec<f32> = weights.chunks(group).map(|chunk| largest(chunk) / 127.0).collect();
    let value = |(index, weight): (usize, &f32)| (weight / scales[index / group]).round_ties_even() as i8;
    (weights.iter().enumerate().map(value).collect(), scales)
}

fn config(model: &dyn Checkpoint) -> &serde_json::Map<String, serde_json::Value> {
    let Description::Json(config) = model.description() else { panic!("expected JSON") };
    config
}

#[test]
fn plain_versions_hold_the_weights_of_every_layer() {
    let folder = tempfile::tempdir().unwrap();
    for shared in [true, false] {
        let model = Model { shared, ..MODEL };
        for (format, bytes) in [("llama2.c v0", model.v0(10_000.0)), ("llama2.c v1", model.v1())] {
            let opened = open(write(folder.path(), "m.bin", &bytes), &OpenOptions::default()).unwrap();
            assert_eq!(opened.format(), format);
            assert_eq!(opened.tensors().len(), 2 + 9 * 2 + usize::from(!shared));
            for (tensor, info) in opened.tensors().iter().enumerate() {
                assert_eq!(read_f32(&*opened, tensor), model.weights(&info.name), "{format} {}", info.name);
            }
            let shape = |name: &str| opened.tensors()[find(&*opened, name)].shape.clone();
            assert_eq!(shape("tok_embeddings.weight"), [16, 10]);
            assert_eq!(shape("layers.1.attention.wk.weight"), [16, 8]);
            assert_eq!(shape("layers.0.feed_forward.w1.weight"), [16, 24]);
            assert_eq!(shape("layers.0.feed_forward.w2.weight"), [24, 16]);
            let facts = config(&*opened);
            assert_eq!(facts["architectures"][0], "Llama2cForCausalLM");
            assert_eq!(facts["num_key_value_heads"], 2);
            assert_eq!(facts["tie_word_embeddings"], shared);
            assert_eq!(facts["rope_theta"], 10_000.0);
            assert_eq!(facts["rms_norm_eps"], 1e-5);
            assert!(facts.get("llama2c_group_size").is_none());
        }
    }
}

#[test]
fn groups_run_over_the_flattened_matrix() {
    let folder = tempfile::tempdir().unwrap();
    // 32 divides no row of 24, but every matrix.
    for (group, shared) in [(32, true), (16, false), (8, true), (1, true)] {
        let model = Model { shared, ..MODEL };
        let opened = Llama2c::open(write(folder.path(), "m.bin", &model.v2(group)), None).unwrap();
        assert_eq!(opened.header().version, Version::V2);
        assert_eq!(config(&opened)["llama2c_group_size"], group);
        for (tensor, info) in opened.tensors().iter().enumerate() {
            let weights = model.weights(&info.name);
            let (values, scales) = quantize(&weights, group);
            let product = |index: usize| f32::from(values[index]) * scales[index / group];
            let quantized: Vec<f32> = (0..weights.len()).map(product).collect();
            let expected = if info.name.contains("norm") { weights } else { quantized };
            assert_eq!(read_f32(&opened, tensor), expected, "{} in groups of {group}", info.name);
        }
        let tensor = find(&opened, "layers.1.feed_forward.w2.weight");
        let whole = read_f32(&opened, tensor);
        for (start, end) in [(0, 1), (31, 33), (5, 200), (383, 384), (32, 64), (7, 7)] {
            let mut bytes = vec![0; (end - start) * 4];
            opened.read(tensor, start as u64 * 4, &mut bytes).unwrap();
            let part: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            assert_eq!(part, whole[start..end], "numbers {start} to {end} in groups of {group}");
        }
    }
}

#[test]
fn an_exporter_that_leaves_the_sign_is_understood() {
    let folder = tempfile::tempdir().unwrap();
    let model = Model { shared: false, ..MODEL };
    for mut bytes in [model.v1(), model.v2(16)] {
        bytes[28..32].copy_from_slice(&(-10_i32).to_le_bytes());
        let opened = Llama2c::open(write(folder.path(), "m.bin", &bytes), None).unwrap();
        assert_eq!(config(&opened)["vocab_size"], 10);
        assert_eq!(read_f32(&opened, find(&opened, "output.weight")).len(), 160);
    }
}

#[test]
fn the_rope_table_tells_theta() {
    for (name, theta) in [("theta-10000.bin", 10_000.0), ("theta-500000.bin", 500_000.0)] {
        assert_eq!(config(&Llama2c::open(golden(name), None).unwrap())["rope_theta"], theta, "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let large = Model { heads: 2, context: 2048, ..MODEL };
    for theta in [10_000.0, 500_000.0, 1_000_000.0, 10.0, 26.5, 1e8] {
        let opened = Llama2c::open(write(folder.path(), "m.bin", &large.v0(theta)), None).unwrap();
        let found = config(&opened)["rope_theta"].as_f64().unwrap();
        assert!((found / theta - 1.0).abs() < 1e-5 && (theta.fract() != 0.0 || found == theta), "{theta}: {found}");
    }
    let short = Model { heads: 2, context: 2, ..MODEL };
    let opened = Llama2c::open(write(folder.path(), "short.bin", &short.v0(26.5)), None).unwrap();
    assert!((config(&opened)["rope_theta"].as_f64().unwrap() / 26.5 - 1.0).abs() < 1e-5, "two positions are enough");
    let mut faults = Faults::default();
    let fragments = ["freqs_cos", "theta 10000 nor with theta", "at position 1, pair 0", "original checkpoint"];
    faults.refused("scaled", Llama2c::open(golden("scaled.bin"), None), "scaled.bin", &fragments);
    // The sine of 1000 radians, by more than f32 can be wrong there and less than shows in a text.
    let thousand = (large.context - 1000) * (large.head() / 2);
    let near = (1000_f64.sin() + 5e-3) as f32;
    let cases =
        [("one sine", 1, 0.5_f32), ("near", thousand, near), ("NaN", 40, f32::NAN), ("infinity", 2000, f32::INFINITY)];
    for (case, place, number) in cases {
        let mut bytes = large.v0(10_000.0);
        let start = bytes.len() - 4 * place;
        bytes[start..start + 4].copy_from_slice(&number.to_le_bytes());
        let path = write(folder.path(), "m.bin", &bytes);
        faults.refused(case, Llama2c::open(path, None), "m.bin", &["freqs_cos", "at position"]);
    }
    faults.report();
}

/// A vocabulary of the model's size, in today's structure or the first one.
fn vocabulary(scores: bool) -> Vec<u8> {
    let mut out = if scores { 9_u32.to_le_bytes().to_vec() } else { vec![] };
    for id in 0..MODEL.vocabulary {
        let token = token(id);
        out.extend(scores.then(|| (-(id as f32)).to_le_bytes()).into_iter().flatten());
        out.extend((token.len() as i32).to_le_bytes());
        out.extend(token);
    }
    out
}

#[test]
fn a_vocabulary_that_is_too_large_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.bin");
    let limit = 256 << 20;
    let refused = |bytes: u64| {
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        TokenizerBin::read(&SourceFile::open(&path).unwrap(), 3).unwrap_err().to_string()
    };
    assert!(refused(limit + 1).contains("expected at most 268435456 bytes for a vocabulary, found 268435457"));
    assert!(refused(limit).contains("a tokenizer.bin of 3 tokens, found none of them"), "it is looked at");
}

fn token(id: usize) -> Vec<u8> {
    match id {
        0 => b"<unk>".to_vec(),
        1 => b"\n<s>\n".to_vec(),
        2 => b"\n</s>\n".to_vec(),
        other => vec![b'a' + other as u8; other],
    }
}

fn read_vocabulary(path: &Path) -> Result<TokenizerBin, trueup_formats::Error> {
    TokenizerBin::read(&SourceFile::open(path)?, MODEL.vocabulary as u64)
}

#[test]
fn both_structures_of_the_vocabulary_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let tokens: Vec<Vec<u8>> = (0..MODEL.vocabulary).map(token).collect();
    let scores: Vec<f32> = (0..MODEL.vocabulary).map(|id| -(id as f32)).collect();
    let today = TokenizerBin { tokens: tokens.clone(), scores: Some(scores), max_token_length: Some(9) };
    let first = TokenizerBin { tokens, scores: None, max_token_length: None };
    let model = write(folder.path(), "m.bin", &MODEL.v1());
    assert_eq!(Llama2c::open(&model, None).unwrap().tokenizer().llama2c, None);
    let elsewhere = write(folder.path(), "first.bin", &vocabulary(false));
    write(folder.path(), "tokenizer.bin", &vocabulary(true));
    let beside = Llama2c::open(&model, None).unwrap();
    assert_eq!(beside.tokenizer().llama2c, Some(today));
    assert_eq!(beside.sources().len(), 2);
    beside.unchanged().unwrap();
    write(folder.path(), "tokenizer.bin", &vocabulary(false));
    assert!(beside.unchanged().unwrap_err().to_string().contains("tokenizer.bin"));
    let named = open(&model, &OpenOptions { tokenizer: Some(elsewhere) }).unwrap();
    assert_eq!(named.tokenizer().llama2c, Some(first));
    let sentencepiece = write(folder.path(), "t.model", b"protobuf");
    let named = Llama2c::open(&model, Some(&sentencepiece)).unwrap();
    assert_eq!(named.tokenizer().tokenizer_model.as_deref(), Some(&b"protobuf"[..]));
}

#[test]
fn a_vocabulary_that_lies_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut faults = Faults::default();
    for (structure, whole) in [("today", vocabulary(true)), ("first", vocabulary(false))] {
        for bytes in 0..whole.len() {
            let path = write(folder.path(), "t.bin", &whole[..bytes]);
            faults.refused(
                &format!("{structure}, {bytes} bytes"),
                read_vocabulary(&path),
                "t.bin",
                &["tokens", "tokenizer.bin of 10 tokens"],
            );
        }
        let longer = write(folder.path(), "t.bin", &[whole.clone(), vec![0]].concat());
        faults.refused(structure, read_vocabulary(&longer), "t.bin", &["1 more bytes"]);
        let length = if structure == "today" { 8 } else { 0 };
        for lie in [-1, i32::MIN, i32::MAX, 1 << 20] {
            let mut bytes = whole.clone();
            bytes[length..length + 4].copy_from_slice(&lie.to_le_bytes());
            let path = write(folder.path(), "t.bin", &bytes);
            faults.refused(&format!("{structure}, length {lie}"), read_vocabulary(&path), "t.bin", &["token 0"]);
        }
    }
    let mut short = vocabulary(true);
    short[0] = 8;
    faults.refused(
        "longest",
        read_vocabulary(&write(folder.path(), "t.bin", &short)),
        "t.bin",
        &["of at most 8, found 9"],
    );
    let mut nan = vocabulary(true);
    nan[4..8].copy_from_slice(&f32::NAN.to_le_bytes());
    faults.refused("NaN", read_vocabulary(&write(folder.path(), "t.bin", &nan)), "t.bin", &["score of token 0"]);
    let path = write(folder.path(), "t.bin", &vocabulary(true));
    let many = TokenizerBin::read(&SourceFile::open(&path).unwrap(), 1 << 62);
    faults.refused("2^62 tokens", many, "t.bin", &["4611686018427387904"]);
    faults.report();
}

/// A file with one number of its header replaced.
fn with_number(mut bytes: Vec<u8>, place: usize, number: i32) -> Vec<u8> {
    bytes[place..place + 4].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn every_lie_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut faults = Faults::default();
    let names = ["dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "max_seq_len"];
    let files = [("v0", MODEL.v0(10_000.0), 0), ("v1", MODEL.v1(), 8), ("v2", MODEL.v2(16), 8)];
    for (version, bytes, first) in &files {
        for (index, name) in names.iter().enumerate() {
            for lie in [0, -1, i32::MIN, i32::MAX] {
                // Versions 1 and 2 take the sign away from a vocabulary of one token; the size of the file is wrong
                // then.
                let fragment = if *name == "vocab_size" && lie == -1 { "header" } else { name };
                let path = write(folder.path(), "m.bin", &with_number(bytes.clone(), first + 4 * index, lie));
                faults.refused(&format!("{version} {name} {lie}"), Llama2c::open(path, None), "m.bin", &[fragment]);
            }
        }
        let heads = write(folder.path(), "m.bin", &with_number(bytes.clone(), first + 12, 3));
        faults.refused(version, Llama2c::open(heads, None), "m.bin", &["header", "dim 16 and n_heads 3"]);
        let odd = write(folder.path(), "m.bin", &with_number(bytes.clone(), first + 12, 16));
        faults.refused(version, Llama2c::open(odd, None), "m.bin", &["header", "expected an even dim"]);
        let kv_heads = write(folder.path(), "m.bin", &with_number(bytes.clone(), first + 16, 3));
        faults.refused(
            version,
            Llama2c::open(kv_heads, None),
            "m.bin",
            &["header", "n_kv_heads to divide n_heads, found 3 and 4"],
        );
        for size in [bytes.len() - 1, bytes.len() + 1] {
            let mut bytes = bytes.clone();
            bytes.resize(size, 0);
            let fragments = ["header", "expected", "bytes for its sizes"];
            faults.refused(version, Llama2c::open(write(folder.path(), "m.bin", &bytes), None), "m.bin", &fragments);
        }
    }
    let v2 = MODEL.v2(16);
    let others: [(&str, Vec<u8>, &[&str]); 6] = [
        ("version 3", with_number(v2.clone(), 4, 3), &["version at byte 4", "found 3"]),
        ("group 0", with_number(v2.clone(), 37, 0), &["group_size at byte 37", "found 0"]),
        ("group -1", with_number(v2.clone(), 37, -1), &["group_size", "found -1"]),
        ("group 7", with_number(v2.clone(), 37, 7), &["group_size", "divide", "groups of 7"]),
        ("shared 2", [&v2[..36], &[2], &v2[37..]].concat(), &["shared_classifier", "found 2"]),
        ("padding", [&v2[..255], &[1], &v2[256..]].concat(), &["padding", "zeros up to byte 256"]),
    ];
    for (case, bytes, fragments) in others {
        faults.refused(case, Llama2c::open(write(folder.path(), "m.bin", &bytes), None), "m.bin", fragments);
    }
    faults.report();
}

#[test]
fn every_cut_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut faults = Faults::default();
    for bytes in [MODEL.v0(10_000.0), MODEL.v1(), MODEL.v2(16)] {
        for size in (0..300).chain((300..bytes.len()).step_by(61)) {
            let path: PathBuf = write(folder.path(), "m.bin", &bytes[..size]);
            faults.refused(&format!("{size} bytes"), Llama2c::open(path, None), "m.bin", &["e"]);
        }
    }
    faults.report();
}
