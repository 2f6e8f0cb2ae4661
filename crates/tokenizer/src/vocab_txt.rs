//! `vocab.txt` of BERT, in directories without a `tokenizer.json`: a token on each line, in order of ID.
//!
//! ```text
//! [PAD] | [UNK] | ... | the | ##s        settings of the normalizer: do_lower_case ... of tokenizer_config.json
//! ```
//!
//! The rules are those of `BertTokenizer` in transformers 4.57 and of its converter (`convert_slow_tokenizer.py`).

use crate::normalizer::Normalizer;
use crate::special_names::RoleDefault;
use crate::tokenizer_json::{self, Read};
use crate::vocabulary::{Algorithm, Parts, TOKENS_MAX, Token, TokenKind, ids_by_text, padding_token};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::Path;
use trueup_formats::{Error, Result, TokenizerFiles, quote};

/// Name of the file in errors.
pub(crate) const VOCABULARY: &str = "vocab.txt";

/// Help for a file that cannot be read.
const DAMAGED: &str = "get the file of the original model";

/// The token for unknown words.
const UNKNOWN: &str = "[UNK]";

/// Default tokens for roles that no file names.
pub(crate) const DEFAULTS: &[RoleDefault] = &[
    ("unk_token", UNKNOWN, false),
    ("sep_token", "[SEP]", false),
    ("pad_token", "[PAD]", false),
    ("cls_token", "[CLS]", false),
    ("mask_token", "[MASK]", false),
];

/// Tokenizer classes whose settings override the normalizer of `tokenizer.json`, without the suffix `Fast`.
const CLASSES: [&str; 8] = [
    "BertTokenizer",
    "ConvBertTokenizer",
    "DistilBertTokenizer",
    "ElectraTokenizer",
    "LayoutLMTokenizer",
    "LxmertTokenizer",
    "MobileBertTokenizer",
    "SqueezeBertTokenizer",
];

/// The settings of BERT's normalizer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Settings {
    lowercase: bool,
    strip_accents: Option<bool>,
    handle_chinese_chars: bool,
}

impl Settings {
    /// The settings in `tokenizer_config.json`, with the defaults of the class.
    fn of(config: Option<&Map<String, Value>>) -> Settings {
        let flag = |key: &str| config.and_then(|config| config.get(key)?.as_bool());
        Settings {
            lowercase: flag("do_lower_case").unwrap_or(true),
            strip_accents: flag("strip_accents"),
            handle_chinese_chars: flag("tokenize_chinese_chars").unwrap_or(true),
        }
    }
}

/// The tokenizer class, without the suffix `Fast`.
fn class(config: &Map<String, Value>) -> &str {
    let class = config.get("tokenizer_class").and_then(Value::as_str).unwrap_or_default();
    class.strip_suffix("Fast").unwrap_or(class)
}

/// Builds the vocabulary. `vocab_size` is the number of rows of the embedding, and `path` the model that errors name.
pub(crate) fn read(bytes: &[u8], files: &TokenizerFiles, vocab_size: Option<usize>, path: &Path) -> Result<Read> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let problem = "expected UTF-8 text, found other bytes";
        Error::new(path, problem).at(format!("{VOCABULARY}, byte {}", error.valid_up_to())).help(DAMAGED)
    })?;
    let config = files.tokenizer_config.as_ref().filter(|_| !files.is_replaced);
    let class = config.map(class).filter(|class| !class.is_empty());
    if let Some(class) = class.filter(|class| !CLASSES.contains(class)) {
        let problem = format!("tokenizer_class: expected a BERT tokenizer for {VOCABULARY}, found {}", quote(class));
        let help = "add a tokenizer.json, which save_pretrained writes if the class has a fast tokenizer";
        return Err(Error::new(path, problem).at("tokenizer_config.json").help(help));
    }
    if config.and_then(|config| config.get("do_basic_tokenize")?.as_bool()) == Some(false) {
        let problem = "do_basic_tokenize: expected true, found false";
        let help = "add a tokenizer.json, which save_pretrained writes if the class has a fast tokenizer";
        return Err(Error::new(path, problem).at("tokenizer_config.json").help(help));
    }
    if text.is_empty() {
        let error = Error::new(path, "expected a token on each line, found none").at(VOCABULARY);
        return Err(error.help(DAMAGED));
    }
    let tokens = tokens(text, vocab_size, path)?;
    let Settings { lowercase, strip_accents, handle_chinese_chars } = Settings::of(config);
    let file = json!({
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": handle_chinese_chars,
            "strip_accents": strip_accents, "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        // The tokens are set below.
        "model": {"type": "WordPiece", "vocab": {UNKNOWN: 0}},
    });
    let Read { mut parts, beyond, conflict } =
        tokenizer_json::read(file.to_string().as_bytes(), vocab_size, path, &mut Vec::new())?;
    parts.special.unknown = (0u32..).zip(&tokens).find(|(_, token)| token.text == UNKNOWN).map(|(id, _)| id);
    parts.tokens = tokens;
    Ok(Read { parts, beyond, conflict })
}

/// The tokens, one for each line. Fails before it stores a token if the file has more lines than the embedding has
/// rows.
fn tokens(text: &str, vocab_size: Option<usize>, path: &Path) -> Result<Vec<Token>> {
    let (count, most) = (text.lines().count(), vocab_size.unwrap_or(TOKENS_MAX).min(TOKENS_MAX));
    if count > most {
        let rows = if vocab_size == Some(most) { " (the rows of the embedding)" } else { "" };
        let error = Error::new(path, format!("expected at most {most} tokens{rows}, found {count}"));
        return Err(error.at(VOCABULARY).help("check that vocab.txt is the file of the original model"));
    }
    let mut tokens: Vec<Token> = Vec::with_capacity(count);
    let mut ids: HashMap<&str, usize> = HashMap::with_capacity(count);
    for (id, line) in text.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        // A text on several lines has the ID of its last line, as in transformers.
        if let Some(earlier) = ids.insert(line, id)
            && let Some(token) = tokens.get_mut(earlier)
        {
            *token = padding_token(earlier);
        }
        tokens.push(Token { text: line.to_owned(), score: 0.0, kind: TokenKind::Normal });
    }
    Ok(tokens)
}

/// Puts BERT's tokens around every text. All tokens must have IDs.
pub(crate) fn put_around(parts: &mut Parts, role: impl Fn(&str) -> Option<String>) {
    let ids = ids_by_text(&parts.tokens);
    let id = |key: &str| role(key).and_then(|text| ids.get(text.as_str()).copied());
    let (prefix, suffix) = (id("cls_token"), id("sep_token"));
    (parts.prefix, parts.suffix) = (prefix.into_iter().collect(), suffix.into_iter().collect());
}

/// Applies the settings of `tokenizer_config.json`, which override those of `tokenizer.json`, as in the constructor of
/// the class in transformers.
pub(crate) fn settle_normalizer(parts: &mut Parts, files: &TokenizerFiles, notes: &mut Vec<String>) {
    let Some(config) = files.tokenizer_config.as_ref().filter(|_| !files.is_replaced) else { return };
    let class = class(config);
    let Some(Normalizer::BertNormalizer { lowercase, strip_accents, handle_chinese_chars, .. }) = &mut parts.normalizer
    else {
        return;
    };
    let own =
        Settings { lowercase: *lowercase, strip_accents: *strip_accents, handle_chinese_chars: *handle_chinese_chars };
    let wanted = Settings::of(Some(config));
    if !CLASSES.contains(&class) || own == wanted {
        return;
    }
    *lowercase = wanted.lowercase;
    *strip_accents = wanted.strip_accents;
    *handle_chinese_chars = wanted.handle_chinese_chars;
    notes.push(format!(
        "the normalizer of tokenizer.json differs from the settings of tokenizer_config.json (do_lower_case {}, \
         tokenize_chinese_chars {}), which are used, as in transformers",
        wanted.lowercase, wanted.handle_chinese_chars
    ));
}

/// The number and the text of the first line of `vocab.txt` whose token has another ID in the vocabulary of
/// `tokenizer.json`.
pub(crate) fn first_difference(bytes: &[u8], parts: &Parts) -> Option<(u32, String)> {
    let Algorithm::WordPiece { .. } = parts.algorithm else { return None };
    let text = std::str::from_utf8(bytes).ok()?;
    let ids = ids_by_text(&parts.tokens);
    let mut lines = text.lines().map(|line| line.trim_end_matches('\r')).zip(0u32..);
    let (line, id) = lines.find(|(line, id)| ids.get(line).copied() != Some(*id))?;
    Some((id.saturating_add(1), line.to_owned()))
}

/// Normalizes settings that are equivalent, so that a vocabulary compares equal after it is written and read.
pub(crate) fn settle_accents(normalizer: Option<&mut Normalizer>) {
    if let Some(Normalizer::BertNormalizer { lowercase, strip_accents, .. }) = normalizer
        && *strip_accents == Some(*lowercase)
    {
        *strip_accents = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_lines(text: &[u8], config: Value) -> Result<Read> {
        let files = TokenizerFiles { tokenizer_config: config.as_object().cloned(), ..TokenizerFiles::default() };
        read(text, &files, None, Path::new("model"))
    }

    #[test]
    fn lines_are_tokens() {
        let Read { parts, .. } = read_lines(b"[UNK]\r\na\n##b\n", json!({})).unwrap();
        let texts: Vec<&str> = parts.tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(texts, ["[UNK]", "a", "##b"]);
        assert_eq!(parts.special.unknown, Some(0));
        let twice = read_lines(b"a\nb\na\n", json!({})).unwrap().parts.tokens;
        assert_eq!([0, 1, 2].map(|id: usize| twice[id].text.as_str()), ["[PAD0]", "b", "a"], "the last line counts");
        let cased = read_lines(b"[UNK]\n", json!({"do_lower_case": false, "strip_accents": true})).unwrap();
        let expected = Normalizer::BertNormalizer {
            clean_text: true,
            handle_chinese_chars: true,
            strip_accents: Some(true),
            lowercase: false,
        };
        assert_eq!(cased.parts.normalizer, Some(expected));
    }

    #[test]
    fn errors_name_the_place() {
        for (text, config, expected) in [
            (&b"a\n\xff"[..], json!({}), "vocab.txt, byte 2"),
            (b"a", json!({"do_basic_tokenize": false}), "do_basic_tokenize"),
        ] {
            let error = read_lines(text, config).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
