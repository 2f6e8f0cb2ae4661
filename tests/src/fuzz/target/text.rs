//! Texts and ids, by the vocabularies of the fixtures.
//!
//! ```text
//! which tokenizer u8 | 0: text, else ids of two bytes | ...
//! ```

use super::super::Answer;
use super::super::law;
use super::super::node::{Cursor, Node};
use super::super::seeds::fixture_file;
use super::tokenizer::check_ids;
use crate::root;
use std::path::Path;
use std::sync::OnceLock;
use trueup::formats::{OpenOptions, TokenizerFiles, open};
use trueup::tokenizer::{ModelTokens, Tokenizer, Vocabulary};

/// A vocabulary, and what it gives back.
struct Known {
    tokenizer: Tokenizer,
    /// Texts that come back as they were.
    is_lossless_for: fn(&str) -> bool,
}

/// Of the fixtures, and of the trained model.
fn tokenizers() -> &'static [Known] {
    static TOKENIZERS: OnceLock<Vec<Known>> = OnceLock::new();
    TOKENIZERS.get_or_init(|| {
        let byte_level: fn(&str) -> bool = |_| true;
        let normalized: fn(&str) -> bool = str::is_ascii;
        // Sentencepiece writes spaces as its mark, and puts one in front of the text and behind special tokens.
        let marked: fn(&str) -> bool = |text| !text.contains(['\u{2581}', '<', ' ']) && !text.is_empty();
        [
            ("llama3", byte_level),
            ("llama-yarn", byte_level),
            ("qwen2", normalized),
            ("qwen3", normalized),
            ("llama2", marked),
            ("mistral", marked),
            ("llama-linear", marked),
        ]
        .map(|(name, is_lossless_for)| Known { tokenizer: tokenizer(name), is_lossless_for })
        .into()
    })
}

fn tokenizer(name: &str) -> Tokenizer {
    let folder = root().join("fixtures/models").join(name);
    let source = open(&folder, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let files: &TokenizerFiles = source.tokenizer();
    let vocabulary = Vocabulary::from_files(files, &ModelTokens::default(), &folder);
    vocabulary.and_then(Tokenizer::new).unwrap_or_else(|error| panic!("{error}"))
}

/// The hard texts of the fixtures, and some ids.
pub fn seeds() -> Vec<Vec<u8>> {
    let golden = fixture_file("models/qwen2/golden.json");
    let golden: serde_json::Value = serde_json::from_slice(&golden).expect("a golden is JSON");
    let texts = golden["texts"].as_array().into_iter().flatten().filter_map(|text| text["text"].as_str());
    let mut seeds: Vec<Vec<u8>> =
        texts.enumerate().map(|(number, text)| [&[number as u8 % 7, 0], text.as_bytes()].concat()).collect();
    seeds.extend(
        (0..7_u8)
            .map(|number| [vec![number, 1], (0..60).flat_map(|id: u16| (id * 7).to_le_bytes()).collect()].concat()),
    );
    seeds
}

/// Two numbers, then words or ids.
pub fn grammar(bytes: &[u8]) -> Node {
    let mut cursor = Cursor(bytes);
    let mut fields: Vec<Node> = (0..2).filter_map(|_| cursor.field(1)).collect();
    if bytes.get(1).is_some_and(|kind| *kind != 0) {
        fields.extend(cursor.0.chunks(2).map(|id| Node::Number(id.to_vec())));
    } else {
        let words = cursor.0.chunk_by(|a, b| a.is_ascii_alphanumeric() == b.is_ascii_alphanumeric());
        fields.extend(words.map(|word| Node::Text(word.to_vec())));
    }
    Node::Group(fields)
}

/// A text is cut into ids of the vocabulary and comes back; any ids have some bytes.
pub fn run(input: &[u8], _: &Path) -> Result<Answer, String> {
    let [which, kind, rest @ ..] = input else { return Ok(Answer::Refused("too short".to_owned())) };
    let known = &tokenizers()[usize::from(*which) % tokenizers().len()];
    let tokenizer = &known.tokenizer;
    if *kind != 0 {
        let count = tokenizer.vocabulary().tokens().len() as u32;
        let ids: Vec<u32> =
            rest.chunks_exact(2).map(|id| u32::from(u16::from_le_bytes([id[0], id[1]])) % (count + 3)).collect();
        let inside: Vec<u32> = ids.iter().copied().filter(|id| *id < count).collect();
        law(
            tokenizer.decode(&ids, false) == tokenizer.decode(&inside, false),
            "ids outside of the vocabulary have bytes",
        )?;
        check_ids(tokenizer, &inside)?;
        return Ok(Answer::Accepted("ids"));
    }
    let text = String::from_utf8_lossy(rest);
    let ids = match tokenizer.encode(&text, false) {
        Ok(ids) => ids,
        Err(problem) => return super::super::refused(&problem),
    };
    check_ids(tokenizer, &ids)?;
    if (known.is_lossless_for)(&text) {
        law(tokenizer.decode(&ids, false) == text.as_bytes(), "a text does not come back from its ids")?;
    }
    Ok(Answer::Accepted("text"))
}
