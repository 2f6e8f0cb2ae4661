//! `tokenizer.bin` of llama2.c, in its two structures.
//!
//! ```text
//! today   longest token u32 | (score f32, length i32, bytes) for each token
//! first                       (length i32, bytes) for each token
//! ```
//!
//! The number of tokens is not in the file: it comes from the model. The structure is the one that ends where the file
//! ends.

use crate::error::{Error, Result};
use crate::reader::Reader;
use crate::source_file::SourceFile;

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A vocabulary as llama2.c stores it: spaces are spaces, byte tokens are the text `<0xNN>`, token 0 is `<unk>`, 1 and
/// 2 hold `\n<s>\n` and `\n</s>\n`.
#[derive(Clone, PartialEq, Debug)]
pub struct TokenizerBin {
    /// Bytes of each token, by id.
    pub tokens: Vec<Vec<u8>>,
    /// Merge score of each token; absent in the first structure, with which text cannot be encoded.
    pub scores: Option<Vec<f32>>,
    /// Bytes of the longest token, as the file says; absent in the first structure.
    pub max_token_length: Option<u32>,
}

impl TokenizerBin {
    /// Reads the vocabulary of a model with `vocabulary` tokens.
    pub fn read(source: &SourceFile, vocabulary: u64) -> Result<TokenizerBin> {
        if source.bytes() > FILE_BYTES_MAX {
            let problem = format!("expected at most {FILE_BYTES_MAX} bytes for a vocabulary, found {}", source.bytes());
            return Err(Error::new(source.path(), problem));
        }
        let today = match read_today(source, vocabulary) {
            Ok(tokenizer) => return Ok(tokenizer),
            Err(error) => error,
        };
        read_first(source, vocabulary).map_err(|first| {
            Error::new(
                source.path(),
                format!(
                    "expected a tokenizer.json, a tokenizer.model, or a tokenizer.bin of {vocabulary} tokens, found none \
                     of them (as tokenizer.bin with scores: {}: {}; without scores: {}: {})",
                    today.place, today.problem, first.place, first.problem
                ),
            )
            .at("tokens")
            .help("pass the tokenizer file of this model")
        })
    }
}

fn read_today(source: &SourceFile, vocabulary: u64) -> Result<TokenizerBin> {
    let mut reader = Reader::new(source, FILE_BYTES_MAX);
    let max_token_length = reader.u32(&"longest token")?;
    let count = reader.count(vocabulary, 8, &"tokens")?;
    let mut tokens = Vec::with_capacity(count);
    let mut scores = Vec::with_capacity(count);
    for id in 0..count {
        let score = f32::from_le_bytes(reader.array(&format_args!("score of token {id}"))?);
        if !score.is_finite() {
            return Err(reader.error(&format_args!("score of token {id}"), format!("expected a number, found {score}")));
        }
        scores.push(score);
        tokens.push(read_token(&mut reader, id, Some(max_token_length))?);
    }
    check_end(&reader)?;
    Ok(TokenizerBin { tokens, scores: Some(scores), max_token_length: Some(max_token_length) })
}

fn read_first(source: &SourceFile, vocabulary: u64) -> Result<TokenizerBin> {
    let mut reader = Reader::new(source, FILE_BYTES_MAX);
    let count = reader.count(vocabulary, 4, &"tokens")?;
    let mut tokens = Vec::with_capacity(count);
    for id in 0..count {
        tokens.push(read_token(&mut reader, id, None)?);
    }
    check_end(&reader)?;
    Ok(TokenizerBin { tokens, scores: None, max_token_length: None })
}

fn read_token(reader: &mut Reader<'_>, id: usize, bytes_max: Option<u32>) -> Result<Vec<u8>> {
    let what = format_args!("length of token {id}");
    let length = reader.i32(&what)?;
    match u32::try_from(length) {
        Ok(length) if bytes_max.is_none_or(|max| length <= max) => {
            reader.bytes(length.into(), &format_args!("token {id}"))
        }
        _ => {
            let bound = bytes_max.map_or_else(String::new, |max| format!(" of at most {max}"));
            Err(reader.error(&what, format!("expected a length{bound}, found {length}")))
        }
    }
}

fn check_end(reader: &Reader<'_>) -> Result<()> {
    match reader.remaining() {
        0 => Ok(()),
        more => {
            Err(reader.error(&"end of the tokens", format!("expected the end of the file, found {more} more bytes")))
        }
    }
}
