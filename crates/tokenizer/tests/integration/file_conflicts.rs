//! Folders whose tokenizer files disagree, or do not say everything in one file, against ids of the transformers
//! library (`scripts/make_tokenizer_file_goldens.py`).

use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use trueup_formats::TokenizerFiles;
use trueup_formats::gguf::Metadata;
use trueup_tokenizer::{ModelTokens, Tokenizer, Vocabulary};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn golden() -> Vec<Value> {
    let bytes = fs::read(fixtures().join("tokenizer-files/golden.json")).unwrap();
    serde_json::from_slice::<Value>(&bytes).unwrap()["cases"].as_array().unwrap().clone()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Sets a value as the script does: null removes a key, and the place "-" of a list takes more elements.
fn put(document: &mut Value, pointer: &str, value: &Value) {
    let Some((path, name)) = pointer.rsplit_once('/') else {
        *document = value.clone();
        return;
    };
    let place = document.pointer_mut(path).unwrap();
    match place {
        Value::Array(list) if name == "-" => list.extend(value.as_array().unwrap().iter().cloned()),
        Value::Object(object) if value.is_null() && !["normalizer", "pre_tokenizer"].contains(&name) => {
            object.remove(name);
        }
        Value::Object(object) => drop(object.insert(name.to_owned(), value.clone())),
        other => panic!("{pointer}: {other}"),
    }
}

/// The JSON files of a case, by name.
fn json_files(case: &Value) -> Map<String, Value> {
    let removed = |name: &str| case["remove"].as_array().is_some_and(|list| list.iter().any(|removed| removed == name));
    let mut files = Map::new();
    for entry in fs::read_dir(fixtures().join("models").join(case["base"].as_str().unwrap())).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".json") && !name.starts_with("golden") && !removed(&name) {
            files.insert(name, serde_json::from_slice(&fs::read(&path).unwrap()).unwrap());
        }
    }
    for (name, changes) in case["set"].as_object().unwrap() {
        let document = files.entry(name.clone()).or_insert(Value::Null);
        for (pointer, value) in changes.as_object().unwrap() {
            put(document, pointer, value);
        }
    }
    files
}

fn model(config: &Value) -> ModelTokens {
    let id = |key: &str| config[key].as_u64().and_then(|id| u32::try_from(id).ok());
    let text = |key: &str| config[key].as_str().map(str::to_owned);
    ModelTokens {
        vocab_size: config["vocab_size"].as_u64().and_then(|size| usize::try_from(size).ok()),
        bos_token_id: id("bos_token_id"),
        eos_token_ids: id("eos_token_id").into_iter().collect(),
        padding_token_id: id("pad_token_id"),
        model_type: text("model_type"),
        tokenizer_class: text("tokenizer_class"),
    }
}

fn open(files: &Map<String, Value>, splits: bool, kept: Option<PathBuf>) -> Result<Vocabulary, String> {
    let bytes = |name: &str| files.get(name).map(|value| value.to_string().into_bytes());
    let small = |name: &str| files.get(name).map(object);
    let mut read = TokenizerFiles {
        tokenizer_json: bytes("tokenizer.json"),
        tokenizer_model: kept.map(|path| fs::read(path).unwrap()),
        vocab_json: bytes("vocab.json"),
        merges: files.get("merges.txt").map(|text| text.as_str().unwrap().as_bytes().to_vec()),
        tokenizer_config: small("tokenizer_config.json"),
        special_tokens_map: small("special_tokens_map.json"),
        added_tokens: small("added_tokens.json"),
        ..TokenizerFiles::default()
    };
    if splits {
        read.tokenizer_json = None;
        let tokenizer = &files["tokenizer.json"]["model"];
        let line = |merge: &Value| match merge {
            Value::String(text) => text.clone(),
            pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        };
        let merges: Vec<String> = tokenizer["merges"].as_array().unwrap().iter().map(line).collect();
        read.vocab_json = Some(tokenizer["vocab"].to_string().into_bytes());
        read.merges = Some(format!("#version: 0.2\n{}\n", merges.join("\n")).into_bytes());
    }
    Vocabulary::from_files(&read, &model(&files["config.json"]), Path::new("model")).map_err(|error| error.to_string())
}

fn vocabulary(case: &Value) -> Vocabulary {
    let folder = fixtures().join("models").join(case["base"].as_str().unwrap());
    let kept = case["keep"].as_str().map(|name| folder.join(name));
    open(&json_files(case), case["split"] == true, kept).unwrap_or_else(|error| panic!("{}: {error}", case["name"]))
}

fn case(name: &str) -> Value {
    golden().into_iter().find(|case| case["name"] == name).unwrap_or_else(|| panic!("no case {name}"))
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

#[test]
fn ids_of_every_case_from_files_and_from_gguf_keys() {
    let cases = golden();
    assert!(cases.len() >= 20, "{}", cases.len());
    let mut faults = Vec::new();
    for expected in &cases {
        let from_files = vocabulary(expected);
        let mut keys = Metadata::default();
        from_files.write_metadata(&mut keys).unwrap();
        let from_keys = Vocabulary::from_metadata(&keys, Path::new("model.gguf")).unwrap();
        let texts = match expected["read_as"].as_str() {
            Some(other) => case(other)["texts"].clone(),
            None => expected["texts"].clone(),
        };
        for (way, vocabulary) in [("files", from_files), ("GGUF keys", from_keys)] {
            let tokenizer = Tokenizer::new(vocabulary).unwrap();
            for text in texts.as_array().unwrap() {
                for (key, add_special) in [("ids", true), ("ids_no_special", false)] {
                    let found = tokenizer.encode(text["text"].as_str().unwrap(), add_special).unwrap();
                    if found != ids(&text[key]) {
                        let (name, expected) = (&expected["name"], &text[key]);
                        faults.push(format!(
                            "{name}, {way}: {key} of {}: expected {expected}, found {found:?}",
                            text["text"]
                        ));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn roles_of_every_case() {
    for expected in golden() {
        if expected["name"] == "beyond-embedding" || expected["read_as"].is_string() {
            continue;
        }
        let found = vocabulary(&expected);
        let special = found.special();
        for (role, id) in [("bos", special.bos), ("eos", special.eos), ("padding", special.padding)] {
            // A role that transformers leaves empty can have an id in config.json.
            if let Some(wanted) = expected["roles"][role].as_u64() {
                assert_eq!(id.map(u64::from), Some(wanted), "{} of {}", role, expected["name"]);
            }
        }
    }
}

#[test]
fn conflicts_are_noted_by_token_and_file() {
    let table: &[(&str, &[&str])] = &[
        ("known-text-other-id", &["tokenizer_config.json gives \"[INST]\" id", "tokenizer.json gives it id"]),
        ("decoder-hides-added-json", &["added_tokens.json is not used", "\"[TOOL]\""]),
        ("added-json-adds", &["no file gives an id to the special token \"[P]\""]),
        (
            "map-over-config",
            &["eos_token is \"</s>\" in tokenizer_config.json and \"<unk>\" in special_tokens_map.json"],
        ),
        ("prefix-space-absent", &["add_prefix_space is false in tokenizer_config.json"]),
        ("beyond-embedding", &["omitted because the embedding has only 404 rows", "\"[X]\""]),
        ("class-config-class", &["no file gives an id to the special token \"<|endoftext|>\""]),
        ("decoder-repeats", &["tokenizer_config.json gives tokens a second ID", "\"[ASK]\" (404, used: 403)"]),
        ("pieces-decoder-repeats", &["tokenizer_config.json gives tokens a second ID", "\"[ASK]\" (419, used: 418)"]),
        ("list-repeats", &["added tokens a second ID", "\"[ASK]\" (404, used: 403), \"[/INST]\" (405, used: 401)"]),
        ("metaspace-legacy", &[]),
    ];
    for (name, words) in table {
        let notes = vocabulary(&case(name)).notes().join("\n");
        assert!(words.iter().all(|word| notes.contains(word)), "{name}: {notes}");
        assert!(!words.is_empty() || notes.is_empty(), "{name}: {notes}");
    }
}

#[test]
fn special_tokens_that_transformers_splits_are_noted() {
    let case = case("map-over-config");
    let notes = |value: Value| {
        let mut files = json_files(&case);
        let config = files.entry("tokenizer_config.json").or_insert_with(|| json!({}));
        put(config, "/split_special_tokens", &value);
        open(&files, case["split"] == true, None).expect("it opens").notes().join("\n")
    };
    assert!(notes(json!(true)).contains("split_special_tokens in tokenizer_config.json is ignored"));
    assert!(!notes(json!(false)).contains("split_special_tokens"));
}

#[test]
fn a_conflict_about_a_token_without_an_id_is_one_note() {
    let case = case("map-over-config");
    let mut files = json_files(&case);
    put(files.entry("tokenizer_config.json").or_insert_with(|| json!({})), "/eos_token", &json!("<nope>"));
    put(files.entry("tokenizer_config.json").or_insert_with(|| json!({})), "/added_tokens_decoder", &json!({}));
    let found = open(&files, case["split"] == true, None).unwrap();
    let notes: Vec<&String> = found.notes().iter().filter(|note| note.starts_with("eos_token")).collect();
    assert_eq!(
        notes,
        [
            "eos_token is \"<nope>\" in tokenizer_config.json and \"<unk>\" in special_tokens_map.json; \"<nope>\" is used, as in \
          transformers, but no file gives it an ID: the tokenizer has no eos_token"
        ]
    );
}

#[test]
fn what_cannot_be_settled_is_refused() {
    let refused = |name: &str, file: &str, pointer: &str, value: Value| {
        let case = case(name);
        let mut files = json_files(&case);
        put(files.entry(file.to_owned()).or_insert_with(|| json!({})), pointer, &value);
        open(&files, case["split"] == true, None).map(|_| ()).unwrap_err()
    };
    let taken = json!({"7": {"content": "<other>", "special": true}});
    let error = refused("decoder-adds", "tokenizer_config.json", "/added_tokens_decoder", taken);
    assert!(error.contains("expected one token with ID 7, found \"<other>\" in tokenizer_config.json and"), "{error}");
    let error = refused("class-gpt2", "tokenizer_config.json", "/tokenizer_class", json!("CLIPTokenizer"));
    assert!(error.contains("found CLIPTokenizer") && error.contains("--tokenizer"), "{error}");
    let scheme =
        json!({"type": "Metaspace", "replacement": "▁", "add_prefix_space": false, "prepend_scheme": "always"});
    let error = refused("metaspace-never", "tokenizer.json", "/pre_tokenizer", scheme);
    assert!(error.contains("expected prepend_scheme \"never\" with add_prefix_space false"), "{error}");
    let error = refused("beyond-embedding", "tokenizer_config.json", "/eos_token", json!("[X]"));
    assert!(error.contains("eos_token: expected an ID from 0 to 403") && error.contains("\"[X]\""), "{error}");
}

/// Tokens of the folder do not belong to a tokenizer that replaces its own.
#[test]
fn a_replaced_tokenizer_takes_no_added_tokens_of_the_folder() {
    let case = case("decoder-adds");
    let files = json_files(&case);
    let read = TokenizerFiles {
        tokenizer_json: Some(files["tokenizer.json"].to_string().into_bytes()),
        tokenizer_config: Some(object(&files["tokenizer_config.json"])),
        is_replaced: true,
        ..TokenizerFiles::default()
    };
    let vocabulary = Vocabulary::from_files(&read, &model(&files["config.json"]), Path::new("model")).unwrap();
    assert!(!vocabulary.added().iter().any(|added| added.content == "[ASK]"));
    assert!(vocabulary.notes().iter().any(|note| note.contains("lacks tokens") && note.contains("[ASK]")));
}

/// Files without the key are of before May 2024, when programs began to write it.
#[test]
fn a_guessed_pre_tokenizer_is_noted() {
    let mut keys = Metadata::default();
    vocabulary(&case("class-gpt2")).write_metadata(&mut keys).unwrap();
    let notes = |keys: &Metadata| Vocabulary::from_metadata(keys, Path::new("m.gguf")).unwrap().notes().join("\n");
    assert_eq!(notes(&keys), "");
    keys.insert("tokenizer.ggml.pre", "default");
    assert!(notes(&keys).contains("\"default\" is a fallback"), "{}", notes(&keys));
    keys.remove("tokenizer.ggml.pre");
    assert!(notes(&keys).contains("tokenizer.ggml.pre: the key is missing"), "{}", notes(&keys));
}
