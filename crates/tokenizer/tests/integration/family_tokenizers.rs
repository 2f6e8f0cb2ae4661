//! The sections of `tokenizer.json` that families of models with byte-level BPE publish, against ids of the tokenizers
//! library and against the name that llama.cpp's converter gives (`scripts/make_family_tokenizers.py`).

use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use trueup_formats::TokenizerFiles;
use trueup_formats::gguf::Metadata;
use trueup_tokenizer::{ModelTokens, Tokenizer, Vocabulary, pre_tokenizer_names};

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The tokenizer.json of a family, with the vocabulary that all share: the alphabet, and the result of each merge.
fn tokenizer_json(fixture: &Value, family: &Value) -> Value {
    let letters = text(&fixture["alphabet"]).chars().map(String::from);
    let merged = list(&fixture["merges"]).iter().map(|pair| text(pair).replace(' ', ""));
    let mut ids = Map::new();
    for token in letters.chain(merged).chain([text(&fixture["unmerged"]).to_owned()]) {
        // Two merges may lead to one token.
        let next = ids.len();
        ids.entry(token).or_insert_with(|| json!(next));
    }
    let mut whole = family["sections"].as_object().unwrap().clone();
    let model = json!({ "type": "BPE", "vocab": ids, "merges": fixture["merges"],
        "ignore_merges": family["ignore_merges"] });
    whole.insert("model".to_owned(), model);
    whole.into()
}

/// The rule of a name, and whether it ignores merges.
fn rule(name: &str) -> (trueup_tokenizer::PreTokenizer, bool) {
    let known = pre_tokenizer_names::by_name(name).unwrap_or_else(|| panic!("{name}"));
    (known.pre_tokenizer(), known.ignore_merges)
}

/// What differs from what other software says of a family.
fn faults(fixture: &Value, family: &Value) -> Vec<String> {
    let json = tokenizer_json(fixture, family).to_string().into_bytes();
    let files = TokenizerFiles { tokenizer_json: Some(json), ..TokenizerFiles::default() };
    let path = Path::new("model");
    let model = ModelTokens { vocab_size: Some(1024), ..ModelTokens::default() };
    let from_files = Vocabulary::from_files(&files, &model, path).unwrap();
    let mut keys = Metadata::default();
    from_files.write_metadata(&mut keys).unwrap();
    let mut faults = Vec::new();
    let (found, expected) = (keys.string("tokenizer.ggml.pre").unwrap(), text(&family["pre"]));
    if rule(found) != rule(expected) {
        faults.push(format!("the pre-tokenizer is called {found}, not as {expected}"));
    }
    if let Ok(own) = keys.string("trueup.tokenizer.pre_tokenizer") {
        faults.push(format!("the file describes the pre-tokenizer: {own}"));
    }
    let from_keys = Vocabulary::from_metadata(&keys, path).unwrap();
    for (way, vocabulary) in [("files", from_files), ("GGUF keys", from_keys)] {
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        assert_eq!(list(&fixture["texts"]).len(), list(&family["ways"]).len(), "{}", family["name"]);
        for (row, place) in list(&fixture["texts"]).iter().zip(list(&family["ways"])) {
            let expected = &row[1 + usize::try_from(place.as_u64().unwrap()).unwrap()];
            let found = tokenizer.encode(text(&row[0]), true).unwrap();
            if json!(found) != *expected {
                faults.push(format!("{} by {way}: expected {expected}, found {found:?}", row[0]));
            }
        }
    }
    faults
}

#[test]
fn families_match_reference_ids_and_pre_tokenizer_names() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/family-tokenizers.json");
    let fixture: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let families = list(&fixture["families"]);
    assert!(families.len() >= 20, "only {} families", families.len());
    let mut all = Vec::new();
    for family in families {
        all.extend(faults(&fixture, family).into_iter().map(|fault| format!("{}: {fault}", text(&family["name"]))));
    }
    assert!(all.is_empty(), "{} faults\n{}", all.len(), all.join("\n"));
}
