//! Vocabularies: read, used on texts, written as GGUF keys and read back.

use super::super::seeds::fixture_file;
use super::super::{Answer, later, law, refused};
use serde_json::{Value, json};
use std::path::Path;
use trueup::formats::TokenizerFiles;
use trueup::formats::gguf::Metadata;
use trueup::tokenizer::{ModelTokens, Tokenizer, Vocabulary};

/// Texts that a vocabulary is tried on.
const TEXTS: [&str; 8] = [
    "",
    "the cat sat on the mat 12345!",
    "  leading, trailing  \n\n\ttabs\r\n",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
    "e\u{301}é 日本語 한국어 \u{1f468}\u{200d}\u{1f469} \u{fb01}",
    "<s>it</s><|endoftext|><unk><0x0A>",
    "\u{2581}\u{2581}a\u{2581}Ġb",
    "\0\u{feff}\u{202e}\u{10ffff}",
];

/// Characters of a text that is long.
const LONG: usize = 4000;

/// The vocabularies of the fixtures, and two that programs get lost in: merges that lead back to their parts, and one
/// token for all.
pub fn json_seeds() -> Vec<Vec<u8>> {
    let fixtures = ["llama2", "llama3", "mistral", "qwen2", "llama-yarn"];
    let mut seeds: Vec<Vec<u8>> =
        fixtures.iter().map(|name| fixture_file(&format!("models/{name}/tokenizer.json"))).collect();
    let vocab = json!({"a": 0, "b": 1, "aa": 2, "aaa": 3, "aaaa": 4, "ab": 5, "ba": 6, "aba": 7});
    let merges = json!([
        ["a", "a"],
        ["aa", "aa"],
        ["aa", "a"],
        ["a", "aa"],
        ["a", "b"],
        ["b", "a"],
        ["ab", "a"],
        ["a", "ba"],
        ["a", "a"]
    ]);
    let model = |vocab: &Value, merges: &Value| {
        json!({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "model": {"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": null, "byte_fallback": false, "ignore_merges": false}})
        .to_string()
        .into_bytes()
    };
    seeds.push(model(&vocab, &merges));
    seeds.push(model(&json!({"a": 0}), &json!([["a", "a"]])));
    let normalizers = json!({"type": "Sequence", "normalizers": [
        {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": true, "strip_right": true}, {"type": "StripAccents"},
        {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="}, {"type": "Prepend", "prepend": "_"}, {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "aa"},
    ]});
    let cutters = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": true}, {"type": "Digits", "individual_digits": false},
        {"type": "Split", "pattern": {"String": "b"}, "behavior": "MergedWithNext", "invert": true}, {"type": "Whitespace"}, {"type": "Punctuation", "behavior": "Contiguous"},
    ]});
    for (key, value) in [("normalizer", normalizers), ("pre_tokenizer", cutters)] {
        let mut seed: Value = serde_json::from_slice(&seeds[5]).expect("it was just written");
        seed[key] = value;
        seeds.push(seed.to_string().into_bytes());
    }
    seeds.push(fixture_file("tokenizers/unigram-json/tokenizer.json"));
    seeds.push(fixture_file("encoders/bert/tokenizer.json"));
    seeds
}

/// Sentencepiece vocabularies: those of the fixtures, with maps of characters and of the unigram kind too, and pieces
/// whose scores are no numbers.
pub fn model_seeds() -> Vec<Vec<u8>> {
    let fixtures = ["models/llama-linear", "tokenizers/unigram", "tokenizers/bpe-map-bytes"];
    let fixtures = fixtures.map(|folder| fixture_file(&format!("{folder}/tokenizer.model")));
    let piece = |text: &[u8], score: f32, kind: u8| {
        let inside = [&[0x0a, text.len() as u8][..], text, &[0x15], &score.to_le_bytes(), &[0x18, kind]].concat();
        [&[0x0a, inside.len() as u8][..], &inside].concat()
    };
    let mut odd = [piece(b"<unk>", 0.0, 2), piece(b"<s>", 0.0, 3), piece(b"</s>", 0.0, 3)].concat();
    let scores = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, f32::MIN_POSITIVE, f32::MAX];
    for (score, text) in scores.into_iter().zip(["a", "aa", "aaa", "b", "ab", "ba", "\u{2581}", "\u{2581}a"]) {
        odd.extend(piece(text.as_bytes(), score, 1));
    }
    fixtures.into_iter().chain([odd]).collect()
}

/// A `tokenizer.json`.
pub fn json(input: &[u8], folder: &Path) -> Result<Answer, String> {
    from_files(&TokenizerFiles { tokenizer_json: Some(input.to_vec()), ..TokenizerFiles::default() }, folder)
}

/// A `tokenizer.model`.
pub fn model(input: &[u8], folder: &Path) -> Result<Answer, String> {
    from_files(&TokenizerFiles { tokenizer_model: Some(input.to_vec()), ..TokenizerFiles::default() }, folder)
}

/// GLM-4's `tokenizer.model`, a rank file, with a `tokenizer_config.json` that lists special tokens after the ranks.
pub fn ranks(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let count = input.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    let token = |content: &str| json!({"content": content, "special": true});
    let listed =
        json!({"added_tokens_decoder": {count.to_string(): token("[gMASK]"), (count + 2).to_string(): token("<sop>")}});
    let tokenizer_config = listed.as_object().cloned();
    from_files(
        &TokenizerFiles { tokenizer_model: Some(input.to_vec()), tokenizer_config, ..TokenizerFiles::default() },
        folder,
    )
}

/// The fixture's file of ranks, and one whose tokens are what merges cannot make.
pub fn ranks_seeds() -> Vec<Vec<u8>> {
    let fixture = fixture_file("models/glm4/tokenizer.model");
    let lines: Vec<&[u8]> = fixture.split_inclusive(|byte| *byte == b'\n').collect();
    let odd = [lines[..256].concat(), b"YWI= 256\nYWJhYg== 257\nYWJjZA== 258\n".to_vec()].concat();
    vec![lines[..260].concat(), odd]
}

fn from_files(files: &TokenizerFiles, folder: &Path) -> Result<Answer, String> {
    let path = folder.join("model");
    match Vocabulary::from_files(files, &ModelTokens::default(), &path) {
        Ok(vocabulary) => check_vocabulary(&vocabulary),
        Err(problem) => refused(&problem),
    }
}

/// Uses a vocabulary on texts. Every id is inside it, a stream says what decoding at once says, and what comes back
/// from GGUF keys gives the same ids.
pub fn check_vocabulary(vocabulary: &Vocabulary) -> Result<Answer, String> {
    let tokenizer = match Tokenizer::new(vocabulary.clone()) {
        Ok(tokenizer) => tokenizer,
        Err(problem) => return refused(&problem),
    };
    let mut metadata = Metadata::default();
    let again = match vocabulary.write_metadata(&mut metadata) {
        Ok(_) => {
            let read =
                later(Vocabulary::from_metadata(&metadata, vocabulary.path()), "a written vocabulary is refused")?;
            Some(later(Tokenizer::new(read), "a written vocabulary does not become a tokenizer")?)
        }
        Err(problem) => {
            refused(&problem)?;
            None
        }
    };
    let long = "the cat aaaa ".chars().cycle().take(LONG).collect::<String>();
    for text in TEXTS.into_iter().chain([long.as_str()]) {
        for add_special in [false, true] {
            let ids = tokenizer.encode(text, add_special);
            if let Some(again) = &again {
                let same = again.encode(text, add_special);
                let equal = match (&ids, &same) {
                    (Ok(ids), Ok(same)) => ids == same,
                    (Err(_), Err(_)) => true,
                    (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
                };
                law(equal, "ids change when the vocabulary is written and read")?;
            }
            match ids {
                Ok(ids) => check_ids(&tokenizer, &ids)?,
                Err(problem) => drop(refused(&problem)?),
            }
        }
    }
    Ok(Answer::Accepted("vocabulary"))
}

/// Every id has a piece; a stream and decoding at once give the same bytes.
pub fn check_ids(tokenizer: &Tokenizer, ids: &[u32]) -> Result<(), String> {
    law(ids.iter().all(|id| tokenizer.piece(*id).is_some()), "an id is outside of the vocabulary")?;
    for skip_special in [false, true] {
        let whole = tokenizer.decode(ids, skip_special);
        let mut stream = tokenizer.stream(skip_special, true);
        let mut text: String = ids.iter().map(|id| stream.push(*id)).collect();
        text.push_str(&stream.finish());
        law(text == String::from_utf8_lossy(&whole), "a stream says other text than decoding at once")?;
    }
    Ok(())
}
