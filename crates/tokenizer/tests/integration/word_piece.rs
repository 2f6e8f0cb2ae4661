//! WordPiece vocabularies: files that lie, and GGUF files of other programs.

use serde_json::{Value, json};
use std::path::Path;
use trueup_formats::TokenizerFiles;
use trueup_formats::gguf::Metadata;
use trueup_tokenizer::{Algorithm, ModelTokens, Tokenizer, Vocabulary};

fn small() -> Value {
    json!({
        "added_tokens": [{"id": 0, "content": "[UNK]", "special": true, "normalized": false}],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
            "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1, "##b": 2, "!": 3}},
    })
}

fn open(file: &Value) -> Result<Vocabulary, String> {
    let files = TokenizerFiles { tokenizer_json: Some(file.to_string().into_bytes()), ..TokenizerFiles::default() };
    Vocabulary::from_files(&files, &ModelTokens::default(), Path::new("model")).map_err(|error| error.to_string())
}

fn ids(vocabulary: Vocabulary, text: &str) -> Result<Vec<u32>, String> {
    Tokenizer::new(vocabulary).and_then(|tokenizer| tokenizer.encode(text, true)).map_err(|error| error.to_string())
}

#[test]
fn lies_in_tokenizer_json() {
    assert_eq!(ids(open(&small()).unwrap(), "Abb! ábc"), Ok(vec![1, 2, 2, 3, 0]));
    for (place, lie, expected) in [
        ("/model/continuing_subword_prefix", json!("@@"), "continuing_subword_prefix: expected \"##\""),
        ("/model/max_input_chars_per_word", json!(0), "max_input_chars_per_word: expected 1 to 1024"),
        ("/model/max_input_chars_per_word", json!(1_000_000_000u64), "found 1000000000"),
        ("/model/max_input_chars_per_word", json!(-1), "invalid value: integer `-1`"),
        ("/model/max_input_chars_per_word", json!("100"), "invalid type: string"),
        ("/model/type", json!("WordLevel"), "found WordLevel"),
        ("/model/vocab", json!([["a", 0.0]]), "model.vocab"),
        ("/model/vocab", json!(null), "model.vocab"),
        ("/model/vocab/a", json!(0), "id 0"),
        ("/model/vocab/a", json!(4_000_000_000u64), "4000000000"),
        ("/normalizer", json!({"type": "BertNormalizer"}), "normalizer"),
        ("/normalizer/lowercase", json!(1), "normalizer"),
        ("/pre_tokenizer/type", json!("BertPre"), "pre_tokenizer"),
        ("/decoder/cleanup", json!("no"), "decoder"),
        ("/decoder", json!({"type": "WordPiece"}), "decoder"),
    ] {
        let mut file = small();
        *file.pointer_mut(place).unwrap() = lie.clone();
        let error = open(&file).map(|_| ()).expect_err(&format!("{place} {lie}"));
        assert!(error.to_lowercase().contains(&expected.to_lowercase()), "{place} {lie}: {error}");
    }
}

/// Files of older versions of the tokenizers library do not name the type of the model.
#[test]
fn older_files_are_recognized() {
    let mut file = small();
    file["model"].as_object_mut().unwrap().remove("type");
    assert_eq!(open(&file).unwrap().algorithm(), &Algorithm::WordPiece { chars_max: 100 });
}

#[test]
fn a_word_without_pieces_needs_an_unknown_token() {
    let mut file = small();
    file["added_tokens"] = json!([]);
    file["model"]["vocab"] = json!({"a": 0});
    assert_eq!(ids(open(&file).unwrap(), "a"), Ok(vec![0]));
    assert!(ids(open(&file).unwrap(), "b").unwrap_err().contains("no token for unknown words"));
}

#[test]
fn a_token_that_gguf_cannot_hold_is_refused() {
    let mut file = small();
    file["model"]["vocab"]["##▁x"] = json!(4);
    let error = open(&file).unwrap().write_metadata(&mut Metadata::default()).unwrap_err().to_string();
    assert!(error.contains("the token \"##▁x\" cannot be stored in GGUF"), "{error}");
}

/// A vocabulary as llama.cpp's converter writes it.
fn gguf() -> Metadata {
    let mut keys = Metadata::default();
    let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁hello", "ing", "▁!", "▁é"].map(str::to_owned);
    keys.insert("tokenizer.ggml.model", "bert");
    keys.insert("tokenizer.ggml.pre", "jina-v2-en");
    keys.insert("tokenizer.ggml.tokens", tokens.to_vec());
    keys.insert("tokenizer.ggml.token_type", vec![3, 3, 3, 3, 1, 1, 1, 1]);
    keys.insert("tokenizer.ggml.unknown_token_id", 1u32);
    keys.insert("tokenizer.ggml.bos_token_id", 2u32);
    keys.insert("tokenizer.ggml.seperator_token_id", 3u32);
    keys.insert("tokenizer.ggml.padding_token_id", 0u32);
    keys
}

#[test]
fn files_of_other_programs() {
    let read = |keys: &Metadata| Vocabulary::from_metadata(keys, Path::new("other.gguf")).unwrap();
    let mut keys = gguf();
    assert_eq!(ids(read(&keys), "HELLOing! é"), Ok(vec![2, 4, 5, 6, 1, 3]));
    keys.insert("tokenizer.ggml.normalizer.lowercase", false);
    assert_eq!(ids(read(&keys), "hello Hello é"), Ok(vec![2, 4, 1, 7, 3]));
    keys.insert("tokenizer.ggml.add_sep_token", false);
    keys.insert("tokenizer.ggml.add_bos_token", false);
    assert_eq!(ids(read(&keys), "hello"), Ok(vec![4]));
    let tokenizer = Tokenizer::new(read(&gguf())).unwrap();
    let text = tokenizer.decode(&[2, 4, 5, 6, 3], true);
    assert_eq!(String::from_utf8(text).unwrap(), "helloing!");
}

/// Older files name the first token with another key, or only by its text.
#[test]
fn the_tokens_around_a_text_are_found_without_their_keys() {
    let read = |keys: &Metadata| Vocabulary::from_metadata(keys, Path::new("older.gguf")).unwrap();
    let mut keys = gguf();
    for key in ["bos_token_id", "seperator_token_id"] {
        keys.remove(&format!("tokenizer.ggml.{key}"));
    }
    assert_eq!(ids(read(&keys), "hello"), Ok(vec![2, 4, 3]));
    keys.insert("tokenizer.ggml.cls_token_id", 0u32);
    assert_eq!(ids(read(&keys), "hello"), Ok(vec![0, 4, 3]));
    keys.insert("tokenizer.ggml.cls_token_id", 99u32);
    let error = Vocabulary::from_metadata(&keys, Path::new("older.gguf")).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("cls_token_id: expected the id of one of 8 tokens, found 99"), "{error}");
}

#[test]
fn lies_in_gguf_keys() {
    type Lie = fn(&mut Metadata);
    let lies: [(&str, Lie); 7] = [
        ("tokenizer.ggml.token_type", |keys| drop(keys.insert("tokenizer.ggml.token_type", vec![1, 2]))),
        ("tokenizer.ggml.token_type", |keys| drop(keys.insert("tokenizer.ggml.token_type", vec![9; 8]))),
        ("seperator_token_id", |keys| drop(keys.insert("tokenizer.ggml.seperator_token_id", 99u32))),
        ("normalizer.lowercase", |keys| drop(keys.insert("tokenizer.ggml.normalizer.lowercase", "yes"))),
        ("normalizer.strip_accents", |keys| drop(keys.insert("tokenizer.ggml.normalizer.strip_accents", 1u32))),
        ("add_sep_token", |keys| drop(keys.insert("tokenizer.ggml.add_sep_token", 2u32))),
        ("trueup.tokenizer.merging", |keys| {
            drop(keys.insert("trueup.tokenizer.merging", r#"{"word_piece":{"chars_max":99999999}}"#));
        }),
    ];
    for (expected, lie) in lies {
        let mut keys = gguf();
        lie(&mut keys);
        let error = Vocabulary::from_metadata(&keys, Path::new("lie.gguf")).map(|_| ()).expect_err(expected);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[test]
fn vocab_txt_needs_a_known_class() {
    let files = |class: Option<&str>, text: &str| TokenizerFiles {
        vocab_txt: Some(text.as_bytes().to_vec()),
        tokenizer_config: class.map(|class| json!({"tokenizer_class": class}).as_object().unwrap().clone()),
        ..TokenizerFiles::default()
    };
    let read = |class: Option<&str>, text: &str| {
        Vocabulary::from_files(&files(class, text), &ModelTokens::default(), Path::new("model"))
    };
    let text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n##ing\n";
    for class in [None, Some("BertTokenizerFast"), Some("DistilBertTokenizer")] {
        assert_eq!(ids(read(class, text).unwrap(), "Helloing [SEP] x"), Ok(vec![2, 5, 6, 3, 1, 3]), "{class:?}");
    }
    let error = read(Some("BertJapaneseTokenizer"), text).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("BertJapaneseTokenizer"), "{error}");
    let error = read(None, "").map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("vocab.txt: expected a token on each line, found none"), "{error}");
}
