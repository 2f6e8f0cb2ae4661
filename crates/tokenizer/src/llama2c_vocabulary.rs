//! `tokenizer.bin` of llama2.c as a sentencepiece vocabulary.
//!
//! ```text
//! file                       here
//! 0 <unk>                    <unk>      unknown
//! 1 "\n<s>\n"                <s>        control, begins and ends every document
//! 2 "\n</s>\n"               </s>       control
//! 3..=258 <0x00>..<0xFF>     the same   byte
//! 259 " a"                   ▁a         normal; the file has spaces where the others have marks
//! ```

use crate::decoder::Decoder;
use crate::sentencepiece_model::sentencepiece_parts;
use crate::vocabulary::{Algorithm, Parts, TOKENS_MAX, Token, TokenKind, byte_of};
use std::path::Path;
use trueup_formats::llama2c::TokenizerBin;
use trueup_formats::{Error, Result};

/// What errors call the file.
const FILE: &str = "tokenizer.bin";
/// The ids of the convention, with their text and kind.
const RESERVED: [(&str, TokenKind); 3] =
    [("<unk>", TokenKind::Unknown), ("<s>", TokenKind::Control), ("</s>", TokenKind::Control)];
/// Begins and ends a document.
const BOS: u32 = 1;
/// Ends a sequence, by convention only.
const EOS: u32 = 2;

/// Said when text is to be encoded with an older file.
pub(crate) const SCORES_MISSING: &str = "expected scores, which are needed to encode text, found none; pass a \
    tokenizer.bin with scores, or the tokenizer.model or tokenizer.json of the model";

/// Builds the parts; `path` is the model that errors name.
pub(crate) fn parts(file: &TokenizerBin, path: &Path) -> Result<Parts> {
    let error = |place: String, problem: String| Err(Error::new(path, problem).at(place));
    if file.tokens.len() > TOKENS_MAX || file.tokens.len() < RESERVED.len() {
        let problem = format!("expected {} to {TOKENS_MAX} tokens, found {}", RESERVED.len(), file.tokens.len());
        return error(FILE.to_owned(), problem);
    }
    let mut tokens = Vec::with_capacity(file.tokens.len());
    for (id, bytes) in file.tokens.iter().enumerate() {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return error(format!("{FILE}, token {id}"), "expected UTF-8 text, found other bytes".to_owned());
        };
        let score = file.scores.as_ref().and_then(|scores| scores.get(id)).copied().unwrap_or_default();
        let token = match RESERVED.get(id) {
            Some((text, kind)) => Token { text: (*text).to_owned(), score, kind: *kind },
            None if byte_of(text).is_some() => Token { text: text.to_owned(), score, kind: TokenKind::Byte },
            None => Token { text: text.replace(' ', "▁"), score, kind: TokenKind::Normal },
        };
        tokens.push(token);
    }
    let mut parts = sentencepiece_parts(tokens, true, false, Decoder::sentencepiece(true));
    if file.scores.is_none() {
        parts.algorithm = Algorithm::DecodeOnly { reason: SCORES_MISSING.to_owned() };
    }
    parts.special.bos = Some(BOS);
    parts.special.eos = Some(EOS);
    parts.special.end_of_turn = Some(BOS);
    parts.prefix = vec![BOS];
    Ok(parts)
}
