//! Every name of a pre-tokenizer against ids that llama.cpp gave (`scripts/make_pre_tokenizer_fixture.py`).

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use trueup_formats::gguf::Metadata;
use trueup_tokenizer::{Tokenizer, Vocabulary, pre_tokenizer_names};

/// Where llama.cpp approximates the pattern of the model's own `tokenizer.json`: names, and the places of texts.
const DEVIATIONS: &[(&[&str], &[usize])] = &[];

fn fixture() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tokenizers/pre-tokenizer-names.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// GPT-2's printable alphabet in the order of bytes, then a token for each byte as sentencepiece writes it.
fn byte_tokens() -> Vec<String> {
    let mut next = 256;
    let mut letters = Vec::new();
    for byte in 0..256u32 {
        let printable = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let letter = if printable { byte } else { next };
        next += u32::from(!printable);
        letters.push(char::from_u32(letter).unwrap().to_string());
    }
    letters.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    letters
}

fn tokenizer(fixture: &Value, name: &str) -> Tokenizer {
    let mut tokens = byte_tokens();
    tokens.extend(strings(&fixture["tokens"]));
    let bos = u32::try_from(fixture["bos"].as_u64().unwrap()).unwrap();
    let mut kinds = vec![1; tokens.len()];
    kinds[256..512].fill(6);
    kinds[bos as usize] = 3;
    let mut metadata = Metadata::default();
    metadata.insert("tokenizer.ggml.model", "gpt2");
    metadata.insert("tokenizer.ggml.pre", name);
    metadata.insert("tokenizer.ggml.tokens", tokens);
    metadata.insert("tokenizer.ggml.token_type", kinds);
    metadata.insert("tokenizer.ggml.merges", strings(&fixture["merges"]));
    metadata.insert("tokenizer.ggml.bos_token_id", bos);
    metadata.insert("tokenizer.ggml.eos_token_id", bos);
    Tokenizer::new(Vocabulary::from_metadata(&metadata, Path::new("names.gguf")).unwrap()).unwrap()
}

#[test]
fn each_name_gives_the_ids_of_llama_cpp() {
    let fixture = fixture();
    let texts = strings(&fixture["texts"]);
    let names = fixture["names"].as_object().unwrap();
    assert_eq!(names.len(), 87);
    assert_eq!(pre_tokenizer_names::ALL.len(), 91);
    let mut found: BTreeMap<Vec<usize>, Vec<&str>> = BTreeMap::new();
    for (name, results) in names {
        let tokenizer = tokenizer(&fixture, name);
        let differs = |at: &usize| {
            let place = usize::try_from(results[*at].as_u64().unwrap()).unwrap();
            let ids = tokenizer.encode(&texts[*at], true).unwrap();
            serde_json::to_value(ids).unwrap() != fixture["ids"][*at][place]
        };
        let different: Vec<usize> = (0..texts.len()).filter(differs).collect();
        if !different.is_empty() {
            found.entry(different).or_default().push(name);
        }
    }
    let mut expected: BTreeMap<Vec<usize>, Vec<&str>> = BTreeMap::new();
    for (names, texts) in DEVIATIONS {
        expected.insert(texts.to_vec(), names.to_vec());
    }
    assert_eq!(found, expected);
}
