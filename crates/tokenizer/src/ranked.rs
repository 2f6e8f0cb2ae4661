//! Rank files: byte-level vocabularies in which the rank of a token is its ID and its place in the merge order.
//!
//! ```text
//! IQ== 0      the bytes of the token in base64, and its rank
//! Ig== 1
//! ```
//!
//! Qwen's file is named `qwen.tiktoken`, and Qwen's Python code defines the special tokens. GLM-4's file is named
//! `tokenizer.model`, and `tokenizer_config.json` lists the special tokens (`chatglm.rs`).
//!
//! The file contains the result of each merge, not its two parts. Applying the earlier merges to the text of a token
//! leaves exactly these two parts.

use crate::byte_alphabet;
use crate::decoder::Decoder;
use crate::merge::{Candidate, Symbol, merge};
use crate::normalizer::Normalizer;
use crate::pre_tokenizer_names::{self, Known};
use crate::vocabulary::{AddedToken, Algorithm, Merge, Parts, Special, TOKENS_MAX, Token, TokenKind, padding_token};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use trueup_formats::{Error, RankFile, Result, TokenizerFiles, listed, quote};

/// Name of Qwen's rank file.
const QWEN: &str = "qwen.tiktoken";
/// Help for a file that cannot be read.
const DAMAGED: &str = "the file is damaged or is not a rank file; download it again";
/// Maximum number of bytes of the first line that are read to recognize a rank file.
const FIRST_LINE_MAX: usize = 256;
/// GGUF's name for Qwen's pre-tokenizer.
const CUT: &str = "qwen2";
/// Qwen's special tokens, which follow the ranks.
const AFTER_RANKS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
/// Number of reserved tokens that follow [`AFTER_RANKS`].
const EXTRAS: u32 = 205;
/// The token at the end of a turn.
const END_OF_TURN: &str = "<|im_end|>";
/// The special tokens that end generation. `<|im_start|>` can be an additional stop token.
const ENDS: [&str; 2] = ["<|endoftext|>", END_OF_TURN];
/// Qwen's chat template if no file has one.
pub(crate) const TEMPLATE: &str = "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}\
    {{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}\
    {{ '<|im_start|>' ~ message['role'] ~ '\\n' ~ message['content'] ~ '<|im_end|>\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Whether a file is a rank file: its first line is base64 and a 0. A SentencePiece model starts with a line feed.
pub(crate) fn is_ranks(file: &[u8]) -> bool {
    let line = file.iter().take(FIRST_LINE_MAX).take_while(|byte| **byte != b'\n').copied().collect::<Vec<u8>>();
    let bytes = line.trim_ascii_end().strip_suffix(b" 0");
    bytes.is_some_and(|bytes| !bytes.is_empty() && STANDARD.decode(bytes).is_ok())
}

/// Fails if a rank file is not named `qwen.tiktoken`, because its special tokens are unknown. A file that is passed
/// with `--tokenizer` is read as Qwen's.
pub(crate) fn check_name(ranks: &RankFile, files: &TokenizerFiles, path: &Path) -> Result<()> {
    if ranks.name == QWEN || files.is_replaced {
        return Ok(());
    }
    let problem = format!("expected {QWEN}, found {}, a rank file with unknown special tokens", quote(&ranks.name));
    Err(Error::new(path, problem).help("pass the model's tokenizer.json with --tokenizer"))
}

/// Builds Qwen's vocabulary; `path` is the model that errors name.
///
/// # Errors
/// The rank file is damaged, or its number of ranks does not fit the `eos_token_id` in `generation_config.json`.
pub(crate) fn qwen_parts(file: &[u8], files: &TokenizerFiles, path: &Path) -> Result<Parts> {
    let mut parts = parts(file, QWEN, CUT, path)?;
    let count = parts.tokens.len();
    put_after_ranks(&mut parts, count, None);
    check_ends(&parts, count, files, path)?;
    Ok(parts)
}

/// Checks the number of ranks against `generation_config.json`: every ID in `eos_token_id` must belong to a token of
/// [`AFTER_RANKS`], and at least one of them to a token of [`ENDS`].
fn check_ends(parts: &Parts, count: usize, files: &TokenizerFiles, path: &Path) -> Result<()> {
    let Some(config) = files.generation_config.as_ref().filter(|_| !files.is_replaced) else { return Ok(()) };
    let ids = config.get("eos_token_id");
    let ids = ids.map_or(&[][..], |ids| ids.as_array().map_or(std::slice::from_ref(ids), Vec::as_slice));
    let ids: Vec<u64> = ids.iter().filter_map(Value::as_u64).collect();
    let place = |id: u64| usize::try_from(id).ok().and_then(|id| id.checked_sub(count));
    let text = |id: &u64| place(*id).and_then(|place| AFTER_RANKS.get(place));
    let has_end = ids.iter().filter_map(text).any(|text| ENDS.contains(text));
    if ids.is_empty() || (has_end && ids.iter().all(|id| text(id).is_some())) {
        return Ok(());
    }
    let ends = parts.added.iter().filter(|added| ENDS.contains(&added.content.as_str()));
    let ends: Vec<String> = ends.map(|added| format!("{} ({})", added.id, added.content)).collect();
    let found: Vec<String> = ids.iter().map(u64::to_string).collect();
    let problem =
        format!("expected {}, because {QWEN} has {count} ranks, found {}", ends.join(" or "), listed(&found, ", "));
    let help = "the rank file is truncated or belongs to another model; download it again";
    Err(Error::new(path, problem).at("generation_config.json, eos_token_id").help(help))
}

/// Completes Qwen's vocabulary, whose ranks end before ID `first`. Adds each special and reserved token whose ID has a
/// row in the embedding and no other token, and sets the normalizer and the end of a turn.
pub(crate) fn put_after_ranks(parts: &mut Parts, first: usize, vocab_size: Option<usize>) {
    let extras = (0..EXTRAS).map(|number| format!("<|extra_{number}|>"));
    let texts = AFTER_RANKS.iter().map(|text| (*text).to_owned()).chain(extras);
    let rows = vocab_size.unwrap_or(usize::MAX).saturating_sub(first);
    let tokens = (first..).zip(texts.take(rows));
    put_at(parts, tokens);
    parts.normalizer = Some(Normalizer::NFC);
    let end = parts.added.iter().find(|added| added.content == END_OF_TURN);
    parts.special.end_of_turn = end.map(|added| added.id).or(parts.special.end_of_turn);
}

/// Adds control tokens at their IDs, except at IDs that have another token.
pub(crate) fn put_at(parts: &mut Parts, tokens: impl Iterator<Item = (usize, String)>) {
    for (place, content) in tokens.take_while(|(place, _)| *place < TOKENS_MAX) {
        while parts.tokens.len() <= place {
            parts.tokens.push(padding_token(parts.tokens.len()));
        }
        let Some(token) = parts.tokens.get_mut(place).filter(|token| token.kind == TokenKind::Unused) else { continue };
        *token = Token { kind: TokenKind::Control, ..normal(content.clone()) };
        let id = u32::try_from(place).unwrap_or(u32::MAX);
        let (single_word, lstrip, rstrip, normalized) = (false, false, false, false);
        parts.added.push(AddedToken { id, content, single_word, lstrip, rstrip, normalized, special: true });
    }
}

/// Builds the vocabulary of a rank file without special tokens. Errors call the file `place`; `cut` is GGUF's name for
/// the pre-tokenizer.
pub(crate) fn parts(file: &[u8], place: &str, cut: &str, path: &Path) -> Result<Parts> {
    let tokens: Vec<Token> =
        read(file, place, path)?.iter().map(|bytes| normal(byte_alphabet::encode_bytes(bytes))).collect();
    let ranks: Vec<u32> =
        (0u32..).zip(&tokens).filter(|(_, token)| token.text.chars().nth(1).is_some()).map(|(id, _)| id).collect();
    let merges = match merges(&tokens, &ranks) {
        (merges, None) => merges,
        (_, Some(text)) => {
            let problem = format!("expected tokens that join two earlier ones, found \"{}\"", quote(&text));
            return Err(Error::new(path, problem).at(place).help(DAMAGED));
        }
    };
    if let Some(byte) = missing_byte(&tokens) {
        let problem = format!("expected a token for each byte of UTF-8, found none for 0x{byte:02X}");
        return Err(Error::new(path, problem).at(place).help(DAMAGED));
    }
    let known = pre_tokenizer_names::by_name(cut);
    // Merging the text of a token always gives that token, so `ignore_merges` does not change a result. It is set as in
    // the pre-tokenizer, so that the name in GGUF stays the same.
    let ignore_merges = known.is_some_and(|known| known.ignore_merges);
    Ok(Parts {
        algorithm: Algorithm::Merges { merges, byte_fallback: false, fuse_unknown: false, ignore_merges },
        normalizer: None,
        pre_tokenizer: known.map(Known::pre_tokenizer),
        decoder: Decoder::byte_level(),
        special: Special::default(),
        prefix: Vec::new(),
        suffix: Vec::new(),
        chat_template: None,
        added: Vec::new(),
        tokens,
    })
}

/// Qwen's chat template, if there is a rank file but neither a `tokenizer.json` nor a `tokenizer.model`.
pub(crate) fn qwen_template(files: &TokenizerFiles) -> Option<String> {
    let is_here = files.tiktoken.is_some() && files.tokenizer_json.is_none() && files.tokenizer_model.is_none();
    is_here.then(|| TEMPLATE.to_owned())
}

fn normal(text: String) -> Token {
    Token { text, score: 0.0, kind: TokenKind::Normal }
}

/// The bytes of all tokens by rank. Fails if a line is damaged, if the ranks are not 0, 1, 2 and so on, or if a token
/// is repeated.
fn read(file: &[u8], place: &str, path: &Path) -> Result<Vec<Vec<u8>>> {
    let mut tokens: Vec<Vec<u8>> = Vec::new();
    let mut ranks: HashMap<Vec<u8>, usize> = HashMap::new();
    let lines = file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for line in lines {
        let fault = |problem: String| {
            let place = format!("{place}, token {}", tokens.len());
            Err(Error::new(path, problem).at(place).help(DAMAGED))
        };
        if tokens.len() == TOKENS_MAX {
            return fault(format!("expected at most {TOKENS_MAX} tokens, found more"));
        }
        let line = String::from_utf8_lossy(line);
        let Some((bytes, rank)) = line.trim_end().split_once(' ') else {
            return fault(format!("expected base64 text and a rank, found \"{}\"", quote(&line)));
        };
        if rank.parse() != Ok(tokens.len()) {
            return fault(format!("expected rank {}, found \"{}\"", tokens.len(), quote(rank)));
        }
        let token = match STANDARD.decode(bytes) {
            Ok(token) if !token.is_empty() => token,
            Ok(_) | Err(_) => return fault(format!("expected base64 text, found \"{}\"", quote(bytes))),
        };
        if let Some(rank) = ranks.insert(token.clone(), tokens.len()) {
            return fault(format!("expected each token once, found \"{}\" again, which has rank {rank}", quote(bytes)));
        }
        tokens.push(token);
    }
    if tokens.is_empty() {
        let error = Error::new(path, "expected base64 text and a rank on each line, found no line");
        return Err(error.at(place).help(DAMAGED));
    }
    Ok(tokens)
}

/// The first byte that can occur in UTF-8 and has no token. Text with that byte could not be encoded.
fn missing_byte(tokens: &[Token]) -> Option<u8> {
    let texts: HashSet<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
    let mut bytes = (0..=0xF4u8).filter(|byte| !matches!(byte, 0xC0 | 0xC1));
    bytes.find(|byte| !texts.contains(byte_alphabet::encode_bytes(&[*byte]).as_str()))
}

/// The merges that produce the tokens with the IDs `ranks`, in this order, and the text of the first token that the
/// earlier merges do not reduce to two parts.
pub(crate) fn merges(tokens: &[Token], ranks: &[u32]) -> (Vec<Merge>, Option<String>) {
    let text = |id: u32| usize::try_from(id).ok().and_then(|id| tokens.get(id)).map_or("", |token| token.text.as_str());
    let bases = tokens.iter().zip(0u32..).filter(|(token, _)| token.text.chars().nth(1).is_none());
    let bases: HashMap<&str, u32> = bases.map(|(token, id)| (token.text.as_str(), id)).collect();
    let mut known: HashMap<(u32, u32), (f64, u32)> = HashMap::with_capacity(ranks.len());
    let mut merges = Vec::with_capacity(ranks.len());
    let mut rank = 0.0_f64;
    for id in ranks {
        let word = text(*id);
        let symbols = word.char_indices().map(|(start, c)| {
            let range = start..start.saturating_add(c.len_utf8());
            Symbol { id: word.get(range.clone()).and_then(|text| bases.get(text)).copied(), range }
        });
        let candidate = |left: &Symbol, right: &Symbol| {
            let (rank, result) = known.get(&(left.id?, right.id?)).copied()?;
            Some(Candidate { rank, result })
        };
        let left_over = merge(symbols.collect(), candidate, |_| ());
        let [Symbol { id: Some(left), .. }, Symbol { id: Some(right), .. }] = left_over[..] else {
            return (merges, Some(word.to_owned()));
        };
        known.insert((left, right), (rank, *id));
        merges.push(Merge { left, right, result: *id });
        rank += 1.0;
    }
    (merges, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::Vocabulary;
    use serde_json::json;
    use trueup_formats::gguf::Metadata;

    fn file(tokens: &[&[u8]]) -> Vec<u8> {
        let line = |(rank, bytes): (usize, &&[u8])| format!("{} {rank}\n", STANDARD.encode(bytes));
        tokens.iter().enumerate().map(line).collect::<String>().into_bytes()
    }

    fn read_qwen(file: &[u8]) -> Result<Parts> {
        qwen_parts(file, &TokenizerFiles::default(), Path::new("m"))
    }

    /// A rank file with all 256 bytes, followed by these tokens.
    fn after_bytes(tokens: &[&[u8]]) -> Vec<u8> {
        let bytes: Vec<[u8; 1]> = (0..=255u8).map(|byte| [byte]).collect();
        let all: Vec<&[u8]> = bytes.iter().map(|byte| byte.as_slice()).chain(tokens.iter().copied()).collect();
        file(&all)
    }

    #[test]
    fn ranks_become_merges() {
        let parts = read_qwen(&after_bytes(&[b"ab", b"abab"])).expect("a vocabulary");
        let Algorithm::Merges { merges, .. } = &parts.algorithm else { panic!("{:?}", parts.algorithm) };
        let merged: Vec<[u32; 3]> = merges.iter().map(|merge| [merge.left, merge.right, merge.result]).collect();
        assert_eq!(merged, [[97, 98, 256], [256, 256, 257]]);
        assert_eq!(parts.tokens.len(), 258 + 3 + 205);
        assert_eq!((parts.added[2].id, parts.added[2].content.as_str()), (260, "<|im_end|>"));
        assert_eq!(byte_alphabet::decode(&parts.tokens[255].text), b"\xff");
    }

    #[test]
    fn rank_files_are_recognized() {
        assert!(is_ranks(b"IQ== 0\nIg== 1\n") && is_ranks(b"IQ== 0\r\n"));
        let others: [&[u8]; 6] = [b"", b" 0\n", b"\n\x0e\n\x05<unk>", b"IQ== 1\n", b"!! 0\n", &[b'A'; 300]];
        assert!(others.iter().all(|file| !is_ranks(file)));
    }

    /// GGUF requires merges for a byte-level vocabulary, but a vocabulary that only decodes has none.
    #[test]
    fn vocabularies_that_only_decode_are_written_and_read() {
        let mut parts = read_qwen(&after_bytes(&[b"ab"])).expect("a vocabulary");
        parts.algorithm = Algorithm::DecodeOnly { reason: "no order".to_owned() };
        let mut metadata = Metadata::default();
        Vocabulary::new(parts, Path::new("m")).and_then(|own| own.write_metadata(&mut metadata)).expect("keys");
        let read = Vocabulary::from_metadata(&metadata, Path::new("m")).expect("a vocabulary");
        assert_eq!(read.parts().algorithm, Algorithm::DecodeOnly { reason: "no order".to_owned() });
    }

    #[test]
    fn eos_token_ids_fit_the_number_of_ranks() {
        let read_with = |eos: Value, is_replaced: bool| {
            let generation_config = json!({"eos_token_id": eos}).as_object().cloned();
            let files = TokenizerFiles { generation_config, is_replaced, ..TokenizerFiles::default() };
            qwen_parts(&after_bytes(&[b"ab"]), &files, Path::new("m")).map(drop)
        };
        let read = |eos: Value| read_with(eos, false);
        for eos in [json!(257), json!([259, 257]), json!([259, 258]), json!([]), json!(null)] {
            read(eos.clone()).unwrap_or_else(|error| panic!("{eos}: {error}"));
        }
        read_with(json!(256), true).expect("the IDs belong to the tokenizer that is replaced");
        for (eos, found) in
            [(json!(256), "256"), (json!(258), "258"), (json!([257, 256]), "257, 256"), (json!([260, 259]), "260, 259")]
        {
            let error = read(eos).expect_err("a fault").to_string();
            let expected = format!(
                "expected 257 (<|endoftext|>) or 259 (<|im_end|>), because qwen.tiktoken has 257 ranks, found {found}"
            );
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn faults_are_reported() {
        let said = |file: &[u8]| read_qwen(file).map(drop).expect_err("a fault").to_string();
        assert!(said(b"\n").contains("qwen.tiktoken: expected base64 text and a rank on each line, found no line"));
        assert!(said(&file(&[b"a", b"b"])).contains("a token for each byte of UTF-8, found none for 0x00"));
        assert!(said(b"YQ==\n").contains("expected base64 text and a rank"), "{}", said(b"YQ==\n"));
        assert!(said(b"YQ== 1\n").contains("expected rank 0, found"));
        assert!(said(b"!!! 0\n").contains("expected base64 text, found"));
        assert!(said(&file(&[b"a", b"abc"])).contains("expected tokens that join two earlier ones"));
        let twice = said(&file(&[b"a", b"b", b"a"]));
        assert!(twice.contains("token 2") && twice.contains("found \"YQ==\" again, which has rank 0"), "{twice}");
    }
}
