//! Sentencepiece files of T5's tokenizer class, against ids of the transformers library
//! (`scripts/make_sentinel_goldens.py`).

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use trueup_formats::TokenizerFiles;
use trueup_formats::gguf::Metadata;
use trueup_tokenizer::{ModelTokens, Tokenizer, Vocabulary};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tokenizer-files").join(name)
}

fn files(config: &Value) -> TokenizerFiles {
    TokenizerFiles {
        tokenizer_model: Some(fs::read(fixture("spiece.model")).unwrap()),
        is_spiece: true,
        tokenizer_config: config.as_object().cloned(),
        ..TokenizerFiles::default()
    }
}

fn read(files: &TokenizerFiles, vocab_size: Option<usize>) -> Result<Vocabulary, String> {
    let model = ModelTokens { model_type: Some("t5".to_owned()), vocab_size, ..ModelTokens::default() };
    Vocabulary::from_files(files, &model, Path::new("model")).map_err(|error| error.to_string())
}

#[test]
fn ids_are_those_of_transformers() {
    let golden: Value = serde_json::from_slice(&fs::read(fixture("sentinels.json")).unwrap()).unwrap();
    let mut faults = Vec::new();
    for case in golden["cases"].as_array().unwrap() {
        let from_files = read(&files(&case["config"]), None).unwrap();
        assert_eq!(from_files.tokens().len(), usize::try_from(case["tokens"].as_u64().unwrap()).unwrap());
        let mut keys = Metadata::default();
        from_files.write_metadata(&mut keys).unwrap();
        assert_eq!(keys.bool("tokenizer.ggml.add_eos_token"), Ok(true));
        let from_keys = Vocabulary::from_metadata(&keys, Path::new("model.gguf")).unwrap();
        for (way, vocabulary) in [("files", from_files), ("GGUF keys", from_keys)] {
            let tokenizer = Tokenizer::new(vocabulary).unwrap();
            for text in case["texts"].as_array().unwrap() {
                let found = tokenizer.encode(text["text"].as_str().unwrap(), true).unwrap();
                if json!(found) != text["ids"] {
                    faults.push(format!(
                        "{} from {way}, {}: expected {}, found {found:?}",
                        case["name"], text["text"], text["ids"]
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn numbers_of_sentinels_that_lie_are_refused() {
    let listed = json!(["<extra_id_0>", "<extra_id_1>"]);
    let cases = [
        (
            json!({ "extra_ids": 3, "additional_special_tokens": listed }),
            "expected 2, the number of `<extra_id_N>` tokens among the special tokens, found 3; correct extra_ids, or",
        ),
        (
            json!({ "additional_special_tokens": listed }),
            "special tokens, found no such key (the default is 100); set extra_ids to 2, or use the files",
        ),
        (json!({ "extra_ids": -1 }), "tokenizer_config.json, extra_ids: expected a number from 0 to "),
        (json!({ "extra_ids": 1u64 << 40 }), "found 1099511627776"),
        (json!({ "extra_ids": 16_385 }), "extra_ids: expected a number from 0 to 16384, found 16385"),
        (json!({ "extra_ids": "4" }), "found \"4\""),
    ];
    for (config, expected) in cases {
        let error = read(&files(&config), None).map(drop).unwrap_err();
        assert!(error.contains(expected), "{config}: {error}");
    }
}

/// A piece of this text as an entry of a sentencepiece file, with a score of 0.
fn piece(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    [&[0x0a, length + 7, 0x0a, length], text.as_bytes(), &[0x15, 0, 0, 0, 0]].concat()
}

/// The largest number does not take long.
#[test]
fn the_largest_number_of_sentinels_is_read_after_many_pieces() {
    const COUNT: usize = 1 << 14;
    let mut files = files(&json!({ "extra_ids": COUNT }));
    let before = read(&files, None).unwrap().tokens().len();
    let more: Vec<u8> = (0..COUNT).flat_map(|number| piece(&format!("zz{number}"))).collect();
    files.tokenizer_model.as_mut().unwrap().extend(more);
    assert_eq!(read(&files, None).unwrap().tokens().len(), before + COUNT);
}

/// A model with fewer rows than sentinels lacks the last ones, which are those with the smallest numbers.
#[test]
fn sentinels_without_a_row_are_omitted_with_a_note() {
    let vocabulary = read(&files(&json!({ "extra_ids": 4 })), Some(202)).unwrap();
    let has = |text: &str| vocabulary.tokens().iter().any(|token| token.text == text);
    assert_eq!([0, 1, 2, 3].map(|number| has(&format!("<extra_id_{number}>"))), [false, false, true, true]);
    assert!(vocabulary.notes().iter().any(|note| note.contains("\"<extra_id_0>\" (203)")), "{:?}", vocabulary.notes());
}

#[test]
fn errors_and_notes_name_the_file() {
    let mut damaged = files(&json!({}));
    damaged.tokenizer_model.as_mut().unwrap().truncate(100);
    let error = read(&damaged, None).map(drop).unwrap_err();
    assert!(error.starts_with("model: spiece.model, byte "), "{error}");
    let vocabulary = read(&files(&json!({ "legacy": false })), None).unwrap();
    assert!(vocabulary.notes().iter().any(|note| note.contains("legacy is ignored")), "{:?}", vocabulary.notes());
}
