//! Vocabularies in several files: `vocab.txt`, `vocab.json` with `merges.txt`, `qwen.tiktoken`, `ice_text.model`, and
//! `tokenizer_config.json` with the other small files.

use super::super::Answer;
use super::super::grammar::{frames, join_frames, json, split_frames};
use super::super::node::Node;
use super::super::refused;
use super::super::seeds::{fixture_file, tiny_tokenizer};
use super::tokenizer::check_vocabulary;
use serde_json::json as value;
use std::path::Path;
use trueup::formats::{Error, RankFile, TokenizerFiles, json::object};
use trueup::tokenizer::{ModelTokens, Vocabulary};

/// Rows of the embedding that every vocabulary is read for.
const ROWS: usize = 1024;

/// The files of a vocabulary, from frames of which the first is `tokenizer_config.json`.
type Frames = fn(&[Vec<u8>]) -> TokenizerFiles;

/// `tokenizer_config.json`, `vocab.txt`.
pub fn vocab_txt_seeds() -> Vec<Vec<u8>> {
    let of = |name: &str| {
        let [config, vocab] =
            ["tokenizer_config.json", "vocab.txt"].map(|file| fixture_file(&format!("{name}/{file}")));
        join_frames(&[config, vocab])
    };
    let small = value!({"tokenizer_class": "BertTokenizer", "do_lower_case": true, "strip_accents": false});
    let vocab = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##a\nab\n##bb\nthe\n".to_vec();
    let more = join_frames(&[small.to_string().into_bytes(), vocab]);
    ["encoders/bert", "encoders/bert-cased"].map(of).into_iter().chain([more]).collect()
}

/// Reads `vocab.txt`.
pub fn vocab_txt(input: &[u8], folder: &Path) -> Result<Answer, String> {
    from_frames(input, folder, 2, |files| TokenizerFiles {
        vocab_txt: Some(files[1].clone()),
        ..TokenizerFiles::default()
    })
}

/// `tokenizer_config.json`, `vocab.json`, `merges.txt`: the fixture, and small files of other classes.
pub fn vocab_json_seeds() -> Vec<Vec<u8>> {
    let moss =
        ["tokenizer_config.json", "vocab.json", "merges.txt"].map(|file| fixture_file(&format!("models/moss/{file}")));
    let vocab = value!({"a": 0, "b": 1, "ab": 2, "aba": 3, "Ġ": 4, "Ġa": 5, "<s>": 6, "</s>": 7, "<unk>": 8});
    let small = |class: &str| {
        let config = value!({"tokenizer_class": class, "add_prefix_space": true, "add_bos_token": true});
        let merges = b"#version: 0.2\na b\nab a\n\xc4\xa0 a\n".to_vec();
        join_frames(&[config.to_string().into_bytes(), vocab.to_string().into_bytes(), merges])
    };
    let classes = ["GPT2Tokenizer", "Qwen2TokenizerFast", "RobertaTokenizer"].map(small);
    classes.into_iter().chain([join_frames(&moss)]).collect()
}

/// Reads `vocab.json` with `merges.txt`.
pub fn vocab_json(input: &[u8], folder: &Path) -> Result<Answer, String> {
    from_frames(input, folder, 3, |files| TokenizerFiles {
        vocab_json: Some(files[1].clone()),
        merges: Some(files[2].clone()),
        ..TokenizerFiles::default()
    })
}

/// `tokenizer_config.json`, `qwen.tiktoken`.
pub fn tiktoken_seeds() -> Vec<Vec<u8>> {
    let config = || fixture_file("models/qwen/tokenizer_config.json");
    let fixture = fixture_file("models/qwen/qwen.tiktoken");
    let bytes: Vec<&[u8]> = fixture.split_inclusive(|byte| *byte == b'\n').take(256).collect();
    let odd = [bytes.concat(), b"YWI= 256\nYWJhYg== 257\nYWJjZA== 258\n".to_vec()].concat();
    vec![join_frames(&[config(), fixture]), join_frames(&[config(), odd])]
}

/// Reads `qwen.tiktoken`.
pub fn tiktoken(input: &[u8], folder: &Path) -> Result<Answer, String> {
    from_frames(input, folder, 2, |files| TokenizerFiles {
        tiktoken: Some(RankFile { name: "qwen.tiktoken".to_owned(), bytes: files[1].clone() }),
        ..TokenizerFiles::default()
    })
}

/// `tokenizer_config.json`, `ice_text.model`.
pub fn ice_text_seeds() -> Vec<Vec<u8>> {
    let config = || fixture_file("models/chatglm1/tokenizer_config.json");
    let models = ["models/chatglm1", "tokenizers/ice-text-map"];
    models.map(|name| join_frames(&[config(), fixture_file(&format!("{name}/ice_text.model"))])).to_vec()
}

/// Reads `ice_text.model`.
pub fn ice_text(input: &[u8], folder: &Path) -> Result<Answer, String> {
    from_frames(input, folder, 2, |files| TokenizerFiles {
        ice_text: Some(files[1].clone()),
        ..TokenizerFiles::default()
    })
}

/// `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`, and a digit that selects the vocabulary.
pub fn config_grammar(bytes: &[u8]) -> Node {
    frames(bytes, &[json, json, json, |bytes| Node::Word(bytes.to_vec())])
}

/// The small files of fixtures, for each kind of vocabulary.
pub fn config_seeds() -> Vec<Vec<u8>> {
    let none = || b"{}".to_vec();
    let small = |name: &str, file: &str| fixture_file(&format!("{name}/{file}"));
    let of = |(name, kind): (&str, &str)| {
        let files = ["tokenizer_config.json", "special_tokens_map.json"].map(|file| small(name, file));
        let [config, map] = files;
        join_frames(&[config, map, none(), kind.as_bytes().to_vec()])
    };
    let fixtures = [
        ("models/qwen2", "0"),
        ("models/llama3", "0"),
        ("models/llama-linear", "1"),
        ("models/baichuan", "1"),
        ("encoder-decoders/t5", "2"),
    ];
    let moss = join_frames(&[
        small("models/moss", "tokenizer_config.json"),
        none(),
        small("models/moss", "added_tokens.json"),
        b"0".to_vec(),
    ]);
    fixtures.into_iter().map(of).chain([moss]).collect()
}

/// Reads the small files over a vocabulary that is good.
pub fn config(input: &[u8], folder: &Path) -> Result<Answer, String> {
    from_frames(input, folder, 4, |files| {
        let object = |bytes: &[u8]| object("file.json", bytes).ok();
        let base = TokenizerFiles {
            special_tokens_map: object(&files[1]),
            added_tokens: object(&files[2]),
            ..TokenizerFiles::default()
        };
        match files[3].as_slice() {
            b"1" => {
                TokenizerFiles { tokenizer_model: Some(fixture_file("models/llama-linear/tokenizer.model")), ..base }
            }
            b"2" => TokenizerFiles {
                tokenizer_model: Some(fixture_file("tokenizer-files/spiece.model")),
                is_spiece: true,
                ..base
            },
            _ => TokenizerFiles { tokenizer_json: Some(tiny_tokenizer()), ..base },
        }
    })
}

/// Reads a vocabulary whose first frame is `tokenizer_config.json`, empty for none.
fn from_frames(input: &[u8], folder: &Path, count: usize, files: Frames) -> Result<Answer, String> {
    let frames = split_frames(input, count);
    let mut files = files(&frames);
    match config_of(&frames[0]) {
        Ok(config) => files.tokenizer_config = config,
        Err(problem) => return refused(&problem),
    }
    let model = ModelTokens { vocab_size: Some(ROWS), ..ModelTokens::default() };
    match Vocabulary::from_files(&files, &model, &folder.join("model")) {
        Ok(vocabulary) => check_vocabulary(&vocabulary),
        Err(problem) => refused(&problem),
    }
}

fn config_of(bytes: &[u8]) -> Result<Option<serde_json::Map<String, serde_json::Value>>, Error> {
    if bytes.is_empty() { Ok(None) } else { object("tokenizer_config.json", bytes).map(Some) }
}
