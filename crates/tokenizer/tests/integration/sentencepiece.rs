//! Tokenizers that fold characters by a map, and unigram models, against ids of the sentencepiece library (and of the
//! tokenizers library for `tokenizer.json`): from their files, from GGUF keys, and with no other tokens than a text
//! needs.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use trueup_formats::TokenizerFiles;
use trueup_formats::gguf::{Array, Metadata, Value as KeyValue};
use trueup_tokenizer::{Algorithm, ModelTokens, Tokenizer, UnigramRule, Vocabulary};

const MODEL: &str = "tokenizer.ggml.model";
const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";
const EXTRA: &str = "tokenizer.ggml.remove_extra_whitespaces";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tokenizers").join(name)
}

fn folders() -> Vec<String> {
    let entries = fs::read_dir(fixture("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    assert_eq!(names, ["bpe-map", "bpe-map-bytes", "ice-text-map", "unigram", "unigram-bytes", "unigram-json"]);
    names
}

fn vocabulary(name: &str) -> Vocabulary {
    let read = |file: &str| fs::read(fixture(name).join(file)).ok();
    let files = TokenizerFiles {
        tokenizer_json: read("tokenizer.json"),
        tokenizer_model: read("tokenizer.model"),
        ice_text: read("ice_text.model"),
        tokenizer_config: json!({"num_image_tokens": 0}).as_object().cloned(),
        ..TokenizerFiles::default()
    };
    Vocabulary::from_files(&files, &ModelTokens::default(), Path::new(name)).unwrap()
}

fn keys(vocabulary: &Vocabulary) -> Metadata {
    let mut keys = Metadata::default();
    vocabulary.write_metadata(&mut keys).unwrap();
    keys
}

fn read(keys: &Metadata) -> Result<Vocabulary, String> {
    Vocabulary::from_metadata(keys, Path::new("model.gguf")).map_err(|error| error.to_string())
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

fn texts(name: &str) -> Vec<Value> {
    let golden: Value = serde_json::from_slice(&fs::read(fixture(name).join("golden.json")).unwrap()).unwrap();
    golden["texts"].as_array().unwrap().clone()
}

/// The ids of a text by a vocabulary of those tokens alone that it needs, as the whole one has them.
fn slimmed(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let vocabulary = tokenizer.vocabulary();
    let mut kept: BTreeSet<u32> = tokenizer.tokens_of(text).unwrap().into_iter().collect();
    kept.extend(vocabulary.indispensable());
    let kept: Vec<u32> = kept.into_iter().collect();
    let slim = Tokenizer::new(vocabulary.slimmed(&kept).unwrap()).unwrap();
    slim.encode(text, false).unwrap().into_iter().map(|id| kept[usize::try_from(id).unwrap()]).collect()
}

#[test]
fn ids_and_texts_of_every_fixture() {
    let mut faults = Vec::new();
    for name in folders() {
        let from_files = vocabulary(&name);
        let from_keys = read(&keys(&from_files)).unwrap();
        for (way, vocabulary) in [("files", from_files), ("GGUF keys", from_keys)] {
            let tokenizer = Tokenizer::new(vocabulary).unwrap();
            for case in texts(&name) {
                let (text, expected) = (case["text"].as_str().unwrap(), ids(&case["ids"]));
                for (what, found) in
                    [("ids", tokenizer.encode(text, false).unwrap()), ("slimmed", slimmed(&tokenizer, text))]
                {
                    if found != expected {
                        faults
                            .push(format!("{name}, {way}: {what} of {text:?}: expected {expected:?}, found {found:?}"));
                    }
                }
                let decoded = String::from_utf8_lossy(&tokenizer.decode(&expected, false)).into_owned();
                if case["decoded"].as_str().is_some_and(|expected| expected != decoded) {
                    faults.push(format!("{name}, {way}: {:?} comes back as {decoded:?}", case["decoded"]));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

/// What every GGUF program knows says all there is to say of a unigram model; a model that merges has a note beside its
/// map.
#[test]
fn keys_of_each_kind() {
    for (name, model, extra, own, noted) in [
        ("unigram", "t5", true, false, false),
        ("unigram-bytes", "t5", false, false, false),
        ("unigram-json", "t5", false, true, true),
        ("bpe-map", "llama", true, false, true),
        ("ice-text-map", "llama", true, true, true),
    ] {
        let (vocabulary, mut keys) = (vocabulary(name), Metadata::default());
        let notes = vocabulary.write_metadata(&mut keys).unwrap();
        assert_eq!(keys.string(MODEL).unwrap(), model, "{name}");
        assert_eq!(keys.bool(EXTRA).unwrap_or(false), extra, "{name}");
        assert!(matches!(keys.array(CHARSMAP), Ok(Array::U8(bytes)) if bytes.len() > 1024), "{name}");
        assert_eq!(keys.iter().any(|(key, _)| key.starts_with("trueup.tokenizer.normalizer")), own, "{name}");
        assert_eq!(!notes.is_empty(), noted, "{name}: {notes:?}");
        // Both kinds of bytes are read.
        let Ok(Array::U8(bytes)) = keys.array(CHARSMAP).cloned() else { panic!("{name}") };
        let signed: Vec<i8> = bytes.iter().map(|byte| i8::from_le_bytes([*byte])).collect();
        keys.insert(CHARSMAP, KeyValue::Array(Array::I8(signed)));
        assert_eq!(read(&keys).unwrap().normalizer(), vocabulary.normalizer(), "{name}");
    }
    assert!(matches!(vocabulary("unigram").algorithm(), Algorithm::Unigram { rule: UnigramRule::Sentencepiece }));
    assert!(matches!(vocabulary("unigram-json").algorithm(), Algorithm::Unigram { rule: UnigramRule::Tokenizers }));
}

#[test]
fn lies_in_gguf_keys() {
    let whole = keys(&vocabulary("unigram"));
    let Ok(Array::U8(map)) = whole.array(CHARSMAP) else { panic!("no map") };
    let long = |text: &str| {
        let mut texts = whole.strings("tokenizer.ggml.tokens").unwrap().to_vec();
        texts[300] = text.repeat(2000);
        texts
    };
    let lies: Vec<(&str, Option<KeyValue>, &str)> = vec![
        (CHARSMAP, Some("text".into()), "expected an array"),
        (CHARSMAP, Some(vec![1u32].into()), "expected an array of u8 or i8"),
        (CHARSMAP, Some(map[..3].to_vec().into()), "expected 4 bytes or more, found 3"),
        (CHARSMAP, Some(map[..map.len() / 2].to_vec().into()), "bytes of units"),
        (EXTRA, Some(1u32.into()), "remove_extra_whitespaces"),
        ("tokenizer.ggml.scores", None, "tokenizer.ggml.scores"),
        ("tokenizer.ggml.scores", Some(vec![0.0f32].into()), "found 1"),
        ("tokenizer.ggml.scores", Some(vec![f32::NAN; 330].into()), "finite"),
        ("tokenizer.ggml.tokens", Some(long("a").into()), "expected at most 1024 bytes"),
        ("trueup.tokenizer.merging", Some("{\"unigram\":{\"rule\":\"none\"}}".into()), "trueup.tokenizer.merging"),
        (
            "trueup.tokenizer.normalizer",
            Some(r#"{"type":"Sentencepiece","precompiled_charsmap":"AAAA"}"#.into()),
            "expected 4 bytes or more, found 3",
        ),
    ];
    for (key, lie, expected) in lies {
        let mut keys = whole.clone();
        match lie {
            Some(lie) => drop(keys.insert(key, lie)),
            None => drop(keys.remove(key)),
        }
        let error = read(&keys).map(|_| ()).expect_err(key);
        assert!(error.starts_with("model.gguf: ") && error.contains(expected), "{key}: {error}");
    }
}

/// What is unknown is an error where there is neither a token for it nor bytes.
#[test]
fn unigram_models_without_an_unknown_token() {
    let json = |unknown: Value| {
        let vocab = json!([["a", -1.0], ["ab", -1.5], ["<unk>", 0.0]]);
        json!({"model": {"type": "Unigram", "unk_id": unknown, "vocab": vocab}}).to_string().into_bytes()
    };
    let open = |json: Vec<u8>| {
        let files = TokenizerFiles { tokenizer_json: Some(json), ..TokenizerFiles::default() };
        Vocabulary::from_files(&files, &ModelTokens::default(), Path::new("model")).map_err(|error| error.to_string())
    };
    let with = Tokenizer::new(open(json(json!(2))).unwrap()).unwrap();
    assert_eq!(with.encode("aabcc", false).unwrap(), [0, 1, 2]);
    let without = Tokenizer::new(open(json(Value::Null)).unwrap()).unwrap();
    assert_eq!(without.encode("aab", false).unwrap(), [0, 1]);
    assert!(without.encode("abc", false).unwrap_err().to_string().contains("the vocabulary has no `<unk>`"));
    assert!(open(json(json!(3))).unwrap_err().contains("model.unk_id"));
}

/// A long text takes time in proportion to its length, whatever the pieces.
#[test]
fn long_pieces_and_long_texts() {
    let vocab: Vec<Value> = (1..=1024).map(|length| json!(["a".repeat(length), -1.0])).collect();
    let file = json!({"model": {"type": "Unigram", "vocab": vocab}}).to_string().into_bytes();
    let files = TokenizerFiles { tokenizer_json: Some(file), ..TokenizerFiles::default() };
    let vocabulary = Vocabulary::from_files(&files, &ModelTokens::default(), Path::new("model")).unwrap();
    let ids = Tokenizer::new(vocabulary).unwrap().encode(&"a".repeat(40_000), false).unwrap();
    assert_eq!(ids.len(), 40_000_usize.div_ceil(1024));
}
