//! `tokenizer.model` of sentencepiece: a protobuf, of which we read the pieces and a few settings.
//!
//! ```text
//! ModelProto       1: pieces (repeated)   2: trainer_spec   3: normalizer_spec   5: denormalizer_spec
//! SentencePiece    1: piece (text)        2: score (f32)    3: type (1 normal .. 6 byte)
//! TrainerSpec      3: model_type (1 unigram, 2 bpe, 3 words, 4 characters)      24: treat_whitespace_as_suffix
//!                  35: byte_fallback
//! NormalizerSpec   1: name  2: precompiled_charsmap  3: add_dummy_prefix  4: remove_extra_whitespaces  5: escape_whitespaces
//!
//! field = varint (number << 3 | wire type), then: 0 varint | 1 eight bytes | 2 length and bytes | 5 four bytes
//! ```
//!
//! Field numbers: sentencepiece_model.proto of sentencepiece. Pieces are checked as in its `InitializePieces`. A model
//! that merges and has no character map runs through the steps of the tokenizers library; all others are normalized by
//! sentencepiece's own rule ([`Normalizer::Sentencepiece`]).

use crate::character_map::CharacterMap;
use crate::decoder::{Decoder, LeadingSpace};
use crate::normalizer::Normalizer;
use crate::pattern::Pattern;
use crate::pre_tokenizer::PreTokenizer;
use crate::unigram::UnigramRule;
use crate::vocabulary::{AddedToken, Algorithm, Parts, Special, TOKENS_MAX, Token, TokenKind, byte_of, byte_text};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use trueup_formats::{Error, Result, counted, quote};

/// What a field holds.
enum Field<'b> {
    Number(u64),
    Four([u8; 4]),
    Bytes(&'b [u8]),
    Eight,
}

/// A message being read; `offset` is where its next byte stands in the file.
struct Message<'b> {
    bytes: &'b [u8],
    offset: usize,
}

type Read<T> = std::result::Result<T, (usize, String)>;

impl<'b> Message<'b> {
    fn fail<T>(&self, problem: impl Into<String>) -> Read<T> {
        Err((self.offset, problem.into()))
    }

    fn take(&mut self, count: usize) -> Read<&'b [u8]> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            return self.fail(format!("expected {}, found {}", counted(count, "byte"), self.bytes.len()));
        };
        self.bytes = rest;
        self.offset = self.offset.saturating_add(count);
        Ok(taken)
    }

    fn varint(&mut self) -> Read<u64> {
        let mut value: u64 = 0;
        for shift in (0..64u32).step_by(7) {
            let byte = self.take(1)?.first().copied().unwrap_or_default();
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        self.fail("expected a number of at most ten bytes, found a longer one")
    }

    /// The next field's number and value, or `None` at the end of the message.
    fn field(&mut self) -> Read<Option<(u64, Field<'b>)>> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => {
                self.take(8)?;
                Field::Eight
            }
            2 => {
                let count = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                Field::Bytes(self.take(count)?)
            }
            5 => Field::Four(self.take(4)?.try_into().unwrap_or_default()),
            other => return self.fail(format!("expected wire type 0, 1, 2 or 5, found {other}")),
        };
        Ok(Some((tag >> 3, field)))
    }

    /// A message inside this one that has just been taken.
    fn inner(&self, bytes: &'b [u8]) -> Message<'b> {
        Message { bytes, offset: self.offset.saturating_sub(bytes.len()) }
    }
}

/// The settings that decide how the pieces are used; the defaults are sentencepiece's.
struct Settings {
    /// Whether the file says something of the model, and of its normalizer.
    has_trainer: bool,
    has_normalizer: bool,
    model_type: u64,
    marks_behind: bool,
    byte_fallback: bool,
    map: Option<CharacterMap>,
    changes_decoded: bool,
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    escape_whitespaces: bool,
}

/// Numbers of `model_type`.
const UNIGRAM: u64 = 1;
const BPE: u64 = 2;

/// Reads the file; errors name the model at `path` and `file`.
pub(crate) fn read(bytes: &[u8], file: &str, path: &Path) -> Result<Parts> {
    let (parts, byte_fallback) = read_message_parts(bytes, file, path)?;
    check_pieces(&parts.tokens, byte_fallback)
        .map_err(|problem| Error::new(path, problem).at(file).help("the file is damaged; download it again"))?;
    Ok(parts)
}

/// As [`read`], for the scores and types of pieces alone: the sentencepiece library may refuse the file.
pub(crate) fn read_unchecked(bytes: &[u8], file: &str, path: &Path) -> Result<Parts> {
    read_message_parts(bytes, file, path).map(|(parts, _)| parts)
}

/// The vocabulary, and whether it declares pieces for bytes.
fn read_message_parts(bytes: &[u8], file: &str, path: &Path) -> Result<(Parts, bool)> {
    let (tokens, settings) = read_message(bytes).map_err(|(offset, problem)| {
        Error::new(path, problem)
            .at(format!("{file}, byte {offset}"))
            .help("the file is damaged or is not a SentencePiece model; download it again")
    })?;
    refuse_unsupported(&settings).map_err(|problem| {
        Error::new(path, problem).at(file).help(
            "put the tokenizer.json of the model into \
            its directory",
        )
    })?;
    if !(settings.has_trainer && settings.has_normalizer) {
        let problem = "expected trainer_spec and normalizer_spec after the pieces, found the end of the file";
        return Err(Error::new(path, problem).at(file).help("the file is damaged or truncated; download it again"));
    }
    let Settings { model_type, map, add_dummy_prefix, remove_extra_whitespaces, byte_fallback, .. } = settings;
    if model_type == UNIGRAM || map.is_some() {
        let algorithm = match model_type {
            UNIGRAM => Algorithm::Unigram { rule: UnigramRule::Sentencepiece },
            _ => Algorithm::Scores,
        };
        let parts = own_rule_parts(tokens, algorithm, map, add_dummy_prefix, remove_extra_whitespaces);
        return Ok((parts, byte_fallback));
    }
    let decoder = Decoder::sentencepiece(add_dummy_prefix);
    Ok((sentencepiece_parts(tokens, add_dummy_prefix, remove_extra_whitespaces, decoder), byte_fallback))
}

fn refuse_unsupported(settings: &Settings) -> std::result::Result<(), String> {
    match settings.model_type {
        UNIGRAM | BPE => {}
        3 => return Err("expected a unigram or BPE model, found a word model".to_owned()),
        4 => return Err("expected a unigram or BPE model, found a character model".to_owned()),
        other => return Err(format!("expected model type 1 (unigram) or 2 (BPE), found {other}")),
    }
    if settings.marks_behind && settings.add_dummy_prefix {
        return Err("expected treat_whitespace_as_suffix false, found true".to_owned());
    }
    if settings.changes_decoded {
        return Err("expected no character map in denormalizer_spec, found one".to_owned());
    }
    if !settings.escape_whitespaces {
        return Err("expected escape_whitespaces true, found false".to_owned());
    }
    Ok(())
}

/// Checks the pieces as sentencepiece does: each has a text, one is for unknown text, and byte pieces exist for all
/// bytes or for none. Texts are unique among normal, user-defined and unused pieces, and among the others. In addition,
/// scores must be finite.
fn check_pieces(pieces: &[Token], byte_fallback: bool) -> std::result::Result<(), String> {
    let mut ids: HashMap<(bool, &str), usize> = HashMap::with_capacity(pieces.len());
    let mut bytes: HashSet<u8> = HashSet::new();
    let mut unknown = None;
    for (id, piece) in pieces.iter().enumerate() {
        let text = piece.text.as_str();
        if text.is_empty() {
            return Err(format!("expected text for piece {id}, found none"));
        }
        if !piece.score.is_finite() {
            return Err(format!("expected a finite score for piece {id}, found {}", piece.score));
        }
        // Normal, user-defined and unused pieces share one namespace, the other types another, as in sentencepiece.
        let is_made = match piece.kind {
            TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused => true,
            TokenKind::Unknown | TokenKind::Control | TokenKind::Byte => false,
        };
        if let Some(other) = ids.insert((is_made, text), id) {
            let shown = quote(text);
            return Err(format!("expected each piece once, found \"{shown}\" with the IDs {other} and {id}"));
        }
        match piece.kind {
            TokenKind::Unknown => {
                if let Some(other) = unknown.replace(id) {
                    return Err(format!("expected one piece of type 2 (unknown), found the IDs {other} and {id}"));
                }
            }
            TokenKind::Byte => {
                let Some(byte) = byte_of(text).filter(|byte| byte_text(*byte) == text) else {
                    let shown = quote(text);
                    return Err(format!(
                        "expected <0x00> to <0xFF> for piece {id} of type 6 (byte), found \"{shown}\""
                    ));
                };
                bytes.insert(byte);
            }
            TokenKind::Normal | TokenKind::Control | TokenKind::UserDefined | TokenKind::Unused => {}
        }
    }
    if unknown.is_none() {
        return Err("expected one piece of type 2 (unknown), found none".to_owned());
    }
    match (byte_fallback, bytes.len()) {
        (true, 256) | (false, 0) => Ok(()),
        (true, count) => Err(format!("expected 256 byte pieces with byte_fallback true, found {count}")),
        (false, count) => Err(format!("expected no byte pieces with byte_fallback false, found {count}")),
    }
}

/// The parts of a vocabulary whose text is normalized by sentencepiece's own rule.
pub(crate) fn own_rule_parts(
    tokens: Vec<Token>,
    algorithm: Algorithm,
    precompiled_charsmap: Option<CharacterMap>,
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
) -> Parts {
    let mut decoder = Decoder::sentencepiece(add_dummy_prefix);
    if remove_extra_whitespaces {
        decoder.leading_space = LeadingSpace::DropOneOfEach;
    }
    let normalizer = Normalizer::Sentencepiece {
        precompiled_charsmap,
        add_dummy_prefix,
        remove_extra_whitespaces,
        whole_text: false,
    };
    let mut parts = sentencepiece_parts(tokens, false, false, decoder);
    // Pieces that were wanted whole are found by the normalizer.
    parts.added.retain(|added| added.special);
    Parts { algorithm, normalizer: Some(normalizer), ..parts }
}

/// The parts of a vocabulary that merges by score.
pub(crate) fn sentencepiece_parts(
    tokens: Vec<Token>,
    add_space_prefix: bool,
    remove_extra_spaces: bool,
    decoder: Decoder,
) -> Parts {
    let unknown = (0u32..).zip(&tokens).find(|(_, token)| token.kind == TokenKind::Unknown).map(|(id, _)| id);
    let added = added_by_kind(&tokens);
    Parts {
        algorithm: Algorithm::Scores,
        normalizer: Some(space_normalizer(add_space_prefix, remove_extra_spaces)),
        pre_tokenizer: None,
        decoder,
        added,
        special: Special { unknown, ..Special::default() },
        prefix: Vec::new(),
        suffix: Vec::new(),
        chat_template: None,
        tokens,
    }
}

/// Control, unknown and user-defined tokens are found in text before it is merged.
pub(crate) fn added_by_kind(tokens: &[Token]) -> Vec<AddedToken> {
    let found = |kind: TokenKind| match kind {
        TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined => true,
        TokenKind::Normal | TokenKind::Unused | TokenKind::Byte => false,
    };
    let added = (0u32..).zip(tokens).filter(|(_, token)| found(token.kind) && !token.text.is_empty());
    let added = added.map(|(id, token)| AddedToken {
        id,
        content: token.text.clone(),
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: token.kind != TokenKind::UserDefined,
    });
    added.collect()
}

/// Spaces become marks, and a text that is not empty gets one in front.
pub(crate) fn space_normalizer(add_space_prefix: bool, remove_extra_spaces: bool) -> Normalizer {
    let mut normalizers = Vec::new();
    if remove_extra_spaces {
        let replace = |pattern: &str, content: &str| Normalizer::Replace {
            pattern: Pattern::Regex(pattern.into()),
            content: content.into(),
        };
        normalizers.extend([replace(r"\A +| +\z", ""), replace(" {2,}", " ")]);
    }
    if add_space_prefix {
        normalizers.push(Normalizer::Prepend { prepend: "▁".to_owned() });
    }
    normalizers.push(Normalizer::Replace { pattern: Pattern::String(" ".to_owned()), content: "▁".to_owned() });
    Normalizer::Sequence { normalizers }
}

fn read_message(bytes: &[u8]) -> Read<(Vec<Token>, Settings)> {
    let mut message = Message { bytes, offset: 0 };
    let mut tokens = Vec::new();
    let mut settings = Settings {
        has_trainer: false,
        has_normalizer: false,
        model_type: UNIGRAM,
        marks_behind: false,
        byte_fallback: false,
        map: None,
        changes_decoded: false,
        add_dummy_prefix: true,
        remove_extra_whitespaces: true,
        escape_whitespaces: true,
    };
    while let Some((number, field)) = message.field()? {
        match (number, field) {
            (1, Field::Bytes(piece)) => {
                if tokens.len() >= TOKENS_MAX {
                    return message.fail(format!("expected at most {TOKENS_MAX} pieces, found more"));
                }
                tokens.push(read_piece(message.inner(piece))?);
            }
            (2, Field::Bytes(spec)) => {
                settings.has_trainer = true;
                read_trainer(message.inner(spec), &mut settings)?;
            }
            (3, Field::Bytes(spec)) => {
                settings.has_normalizer = true;
                read_normalizer(message.inner(spec), &mut settings)?;
            }
            (5, Field::Bytes(spec)) => settings.changes_decoded = has_map(message.inner(spec))?,
            _ => {}
        }
    }
    if tokens.is_empty() {
        return message.fail("expected pieces, found none");
    }
    Ok((tokens, settings))
}

fn read_piece(mut message: Message<'_>) -> Read<Token> {
    let mut token = Token { text: String::new(), score: 0.0, kind: TokenKind::Normal };
    while let Some((number, field)) = message.field()? {
        match (number, field) {
            (1, Field::Bytes(text)) => match std::str::from_utf8(text) {
                Ok(text) => text.clone_into(&mut token.text),
                Err(_) => return message.fail("expected a piece in UTF-8, found other bytes"),
            },
            (2, Field::Four(score)) => token.score = f32::from_le_bytes(score),
            (3, Field::Number(kind)) => {
                let known = i32::try_from(kind).ok().and_then(TokenKind::from_number);
                let Some(known) = known else {
                    return message.fail(format!("expected a piece type from 1 to 6, found {kind}"));
                };
                token.kind = known;
            }
            _ => {}
        }
    }
    Ok(token)
}

fn read_trainer(mut message: Message<'_>, settings: &mut Settings) -> Read<()> {
    while let Some((number, field)) = message.field()? {
        match (number, field) {
            (3, Field::Number(model_type)) => settings.model_type = model_type,
            (24, Field::Number(flag)) => settings.marks_behind = flag != 0,
            (35, Field::Number(flag)) => settings.byte_fallback = flag != 0,
            _ => {}
        }
    }
    Ok(())
}

fn read_normalizer(mut message: Message<'_>, settings: &mut Settings) -> Read<()> {
    while let Some((number, field)) = message.field()? {
        match (number, field) {
            (2, Field::Bytes([])) => settings.map = None,
            (2, Field::Bytes(map)) => match CharacterMap::read(map) {
                Ok(map) => settings.map = Some(map),
                Err(problem) => return message.fail(problem),
            },
            (3, Field::Number(flag)) => settings.add_dummy_prefix = flag != 0,
            (4, Field::Number(flag)) => settings.remove_extra_whitespaces = flag != 0,
            (5, Field::Number(flag)) => settings.escape_whitespaces = flag != 0,
            _ => {}
        }
    }
    Ok(())
}

/// Whether a normalizer has a character map.
fn has_map(mut message: Message<'_>) -> Read<bool> {
    let mut has_map = false;
    while let Some((number, field)) = message.field()? {
        if let (2, Field::Bytes(map)) = (number, field) {
            has_map = !map.is_empty();
        }
    }
    Ok(has_map)
}

/// Whether runs of spaces become one, for a file of sentencepiece; `None` if the tokenizer is of another kind. T5's
/// `tokenizer.json` says it by cutting words at white space, or by replacing runs of spaces.
pub(crate) fn removes_extra_whitespaces(parts: &Parts) -> Option<bool> {
    if let Some(Normalizer::Sentencepiece { remove_extra_whitespaces, .. }) = &parts.normalizer {
        return Some(*remove_extra_whitespaces);
    }
    let cuts = match &parts.pre_tokenizer {
        Some(PreTokenizer::Sequence { pretokenizers }) => pretokenizers.first() == Some(&PreTokenizer::WhitespaceSplit),
        _ => false,
    };
    let replaces = |normalizer: &Normalizer| match normalizer {
        Normalizer::Replace { pattern: Pattern::Regex(pattern), content } => {
            pattern == " {2,}" && [" ", "\u{2581}"].contains(&content.as_str())
        }
        _ => false,
    };
    let is_replaced = match &parts.normalizer {
        Some(Normalizer::Sequence { normalizers }) => normalizers.iter().any(replaces),
        _ => false,
    };
    (matches!(parts.algorithm, Algorithm::Unigram { .. }) && (cuts || is_replaced)).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "tokenizer.model";

    /// Bytes by the protobuf wire format: a piece "a" of score -1.5 and type 2, then a trainer spec of type 2.
    const SMALL: &[u8] = &[
        0x0a, 0x0a, 0x0a, 0x01, b'a', 0x15, 0x00, 0x00, 0xc0, 0xbf, 0x18, 0x02, 0x12, 0x02, 0x18, 0x02, //
        0x1a, 0x02, 0x20, 0x00,
    ];

    #[test]
    fn reads_the_wire_format() {
        let parts = read(SMALL, FILE, Path::new("m")).unwrap();
        assert_eq!(parts.tokens, [Token { text: "a".into(), score: -1.5, kind: TokenKind::Unknown }]);
        assert_eq!(parts.normalizer, Some(space_normalizer(true, false)));
    }

    /// By the rule of `InitializePieces`.
    #[test]
    fn pieces_are_checked() {
        let piece = |text: &str, kind| Token { text: text.to_owned(), score: 0.0, kind };
        let unknown = || piece("<unk>", TokenKind::Unknown);
        let bytes = |last: u8| -> Vec<Token> {
            (0..=last).map(|byte| piece(&format!("<0x{byte:02X}>"), TokenKind::Byte)).collect()
        };
        let with = |more: Vec<Token>| [vec![unknown()], more].concat();
        let all = with(bytes(255));
        assert_eq!(check_pieces(&all, true), Ok(()));
        assert_eq!(check_pieces(&with(vec![piece("<unk>", TokenKind::Normal)]), false), Ok(()), "made from text");
        let normal = |text: &str| piece(text, TokenKind::Normal);
        for (pieces, byte_fallback, expected) in [
            (vec![normal("a")], false, "expected one piece of type 2 (unknown), found none"),
            (with(vec![piece("?", TokenKind::Unknown)]), false, "found the IDs 0 and 1"),
            (with(vec![normal("")]), false, "expected text for piece 1, found none"),
            (with(vec![normal("a"), normal("a")]), false, "found \"a\" with the IDs 1 and 2"),
            (with(vec![piece("<0xZZ>", TokenKind::Byte)]), true, "for piece 1 of type 6 (byte), found \"<0xZZ>\""),
            (all.clone(), false, "expected no byte pieces with byte_fallback false, found 256"),
            (with(bytes(254)), true, "expected 256 byte pieces with byte_fallback true, found 255"),
        ] {
            let problem = check_pieces(&pieces, byte_fallback).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn truncations_and_lies_name_the_place() {
        for cut in 1..12 {
            let error = read(&SMALL[..cut], FILE, Path::new("m")).unwrap_err().to_string();
            assert!(error.starts_with("m: tokenizer.model, byte "), "{cut}: {error}");
        }
        let lies: &[(&[u8], &str)] = &[
            (&[], "expected pieces, found none"),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], "bytes, found 0"),
            (&[0xff; 11], "at most ten bytes"),
            (&[0x0b], "or 5, found 3"),
            (&[0x0a, 0x02, 0x18, 0x09], "from 1 to 6, found 9"),
            (&[0x0a, 0x03, 0x0a, 0x01, 0xff], "expected a piece in UTF-8"),
            (&[0x0a, 0x03, 0x0a, 0x01, b'a'], "after the pieces, found the end of the file; the file is damaged"),
            (
                &[0x0a, 0x03, 0x0a, 0x01, b'a', 0x12, 0x02, 0x18, 0x02],
                "after the pieces, found the end of the file; the file is damaged",
            ),
            (&[0x0a, 0x03, 0x0a, 0x01, b'a', 0x12, 0x02, 0x18, 0x03], "a word model"),
            (&[0x0a, 0x03, 0x0a, 0x01, b'a', 0x12, 0x02, 0x18, 0x04], "a character model"),
            (&[0x0a, 0x03, 0x0a, 0x01, b'a', 0x12, 0x02, 0x18, 0x05], "or 2 (BPE), found 5"),
            (
                &[0x0a, 0x03, 0x0a, 0x01, b'a', 0x12, 0x03, 0xc0, 0x01, 0x01],
                "treat_whitespace_as_suffix false, found true",
            ),
            (&[0x0a, 0x03, 0x0a, 0x01, b'a', 0x2a, 0x03, 0x12, 0x01, 0x00], "no character map in denormalizer_spec"),
            (&[0x0a, 0x03, 0x0a, 0x01, b'a', 0x12, 0x02, 0x18, 0x02, 0x1a, 0x03, 0x12, 0x01, 0x00], "character map"),
            (
                &[0x0a, 0x03, 0x0a, 0x01, b'a', 0x1a, 0x06, 0x12, 0x04, 0x04, 0x00, 0x00, 0x00],
                "expected 4 bytes of units",
            ),
        ];
        for (bytes, expected) in lies {
            let error = read(bytes, FILE, Path::new("m")).unwrap_err().to_string();
            assert!(error.contains(expected) && error.starts_with("m: tokenizer.model"), "{error}");
        }
    }
}
