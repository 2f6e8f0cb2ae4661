//! Tokenizer files that lie or end early: always an error with the file and the place, never a panic.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use trueup_formats::TokenizerFiles;
use trueup_formats::gguf::Metadata;
use trueup_tokenizer::{ModelTokens, Tokenizer, Vocabulary};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// Reads a `tokenizer.json` and prepares it, as a model of 1000 tokens would.
fn open_json(bytes: Vec<u8>) -> Result<Tokenizer, String> {
    let files = TokenizerFiles { tokenizer_json: Some(bytes), ..TokenizerFiles::default() };
    let model = ModelTokens { vocab_size: Some(1000), ..ModelTokens::default() };
    let vocabulary = Vocabulary::from_files(&files, &model, Path::new("model")).map_err(|error| error.to_string())?;
    Tokenizer::new(vocabulary).map_err(|error| error.to_string())
}

fn small() -> Value {
    json!({
        "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
    })
}

#[test]
fn a_small_tokenizer_json_is_read() {
    let tokenizer = open_json(small().to_string().into_bytes()).unwrap();
    assert_eq!(tokenizer.encode("aba<s>b", false).unwrap(), [2, 0, 3, 1]);
}

#[test]
fn lies_in_tokenizer_json() {
    let deep = (0..300).fold(json!({"type": "NFC"}), |inner, _| json!({"type": "Sequence", "normalizers": [inner]}));
    let lies: &[(&str, Value, &str)] = &[
        ("/model/type", json!("Unigram"), "expected a list of tokens and scores"),
        ("/model/type", json!("WordLevel"), "expected type BPE, Unigram or WordPiece, found WordLevel"),
        ("/model/vocab", json!([["a", -1.0]]), "model.vocab"),
        ("/model/vocab", json!({"a": 0, "b": 0}), "expected one token with ID 0, found \"a\" and \"b\""),
        ("/model/vocab", json!({"a": 4_000_000_000u32}), "expected IDs below 1000"),
        ("/model/vocab", json!({"a": -1}), "integer `-1`, expected u32"),
        ("/model/vocab", json!({"a": 0, "b": 1, "ab": 2, "c": 1000}), "expected IDs below 1000"),
        ("/model/merges", json!(["a c"]), "model.merges[0]"),
        ("/model/merges", json!(["a b", "b a"]), "model.merges[1]"),
        ("/model/merges", json!(["ab"]), "two tokens"),
        ("/model/merges", json!([["a"]]), "two tokens"),
        ("/model/merges", json!([["a", "b", "c"]]), "two tokens"),
        ("/model/unk_token", json!("<unk>"), "model.unk_token"),
        ("/model/end_of_word_suffix", json!("</w>"), "end_of_word_suffix"),
        ("/added_tokens/0/content", json!(""), "expected text for the added token 3"),
        ("/added_tokens/0/content", json!("x".repeat(5000)), "found 5000"),
        ("/added_tokens/0/id", json!(1), "expected one token with ID 1"),
        (
            "/normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": ""}),
            "expected 4 bytes or more, found 0",
        ),
        ("/normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "!"}), "expected base64 text"),
        ("/normalizer", json!({"type": "Precompiled"}), "precompiled_charsmap"),
        ("/normalizer", deep, "recursion limit"),
        ("/normalizer", json!({"type": "Replace", "pattern": {"Regex": "("}, "content": ""}), "normalizer"),
        ("/pre_tokenizer", json!({"type": "UnicodeScripts"}), "expected a supported type, found \"UnicodeScripts\""),
        (
            "/pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "["}, "behavior": "Isolated"}),
            "pre_tokenizer",
        ),
        (
            "/pre_tokenizer",
            json!({"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated"}),
            "expected a pattern",
        ),
        ("/decoder", json!({"type": "CTC"}), "CTC"),
        ("/decoder", json!({"type": "Strip", "content": "x", "start": 3, "stop": 1}), "decoder"),
        (
            "/post_processor",
            json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q", "type_id": 0}}], "special_tokens": {}}),
            "post_processor",
        ),
        (
            "/post_processor",
            json!({"type": "BertProcessing", "sep": ["a", 70000], "cls": ["b", 1]}),
            "expected a token ID from 0 to ",
        ),
    ];
    for (place, lie, expected) in lies {
        let mut file = small();
        match file.pointer_mut(place) {
            Some(value) => *value = lie.clone(),
            None => file["model"][place.trim_start_matches("/model/")] = lie.clone(),
        }
        let error = open_json(file.to_string().into_bytes()).err().unwrap_or_else(|| panic!("{place} was accepted"));
        assert!(error.starts_with("model: ") && error.contains(expected), "{place}: {error}");
    }
    let twice = small().to_string().replace("\"a\":0", "\"a\":0,\"a\":1");
    assert!(
        open_json(twice.into_bytes())
            .unwrap_err()
            .contains("expected each token once, found \"a\" with the IDs 0 and 1")
    );
}

#[test]
fn json_of_another_kind() {
    let error = open_json(br#"{"architectures": []}"#.to_vec()).unwrap_err();
    assert!(
        error.contains("expected a tokenizer.json, found JSON without \"model\"; pass the tokenizer.json"),
        "{error}"
    );
}

#[test]
fn truncated_files() {
    let whole = fs::read(fixture("stories-1M/tokenizer.json")).unwrap();
    for end in (0..whole.len() - 2).step_by(997) {
        let error = open_json(whole[..end].to_vec()).err().unwrap_or_else(|| panic!("cut at {end} was accepted"));
        assert!(error.starts_with("model: tokenizer.json, line "), "{end}: {error}");
        assert!(
            error.ends_with("found the end of the file; the file is damaged or truncated; download it again"),
            "{error}"
        );
    }
    let whole = fs::read(fixture("stories-1M/tokenizer.model")).unwrap();
    for end in (0..whole.len()).step_by(61) {
        let files = TokenizerFiles { tokenizer_model: Some(whole[..end].to_vec()), ..TokenizerFiles::default() };
        let error = Vocabulary::from_files(&files, &ModelTokens::default(), Path::new("model")).map(|_| ());
        let error = error.expect_err("a cut file has no settings").to_string();
        assert!(error.starts_with("model: tokenizer.model"), "{end}: {error}");
    }
    let none = Vocabulary::from_files(&TokenizerFiles::default(), &ModelTokens::default(), Path::new("model"));
    assert!(none.unwrap_err().to_string().contains("expected a tokenizer (tokenizer.json, tokenizer.model, "));
}

#[test]
fn lies_in_gguf_keys() {
    let folder = fixture("models/qwen2");
    let files =
        TokenizerFiles { tokenizer_json: fs::read(folder.join("tokenizer.json")).ok(), ..TokenizerFiles::default() };
    let vocabulary = Vocabulary::from_files(&files, &ModelTokens::default(), &folder).unwrap();
    let mut good = Metadata::default();
    vocabulary.write_metadata(&mut good).unwrap();
    let count = vocabulary.tokens().len();
    type Lie = Box<dyn Fn(&mut Metadata)>;
    let lies: Vec<(&str, Lie)> = vec![
        ("tokenizer.ggml.model", Box::new(|keys| drop(keys.remove("tokenizer.ggml.model")))),
        ("tokenizer.ggml.model", Box::new(|keys| drop(keys.insert("tokenizer.ggml.model", "rwkv")))),
        ("tokenizer.ggml.model", Box::new(|keys| drop(keys.insert("tokenizer.ggml.model", 3u32)))),
        ("tokenizer.ggml.tokens", Box::new(|keys| drop(keys.remove("tokenizer.ggml.tokens")))),
        ("tokenizer.ggml.tokens", Box::new(|keys| drop(keys.insert("tokenizer.ggml.tokens", vec![1u32])))),
        ("tokenizer.ggml.token_type", Box::new(|keys| drop(keys.insert("tokenizer.ggml.token_type", vec![1i32])))),
        (
            "tokenizer.ggml.token_type",
            Box::new(move |keys| drop(keys.insert("tokenizer.ggml.token_type", vec![9i32; count]))),
        ),
        ("tokenizer.ggml.merges", Box::new(|keys| drop(keys.remove("tokenizer.ggml.merges")))),
        (
            "tokenizer.ggml.merges[0]",
            Box::new(|keys| drop(keys.insert("tokenizer.ggml.merges", vec!["ab".to_owned()]))),
        ),
        (
            "tokenizer.ggml.merges[0]",
            Box::new(|keys| drop(keys.insert("tokenizer.ggml.merges", vec!["日 本".to_owned()]))),
        ),
        ("tokenizer.ggml.pre", Box::new(|keys| drop(keys.insert("tokenizer.ggml.pre", "no-such-name")))),
        ("tokenizer.ggml.bos_token_id", Box::new(|keys| drop(keys.insert("tokenizer.ggml.bos_token_id", 1u32 << 30)))),
        ("tokenizer.ggml.eos_token_id", Box::new(|keys| drop(keys.insert("tokenizer.ggml.eos_token_id", 1u64 << 40)))),
        ("trueup.tokenizer.normalizer", Box::new(|keys| drop(keys.insert("trueup.tokenizer.normalizer", "{")))),
        (
            "added token",
            Box::new(|keys| drop(keys.insert("trueup.tokenizer.added_tokens", r#"[{"id": 999999, "content": "x"}]"#))),
        ),
        ("scores", Box::new(move |keys| drop(keys.insert("tokenizer.ggml.scores", vec![0f32; count + 1])))),
        ("token 0", Box::new(move |keys| drop(keys.insert("tokenizer.ggml.scores", vec![f32::NAN; count])))),
    ];
    for (place, lie) in lies {
        let mut keys = good.clone();
        lie(&mut keys);
        let error = Vocabulary::from_metadata(&keys, Path::new("model.gguf")).map(|_| ());
        let error = error.expect_err(place).to_string();
        assert!(error.starts_with("model.gguf: ") && error.contains(place), "{place}: {error}");
    }
}

/// The small files of a model around the tokenizer of [`small`].
fn with_ids(model: &ModelTokens, generation: Value) -> Result<Vocabulary, String> {
    let files = TokenizerFiles {
        tokenizer_json: Some(small().to_string().into_bytes()),
        generation_config: generation.as_object().cloned(),
        ..TokenizerFiles::default()
    };
    Vocabulary::from_files(&files, model, Path::new("model")).map_err(|error| error.to_string())
}

#[test]
fn ids_of_roles_outside_the_vocabulary() {
    let sized = ModelTokens { vocab_size: Some(10), ..ModelTokens::default() };
    let loose = ModelTokens { padding_token_id: Some(10), eos_token_ids: vec![9, 128_001], ..sized.clone() };
    let vocabulary = with_ids(&loose, json!({"eos_token_id": [3, 5000]})).unwrap();
    assert_eq!((vocabulary.special().padding, vocabulary.special().eos), (None, Some(9)));
    assert_eq!(vocabulary.special().end_of_generation, [3, 9]);
    let notes = vocabulary.notes().join("\n");
    for note in [
        "config.json: pad_token_id: expected a token ID from 0 to 9, found 10; this ID is ignored",
        "config.json: eos_token_id: expected a token ID from 0 to 9, found 128001; this ID is ignored",
        "generation_config.json: eos_token_id: expected a token ID from 0 to 9, found 5000; this ID is ignored",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
    let nothing = with_ids(&sized, json!({"eos_token_id": [null, -1]})).unwrap();
    assert_eq!((nothing.special().eos, nothing.notes().len()), (None, 0));
    for (value, found) in
        [(json!("</s>"), "\"</s>\""), (json!([3, -2]), "-2"), (json!([3, u64::MAX]), "18446744073709551615")]
    {
        let error = with_ids(&sized, json!({"eos_token_id": value})).unwrap_err();
        let expected = format!("model: eos_token_id in generation_config.json: expected a token ID, found {found}; ");
        assert!(error.starts_with(&expected), "{error}");
    }
    let bos = ModelTokens { bos_token_id: Some(10), ..sized.clone() };
    let eos = ModelTokens { eos_token_ids: vec![10], ..sized.clone() };
    for (model, generation, expected) in [
        (bos, json!({}), "model: config.json, bos token: bos_token_id: expected a token ID from 0 to 9, found 10"),
        (eos, json!({}), "model: config.json, eos token: eos_token_id: expected a token ID from 0 to 9, found 10"),
        (
            sized,
            json!({"eos_token_id": 10}),
            "model: generation_config.json, eos token: eos_token_id: expected a token ID",
        ),
    ] {
        let error = with_ids(&model, generation).unwrap_err();
        assert!(error.starts_with(expected) && error.contains("correct the key"), "{error}");
    }
    let mut keys = Metadata::default();
    vocabulary.write_metadata(&mut keys).unwrap();
    keys.insert("tokenizer.ggml.padding_token_id", u32::MAX);
    let read = Vocabulary::from_metadata(&keys, Path::new("model.gguf")).unwrap();
    assert_eq!(read.special().padding, None);
    assert!(read.notes().join("").contains("tokenizer.ggml.padding_token_id"), "{:?}", read.notes());
}

/// Roles as models of each family have them: the end of a text is no end of a turn, and both end generation.
#[test]
fn ends_of_turns_and_of_texts() {
    let cases = [
        ("<|im_end|>", "<|endoftext|>", None),
        ("<|endoftext|>", "<|im_end|>", Some(4)),
        ("<|end_of_text|>", "<|eot_id|>", Some(4)),
        ("<|eot_id|>", "<|end_of_text|>", None),
        ("</s>", "<|endoftext|>", None),
        ("<eos>", "<end_of_turn>", Some(4)),
    ];
    for (eos, other, end_of_turn) in cases {
        let mut file = small();
        file["added_tokens"] =
            json!([{"id": 3, "content": eos, "special": true}, {"id": 4, "content": other, "special": true}]);
        let files = TokenizerFiles { tokenizer_json: Some(file.to_string().into_bytes()), ..TokenizerFiles::default() };
        let model = ModelTokens { eos_token_ids: vec![3, 4], ..ModelTokens::default() };
        let from_files = Vocabulary::from_files(&files, &model, Path::new("model")).unwrap();
        let mut keys = Metadata::default();
        from_files.write_metadata(&mut keys).unwrap();
        assert_eq!(keys.contains("tokenizer.ggml.eot_token_id"), end_of_turn.is_some(), "{eos} {other}");
        let from_keys = Vocabulary::from_metadata(&keys, Path::new("model.gguf")).unwrap();
        for vocabulary in [from_files, from_keys] {
            assert_eq!(vocabulary.special().end_of_turn, end_of_turn, "{eos} {other}");
            assert_eq!(vocabulary.special().end_of_generation, [3, 4], "{eos} {other}");
        }
    }
}

#[test]
fn large_ids_cost_nothing() {
    let mut file = small();
    file["model"]["vocab"]["zz"] = json!(2_097_150);
    let files = TokenizerFiles { tokenizer_json: Some(file.to_string().into_bytes()), ..TokenizerFiles::default() };
    for vocab_size in [None, Some(1000)] {
        let model = ModelTokens { vocab_size, ..ModelTokens::default() };
        let error = Vocabulary::from_files(&files, &model, Path::new("model")).unwrap_err().to_string();
        assert!(error.contains("found 2097150 for the token \"zz\""), "{error}");
    }
    let small_files = TokenizerFiles {
        tokenizer_model: fs::read(fixture("stories-1M/tokenizer.model")).ok(),
        added_tokens: json!({"<x>": 2_097_150}).as_object().cloned(),
        ..TokenizerFiles::default()
    };
    let error = Vocabulary::from_files(&small_files, &ModelTokens::default(), Path::new("model")).unwrap_err();
    assert!(error.to_string().contains("expected an ID below 69632, found 2097150"), "{error}");
}

/// A normalizer that makes much of little: at conversion, in added tokens, and when text is encoded.
#[test]
fn normalizers_that_grow() {
    let mut file = small();
    let grow = json!({"type": "Replace", "pattern": {"String": "x"}, "content": "x".repeat(2000)});
    file["normalizer"] = json!({"type": "Sequence", "normalizers": [grow, grow, grow, grow]});
    let tokenizer = open_json(file.to_string().into_bytes()).unwrap();
    assert_eq!(tokenizer.encode("ab", false).unwrap(), [2]);
    let error = tokenizer.encode("x", false).unwrap_err().to_string();
    assert!(error.contains("bytes of output from the normalizer or pre-tokenizer, found"), "{error}");
    tokenizer.vocabulary().write_metadata(&mut Metadata::default()).unwrap();
    file["added_tokens"] = json!([{"id": 3, "content": "<x>", "normalized": true}]);
    let error = open_json(file.to_string().into_bytes()).map(|_| ()).unwrap_err();
    assert!(error.contains("normalizer of added tokens"), "{error}");
}
