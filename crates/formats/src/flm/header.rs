//! What stands before the tensors: version, table of texts, adapters, vocabulary, special tokens.

use crate::error::{DAMAGED, Error, Result};
use crate::reader::Reader;
use crate::source_file::SourceFile;
use std::collections::HashSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Most bytes of one text; chat templates are the longest.
pub(super) const TEXT_BYTES_MAX: i32 = 1 << 20;
/// Most entries of a table; FastLLM's exporter writes about a hundred.
const ENTRIES_MAX: i32 = 1 << 16;
/// Most bytes of one token.
const TOKEN_BYTES_MAX: i32 = 1 << 12;
/// Most ids.
const TOKENS_MAX: i32 = 1 << 21;
/// All versions.
pub(crate) const VERSIONS: RangeInclusive<i32> = 0..=2;

/// What the numbers before texts count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lengths {
    /// Bytes, as FastLLM reads them.
    Bytes,
    /// Characters, as exporters wrote them until February 2024.
    Characters,
}

/// One entry of a vocabulary, as the file has it.
#[derive(Clone, PartialEq, Debug)]
pub struct FlmToken {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its id, which need not be its place in the list.
    pub id: u32,
    /// How early it is merged: a higher score goes first. Absent in files before August 2023.
    pub score: Option<f32>,
}

/// A vocabulary with the keys that say how it is used.
#[derive(Clone, PartialEq, Debug)]
pub struct FlmVocabulary {
    /// In the order of the file.
    pub tokens: Vec<FlmToken>,
    /// Texts that are found whole before anything else; may be there twice, and may be in no entry.
    pub special: Vec<String>,
    /// All keys of the file, `tokenizer_class` and prompts among them.
    pub table: Vec<(String, String)>,
}

impl FlmVocabulary {
    /// The value of a key; an empty one says nothing.
    pub fn value(&self, key: &str) -> Option<&str> {
        value(&self.table, key)
    }

    /// A switch: `True` or `1` in any case; `missing` where the key says nothing.
    pub fn flag(&self, key: &str, missing: bool) -> bool {
        self.value(key).map_or(missing, |text| text.eq_ignore_ascii_case("true") || text == "1")
    }
}

fn value<'t>(table: &'t [(String, String)], key: &str) -> Option<&'t str> {
    let (_, value) = table.iter().find(|(known, _)| known == key)?;
    Some(value.as_str()).filter(|value| !value.is_empty())
}

/// What stands before the tensors.
#[derive(Debug)]
pub(super) struct Header {
    pub version: i32,
    /// What the lengths of texts were read as.
    pub lengths: Lengths,
    /// Keys with their values, as they stand in the file.
    pub table: Vec<(String, String)>,
    /// Names of adapters.
    pub adapters: Vec<String>,
    vocabulary: Vec<FlmToken>,
    special: Vec<String>,
}

/// Reads numbers and texts.
pub(super) struct Texts<'a> {
    pub reader: Reader<'a>,
    lengths: Lengths,
}

impl Header {
    /// Reads all of it; the reader that is returned stands before the number of tensors.
    pub fn read(source: &SourceFile, lengths: Lengths) -> Result<(Header, Texts<'_>)> {
        let mut texts = Texts { reader: Reader::new(source, u64::MAX), lengths };
        let version = texts.reader.i32(&"version")?;
        if !VERSIONS.contains(&version) {
            return Err(Error::new(source.path(), format!("expected version 0, 1 or 2 of FastLLM, found {version}"))
                .at("version at byte 0")
                .help("the file is damaged or not a .flm model"));
        }
        let table = if version >= 1 { texts.table("table of keys")? } else { Vec::new() };
        let adapters = texts.adapters(&table)?;
        let is_on = |key: &str| value(&table, key) == Some("1");
        let vocabulary = texts.vocabulary(is_on("tokenizer_use_score"))?;
        let special = if is_on("tokenizer_has_special_tokens") { texts.special()? } else { Vec::new() };
        Ok((Header { version, lengths, table, adapters, vocabulary, special }, texts))
    }

    /// The value of a key; an empty one says nothing.
    pub fn value(&self, key: &str) -> Option<String> {
        value(&self.table, key).map(str::to_owned)
    }

    /// Puts a key with its value into the table, in the place of an empty one.
    pub fn set(&mut self, key: &str, value: String) {
        self.table.retain(|(known, _)| known != key);
        self.table.push((key.to_owned(), value));
    }

    /// The number of entries in the vocabulary.
    pub fn tokens(&self) -> usize {
        self.vocabulary.len()
    }

    /// The vocabulary, where there is one.
    pub fn into_vocabulary(self) -> Option<FlmVocabulary> {
        let Header { vocabulary: tokens, special, table, .. } = self;
        (!tokens.is_empty()).then_some(FlmVocabulary { tokens, special, table })
    }
}

impl Texts<'_> {
    /// A number from 0 to `max`.
    pub fn number(&mut self, max: i32, what: &dyn Display) -> Result<u64> {
        let number = self.reader.i32(what)?;
        u64::try_from(number).ok().filter(|_| number <= max).ok_or_else(|| {
            self.reader.error(what, format!("expected a number from 0 to {max}, found {number}")).help(DAMAGED)
        })
    }

    /// A text with its length before it.
    pub fn text(&mut self, what: &dyn Display) -> Result<String> {
        let size = self.number(TEXT_BYTES_MAX, &format_args!("length of {what}"))?;
        match self.lengths {
            Lengths::Bytes => self.reader.text(size, what),
            Lengths::Characters => {
                self.reader.count(size, 1, what)?;
                let mut text = String::new();
                for _ in 0..size {
                    text.push(self.character(what)?);
                }
                Ok(text)
            }
        }
    }

    fn character(&mut self, what: &dyn Display) -> Result<char> {
        let first = self.reader.u8(what)?;
        let more: u64 = match first {
            0xc2..=0xdf => 1,
            0xe0..=0xef => 2,
            0xf0..=0xf4 => 3,
            _ => 0,
        };
        let mut bytes = vec![first];
        bytes.extend(self.reader.bytes(more, what)?);
        let found = std::str::from_utf8(&bytes).ok().and_then(|text| text.chars().next());
        found.ok_or_else(|| self.reader.error(what, "expected UTF-8 text, found other bytes"))
    }

    fn table(&mut self, what: &str) -> Result<Vec<(String, String)>> {
        let count = self.number(ENTRIES_MAX, &format_args!("size of the {what}"))?;
        let count = self.reader.count(count, 8, &what)?;
        let (mut table, mut keys) = (Vec::with_capacity(count), HashSet::with_capacity(count));
        for number in 0..count {
            let place = format_args!("key {number} of the {what}");
            let key = self.text(&place)?;
            if !keys.insert(key.clone()) {
                let problem = format!("\"{}\" occurs twice", crate::error::quote(&key));
                return Err(self.reader.error(&place, problem).help("the file is damaged"));
            }
            let value = self.text(&format_args!("value {number} of the {what}"))?;
            table.push((key, value));
        }
        Ok(table)
    }

    /// Adapters have no number of their own before them: a key of the table says how many there are.
    fn adapters(&mut self, table: &[(String, String)]) -> Result<Vec<String>> {
        let Some((_, count)) = table.iter().find(|(key, _)| key == "peft_size") else { return Ok(Vec::new()) };
        let count =
            count.trim().parse::<i32>().ok().filter(|count| (0..=ENTRIES_MAX).contains(count)).ok_or_else(|| {
                let count = crate::error::quote(count);
                self.reader.error(&"peft_size", format!("expected a number from 0 to {ENTRIES_MAX}, found \"{count}\""))
            })?;
        let mut names = Vec::new();
        for number in 0..count {
            names.push(self.text(&format_args!("name of adapter {number}"))?);
            self.table(&format!("keys of adapter {number}"))?;
        }
        Ok(names)
    }

    fn vocabulary(&mut self, has_scores: bool) -> Result<Vec<FlmToken>> {
        let count = self.number(TOKENS_MAX, &"size of the vocabulary")?;
        let count = self.reader.count(count, if has_scores { 12 } else { 8 }, &"vocabulary")?;
        let mut tokens = Vec::with_capacity(count);
        for place in 0..count {
            let size = self.number(TOKEN_BYTES_MAX, &format_args!("length of token {place}"))?;
            let bytes = self.token(size, place)?;
            let id = self.number(TOKENS_MAX, &format_args!("id of token {place}"))?;
            let what = format_args!("score of token {place}");
            let score = if has_scores { Some(f32::from_le_bytes(self.reader.array(&what)?)) } else { None };
            if let Some(score) = score.filter(|score| !score.is_finite()) {
                return Err(self.reader.error(&what, format!("expected a number, found {score}")));
            }
            tokens.push(FlmToken { bytes, id: u32::try_from(id).unwrap_or(u32::MAX), score });
        }
        Ok(tokens)
    }

    /// A number for each byte; the exporter writes 0 to 255, the quantizing program bytes with a sign.
    fn token(&mut self, size: u64, place: usize) -> Result<Vec<u8>> {
        let what = format_args!("token {place}");
        let size = self.reader.count(size, 4, &what)?;
        let (mut bytes, mut wrong) = (Vec::with_capacity(size), None);
        self.reader.pieces(size, 4, &what, &mut |piece| {
            for number in piece.as_chunks::<4>().0 {
                let number = i32::from_le_bytes(*number);
                let byte = u8::try_from(number).or_else(|_| i8::try_from(number).map(i8::cast_unsigned));
                wrong = wrong.or(byte.is_err().then_some(number));
                bytes.push(byte.unwrap_or_default());
            }
        })?;
        match wrong {
            None => Ok(bytes),
            Some(number) => {
                Err(self.reader.error(&what, format!("expected bytes from -128 to 255, found {number}")).help(DAMAGED))
            }
        }
    }

    fn special(&mut self) -> Result<Vec<String>> {
        let count = self.number(TOKENS_MAX, &"number of special tokens")?;
        let count = self.reader.count(count, 4, &"special tokens")?;
        (0..count).map(|number| self.text(&format_args!("special token {number}"))).collect()
    }
}
