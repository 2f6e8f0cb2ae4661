//! WordPiece (Schuster and Nakajima 2012, as BERT uses it): of each word the longest token that begins it, then of the
//! rest the longest token that continues a word, and so on. A word with a rest that no token begins is unknown.
//!
//! ```text
//! tokenizer.json, vocab.txt     hello   ##ing    [CLS]
//! GGUF                          ▁hello  ing      [CLS]      control tokens are written as they are
//! ```

use crate::decoder::{Continuation, Decoder};
use crate::gguf_keys::{LOWERCASE, TOKENS, optional};
use crate::normalizer::Normalizer;
use crate::pre_tokenizer::PreTokenizer;
use crate::sentencepiece_model::added_by_kind;
use crate::vocabulary::{Algorithm, Parts, Special, Token, TokenKind};
use std::collections::HashMap;
use std::path::Path;
use trueup_formats::gguf::Metadata;
use trueup_formats::{Error, Result, quote};

/// Whether accents are dropped; if absent, like lower case.
const STRIP_ACCENTS: &str = "tokenizer.ggml.normalizer.strip_accents";
/// What a token begins with that continues a word.
pub(crate) const CONTINUATION: &str = "##";
/// What a token of GGUF begins with that starts a word.
const START: char = '▁';
/// Characters of the longest word that is cut, if the file does not say otherwise. Longer words are unknown.
pub(crate) const CHARS_DEFAULT: usize = 100;
/// Maximum word length that a file may specify.
pub(crate) const CHARS_MAX: usize = 1024;

/// The ids of a word, or `None` if it is unknown. `bytes_max` is the length of the longest piece.
pub(crate) fn cut(
    word: &str,
    pieces: &HashMap<Box<str>, u32>,
    (chars_max, bytes_max): (usize, usize),
) -> Option<Vec<u32>> {
    if word.chars().nth(chars_max).is_some() {
        return None;
    }
    let (mut ids, mut rest) = (Vec::new(), word);
    let mut text = String::new();
    while !rest.is_empty() {
        text.clear();
        text.push_str(if ids.is_empty() { "" } else { CONTINUATION });
        let start = text.len();
        text.push_str(rest);
        let ends = rest.char_indices().map(|(at, c)| at.saturating_add(c.len_utf8()));
        let ends: Vec<usize> = ends.take_while(|end| end.saturating_add(start) <= bytes_max).collect();
        let found = ends.into_iter().rev().find_map(|end| {
            let piece = text.get(..start.saturating_add(end))?;
            Some((*pieces.get(piece)?, end))
        });
        let (id, end) = found?;
        ids.push(id);
        rest = rest.get(end..)?;
    }
    Some(ids)
}

/// The algorithm that a key of ours describes.
pub(crate) fn algorithm(chars_max: usize, key: &str, path: &Path) -> Result<Algorithm> {
    if (1..=CHARS_MAX).contains(&chars_max) {
        return Ok(Algorithm::WordPiece { chars_max });
    }
    let problem = format!("expected words of 1 to {CHARS_MAX} characters, found {chars_max}");
    Err(Error::new(path, problem).at(format!("key {key}")).help("convert the model again"))
}

/// The text of a token in GGUF.
pub(crate) fn to_gguf(token: &Token) -> String {
    match token.text.strip_prefix(CONTINUATION) {
        _ if token.kind == TokenKind::Control => token.text.clone(),
        Some(rest) => rest.to_owned(),
        None => format!("{START}{}", token.text),
    }
}

/// The text of a token of a GGUF file.
fn from_gguf(token: &Token) -> String {
    match token.text.strip_prefix(START).filter(|word| !word.is_empty()) {
        _ if token.kind == TokenKind::Control => token.text.clone(),
        Some(word) => word.to_owned(),
        None => format!("{CONTINUATION}{}", token.text),
    }
}

/// A token that GGUF cannot represent, because it reads as another one there.
fn ambiguous(tokens: &[Token]) -> Option<&Token> {
    let written = |token: &Token| Token { text: to_gguf(token), ..token.clone() };
    tokens.iter().find(|token| from_gguf(&written(token)) != token.text)
}

/// The parts that the tokens of a GGUF file and the settings of its normalizer stand for.
fn parts(mut tokens: Vec<Token>, lowercase: bool, strip_accents: bool) -> Parts {
    for token in &mut tokens {
        token.text = from_gguf(token);
    }
    Parts {
        algorithm: Algorithm::WordPiece { chars_max: CHARS_DEFAULT },
        normalizer: Some(Normalizer::BertNormalizer {
            clean_text: true,
            handle_chinese_chars: true,
            strip_accents: (strip_accents != lowercase).then_some(strip_accents),
            lowercase,
        }),
        pre_tokenizer: Some(PreTokenizer::BertPreTokenizer),
        decoder: Decoder {
            continuation: Some(Continuation { prefix: CONTINUATION.to_owned(), cleanup: true }),
            ..Decoder::default()
        },
        added: added_by_kind(&tokens),
        special: Special::default(),
        prefix: Vec::new(),
        suffix: Vec::new(),
        chat_template: None,
        tokens,
    }
}

/// The first token of every text in older files of BERT, which lack the key of BOS.
const CLS: &str = "tokenizer.ggml.cls_token_id";

/// The tokens around a text that have no keys: by the key of older files, or by their texts.
///
/// # Errors
/// A key that is not the id of a token.
pub(crate) fn find_roles(parts: &mut Parts, metadata: &Metadata, path: &Path) -> Result<()> {
    let id = |place: usize| u32::try_from(place).ok();
    let named = |text: &str| parts.tokens.iter().position(|token| token.text == text).and_then(id);
    let (start, separator) = (named("[CLS]"), named("[SEP]"));
    let stored = optional(metadata, CLS, path, Metadata::u64)?;
    let inside = |stored: u64| usize::try_from(stored).ok().filter(|place| *place < parts.tokens.len()).and_then(id);
    if let Some(stored) = stored.filter(|stored| inside(*stored).is_none()) {
        let problem = format!("expected the id of one of {} tokens, found {stored}", parts.tokens.len());
        return Err(Error::new(path, problem).at(format!("key {CLS}")).help("get the file again"));
    }
    let special = &mut parts.special;
    special.bos = special.bos.or(stored.and_then(inside)).or(start);
    special.separator = special.separator.or(separator);
    Ok(())
}

/// A token that continues a word has no mark there, and one that starts a word has.
pub(crate) fn check(parts: &Parts, path: &Path) -> Result<()> {
    let Algorithm::WordPiece { .. } = parts.algorithm else { return Ok(()) };
    match ambiguous(&parts.tokens) {
        None => Ok(()),
        Some(token) => {
            let problem = format!(
                "the token \"{}\" cannot be stored in GGUF: other programs would read it as a different token",
                quote(&token.text)
            );
            Err(Error::new(path, problem).at(TOKENS).help("remove the token from the vocabulary"))
        }
    }
}

/// Words and what continues them. Without the keys, text is put in lower case and loses its accents, as in other
/// programs.
pub(crate) fn read(tokens: Vec<Token>, metadata: &Metadata, path: &Path) -> Result<Parts> {
    let lowercase = optional(metadata, LOWERCASE, path, Metadata::bool)?.unwrap_or(true);
    let strip_accents = optional(metadata, STRIP_ACCENTS, path, Metadata::bool)?.unwrap_or(lowercase);
    Ok(parts(tokens, lowercase, strip_accents))
}

/// Whether text is put in lower case and loses its accents.
pub(crate) fn write_normalizer(parts: &Parts, metadata: &mut Metadata) {
    if let Some(Normalizer::BertNormalizer { strip_accents, lowercase, .. }) = &parts.normalizer {
        metadata.insert(LOWERCASE, *lowercase);
        metadata.insert(STRIP_ACCENTS, strip_accents.unwrap_or(*lowercase));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str, kind: TokenKind) -> Token {
        Token { text: text.to_owned(), score: 0.0, kind }
    }

    /// The published example of BERT's WordPiece, "unaffable".
    #[test]
    fn the_longest_piece_comes_first() {
        let texts = ["un", "##aff", "##able", "u", "##n"];
        let pieces: HashMap<Box<str>, u32> = texts.iter().zip(0u32..).map(|(text, id)| ((*text).into(), id)).collect();
        assert_eq!(cut("unaffable", &pieces, (100, 6)), Some(vec![0, 1, 2]));
        assert_eq!(cut("unaffablex", &pieces, (100, 6)), None);
        assert_eq!(cut("un", &pieces, (2, 6)), Some(vec![0]));
        assert_eq!(cut("un", &pieces, (1, 6)), None, "too long a word");
    }

    #[test]
    fn texts_in_gguf_are_read_back() {
        for (text, kind, written) in [
            ("hello", TokenKind::Normal, "▁hello"),
            ("##ing", TokenKind::Normal, "ing"),
            ("[CLS]", TokenKind::Control, "[CLS]"),
            ("[unused1]", TokenKind::Normal, "▁[unused1]"),
            ("▁", TokenKind::Normal, "▁▁"),
            ("##▁", TokenKind::Normal, "▁"),
            ("#", TokenKind::Normal, "▁#"),
        ] {
            let token = token(text, kind);
            assert_eq!(to_gguf(&token), written);
            assert!(ambiguous(&[token]).is_none(), "{text}");
        }
        assert!(ambiguous(&[token("##▁a", TokenKind::Normal)]).is_some());
    }
}
