//! A vocabulary of 250,000 tokens with 60,000 added ones, which every file lists again: each list is merged in time
//! proportional to its length. A scan of one list for each token of another would compare 10^9 to 10^10 pairs.

use serde_json::{Map, Value, json};
use std::path::Path;
use trueup_formats::TokenizerFiles;
use trueup_formats::gguf::Metadata;
use trueup_tokenizer::{ModelTokens, TokenKind, Tokenizer, Vocabulary};

const TOKENS: usize = 250_000;
const ADDED: usize = 60_000;
/// Added tokens that only the list of roles names.
const NAMED: usize = 16_000;
/// Added tokens without a row in the embedding.
const BEYOND: usize = 60_000;

fn piece(id: usize) -> String {
    if let Some(byte) = u8::try_from(id).ok().filter(|_| id < 128) {
        // Bytes of the printable alphabet that stand for themselves; the others do not occur in the texts.
        return char::from(byte).to_string();
    }
    format!("p{id}")
}

fn added(id: usize) -> String {
    format!("<added_{id}>")
}

fn files() -> TokenizerFiles {
    let mut vocabulary: Map<String, Value> = (0..TOKENS - ADDED).map(|id| (piece(id), json!(id))).collect();
    vocabulary.extend((TOKENS - ADDED..TOKENS).map(|id| (added(id), json!(id))));
    let flags = |id: usize| {
        json!({"id": id, "content": added(id), "special": id.is_multiple_of(2), "normalized": false,
        "lstrip": false, "rstrip": false, "single_word": false})
    };
    let tokenizer = json!({
        "added_tokens": (TOKENS - ADDED..TOKENS).map(flags).collect::<Vec<_>>(),
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    });
    // Each ID of the list that the vocabulary has becomes special; tokens with later IDs have no row.
    let special = |id: usize| json!({"content": added(id), "special": true});
    let listed = TOKENS - ADDED..TOKENS + NAMED + BEYOND;
    let listed = listed.filter(|id| !(TOKENS..TOKENS + NAMED).contains(id));
    let decoder: Map<String, Value> = listed.map(|id| (id.to_string(), special(id))).collect();
    let named: Vec<String> = (TOKENS..TOKENS + NAMED).map(added).collect();
    let config = json!({"added_tokens_decoder": decoder, "additional_special_tokens": named});
    TokenizerFiles {
        tokenizer_json: Some(tokenizer.to_string().into_bytes()),
        tokenizer_config: config.as_object().cloned(),
        ..TokenizerFiles::default()
    }
}

#[test]
fn long_lists_are_merged() {
    let model = ModelTokens { vocab_size: Some(TOKENS + NAMED), ..ModelTokens::default() };
    let vocabulary = Vocabulary::from_files(&files(), &model, Path::new("model")).unwrap();
    assert_eq!((vocabulary.tokens().len(), vocabulary.added().len()), (TOKENS + NAMED, ADDED + NAMED));
    assert!(vocabulary.added().iter().map(|added| added.id as usize).eq(TOKENS - ADDED..TOKENS + NAMED));
    assert!(vocabulary.added().iter().all(|added| added.special));
    assert!(vocabulary.tokens()[TOKENS - ADDED..].iter().all(|token| token.kind == TokenKind::Control));
    let beyond = vocabulary.notes().iter().find(|note| note.contains("the embedding has only 266000 rows")).unwrap();
    assert!(beyond.contains("\"<added_266000>\" (266000)") && beyond.len() < 2000, "{beyond}");
    let mut keys = Metadata::default();
    vocabulary.write_metadata(&mut keys).unwrap();
    let again = Vocabulary::from_metadata(&keys, Path::new("model.gguf")).unwrap();
    for vocabulary in [vocabulary, again] {
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        let text = format!("a{}b{}{}", added(TOKENS - ADDED), added(TOKENS), added(TOKENS + NAMED - 1));
        let ids = tokenizer.encode(&text, false).unwrap();
        let expected = [97, TOKENS - ADDED, 98, TOKENS, TOKENS + NAMED - 1];
        assert!(ids.iter().map(|id| *id as usize).eq(expected), "{ids:?}");
    }
}

/// Every token of a GGUF file ends generation by its name.
#[test]
fn many_tokens_of_one_name_end_generation() {
    let mut keys = Metadata::default();
    Vocabulary::from_files(&files(), &ModelTokens::default(), Path::new("model"))
        .unwrap()
        .write_metadata(&mut keys)
        .unwrap();
    let count = keys.strings("tokenizer.ggml.tokens").unwrap().len();
    let texts: Vec<String> = (0..count).map(|id| if id < 1000 { piece(id) } else { "<|im_end|>".to_owned() }).collect();
    keys.insert("tokenizer.ggml.tokens", texts);
    keys.insert("tokenizer.ggml.token_type", vec![1i32; count]);
    let vocabulary = Vocabulary::from_metadata(&keys, Path::new("model.gguf")).unwrap();
    assert_eq!(vocabulary.added().len(), count - 1000);
}
