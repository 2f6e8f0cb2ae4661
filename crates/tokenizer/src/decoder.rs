//! Tokens back to bytes, all at once or one by one as a model speaks.
//!
//! ```text
//! byte-level      Ġworld  ──alphabet──>  20 77 6f 72 6c 64
//! sentencepiece   ▁world  ──replace───>  " world", and the very first space of a text is dropped
//!                 <0xE2>  ──byte──────>  E2, held back by a stream until the character is whole
//! ```

use crate::byte_alphabet;
use crate::pattern::Pattern;
use crate::pre_tokenizer::PrependScheme;
use crate::tokenizer::Tokenizer;
use crate::vocabulary::{TokenKind, byte_of};
use serde::{Deserialize, Serialize};

/// How the text of a token becomes bytes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Decoder {
    /// Characters of the printable alphabet are bytes.
    pub byte_level: bool,
    /// `<0x0A>` is a byte.
    pub byte_fallback: bool,
    /// Texts that stand for others, such as `▁` for a space.
    pub replacements: Vec<(String, String)>,
    /// What happens to the space that begins a text.
    pub leading_space: LeadingSpace,
    /// How tokens are joined to words, in a vocabulary of words and what continues them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<Continuation>,
}

/// How tokens are joined to words: a space before each but the first and those that continue a word.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Continuation {
    /// What a token begins with that continues a word; empty if there is no such mark.
    pub prefix: String,
    /// Whether the space before punctuation and contractions is dropped.
    pub cleanup: bool,
}

/// What `cleanup` replaces, in this order, as the tokenizers library does.
const CLEANED: [(&str, &str); 11] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

impl Continuation {
    /// The text of a token; `first` says that it is the first one of the text.
    fn text(&self, token: &str, first: bool) -> String {
        let rest = token.strip_prefix(self.prefix.as_str()).filter(|_| !self.prefix.is_empty());
        let text = match rest {
            _ if first => token.to_owned(),
            Some(rest) => rest.to_owned(),
            None => format!(" {token}"),
        };
        if !self.cleanup {
            return text;
        }
        CLEANED.iter().fold(text, |text, (pattern, content)| text.replace(pattern, content))
    }
}

/// What happens to the space that begins a decoded text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeadingSpace {
    /// It stays.
    #[default]
    Keep,
    /// One is dropped.
    DropOne,
    /// One of each token is dropped until there is text.
    DropOneOfEach,
    /// All marks of the first token are dropped.
    DropFirstToken,
}

impl Decoder {
    /// That of a byte-level vocabulary.
    pub(crate) fn byte_level() -> Decoder {
        Decoder { byte_level: true, ..Decoder::default() }
    }

    /// That of a sentencepiece vocabulary.
    pub(crate) fn sentencepiece(drop_leading_space: bool) -> Decoder {
        Decoder {
            byte_level: false,
            byte_fallback: true,
            replacements: vec![("▁".to_owned(), " ".to_owned())],
            leading_space: if drop_leading_space { LeadingSpace::DropOne } else { LeadingSpace::Keep },
            continuation: None,
        }
    }

    /// The text that a token stands for within a text, where it is whole characters.
    pub(crate) fn text_of(&self, text: &str) -> Option<String> {
        String::from_utf8(self.bytes(text, TokenKind::Normal, false)).ok()
    }

    /// Bytes of an ordinary token; `first` says that nothing of the text stands before it.
    fn bytes(&self, text: &str, kind: TokenKind, first: bool) -> Vec<u8> {
        if let Some(continuation) = &self.continuation {
            return continuation.text(text, first).into_bytes();
        }
        if self.byte_fallback
            && kind == TokenKind::Byte
            && let Some(byte) = byte_of(text)
        {
            return vec![byte];
        }
        if self.byte_level {
            return byte_alphabet::decode(text);
        }
        let mut text = text.to_owned();
        for (pattern, content) in &self.replacements {
            let content = match self.leading_space {
                LeadingSpace::DropFirstToken if first => "",
                LeadingSpace::DropFirstToken
                | LeadingSpace::DropOneOfEach
                | LeadingSpace::DropOne
                | LeadingSpace::Keep => content.as_str(),
            };
            text = text.replace(pattern.as_str(), content);
        }
        text.into_bytes()
    }
}

/// `decoder` of `tokenizer.json`. A kind that is not here is refused by name.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type")]
pub(crate) enum DecoderJson {
    Sequence {
        decoders: Vec<DecoderJson>,
    },
    ByteLevel,
    ByteFallback,
    Fuse,
    Replace {
        pattern: Pattern,
        content: String,
    },
    Strip {
        content: char,
        start: usize,
        stop: usize,
    },
    WordPiece {
        prefix: String,
        cleanup: bool,
    },
    Metaspace {
        replacement: char,
        #[serde(default)]
        prepend_scheme: PrependScheme,
    },
}

impl DecoderJson {
    /// The same as facts about single tokens, or why that cannot be said.
    pub(crate) fn facts(&self) -> Result<Decoder, String> {
        let mut facts = Decoder::default();
        let mut waiting = vec![self];
        while let Some(next) = waiting.pop() {
            match next {
                DecoderJson::Sequence { decoders } => waiting.extend(decoders.iter().rev()),
                DecoderJson::ByteLevel => facts.byte_level = true,
                DecoderJson::ByteFallback => facts.byte_fallback = true,
                DecoderJson::Fuse => {}
                DecoderJson::Replace { pattern: Pattern::String(pattern), content } if !pattern.is_empty() => {
                    facts.replacements.push((pattern.clone(), content.clone()));
                }
                DecoderJson::Replace { .. } => {
                    return Err("Replace: expected a fixed string, found a pattern".to_owned());
                }
                DecoderJson::Strip { content: ' ', start: 1, stop: 0 } => facts.leading_space = LeadingSpace::DropOne,
                DecoderJson::Strip { content, start, stop } => {
                    return Err(format!(
                        "Strip: expected one space at the start, found {content:?} {start} times at the start and {stop} \
                         times at the end"
                    ));
                }
                DecoderJson::WordPiece { prefix, cleanup } => {
                    facts.continuation = Some(Continuation { prefix: prefix.clone(), cleanup: *cleanup });
                }
                DecoderJson::Metaspace { replacement, prepend_scheme } => {
                    facts.replacements.push((replacement.to_string(), " ".to_owned()));
                    if *prepend_scheme != PrependScheme::Never {
                        facts.leading_space = LeadingSpace::DropFirstToken;
                    }
                }
            }
        }
        Ok(facts)
    }
}

/// Text as it grows, token by token. Bytes of a character that is not whole yet are held back.
#[derive(Clone, Debug)]
pub struct DecodeStream<'t> {
    tokenizer: &'t Tokenizer,
    skip_special: bool,
    at_start: bool,
    pending: Vec<u8>,
}

impl<'t> DecodeStream<'t> {
    pub(crate) fn new(tokenizer: &'t Tokenizer, skip_special: bool, at_start: bool) -> DecodeStream<'t> {
        DecodeStream { tokenizer, skip_special, at_start, pending: Vec::new() }
    }

    /// Takes one id and returns the text that is complete with it, possibly none. An id outside the vocabulary has no
    /// text.
    pub fn push(&mut self, id: u32) -> String {
        self.push_bytes(id);
        self.take_whole(false)
    }

    /// The rest, with U+FFFD for what never became a character.
    pub fn finish(&mut self) -> String {
        self.take_whole(true)
    }

    /// Appends the bytes of one token to those that wait.
    pub(crate) fn push_bytes(&mut self, id: u32) {
        let vocabulary = self.tokenizer.vocabulary();
        let Some(token) = vocabulary.token(id) else { return };
        let added = self.tokenizer.added(id);
        let special = added.map_or(token.kind == TokenKind::Control, |added| added.special);
        if special && self.skip_special {
            return;
        }
        let decoder = vocabulary.decoder();
        let mut bytes = match added {
            Some(added) if decoder.continuation.is_none() => added.content.clone().into_bytes(),
            Some(_) | None => decoder.bytes(&token.text, token.kind, self.at_start),
        };
        let drops = match decoder.leading_space {
            LeadingSpace::DropOne => true,
            // What an added token stands for holds no marks.
            LeadingSpace::DropOneOfEach => added.is_none(),
            LeadingSpace::Keep | LeadingSpace::DropFirstToken => false,
        };
        if self.at_start && drops && bytes.first() == Some(&b' ') {
            bytes.remove(0);
            self.at_start = decoder.leading_space == LeadingSpace::DropOneOfEach;
        }
        self.at_start = self.at_start && bytes.is_empty() && drops;
        self.pending.append(&mut bytes);
    }

    /// All bytes that wait.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.pending
    }

    fn take_whole(&mut self, everything: bool) -> String {
        let mut text = String::new();
        let mut rest: &[u8] = &self.pending;
        loop {
            match std::str::from_utf8(rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (whole, broken) = rest.split_at(error.valid_up_to());
                    text.push_str(std::str::from_utf8(whole).unwrap_or_default());
                    rest = broken;
                    match error.error_len() {
                        Some(bytes) => rest = broken.get(bytes..).unwrap_or_default(),
                        None if everything => rest = &[],
                        None => break,
                    }
                    text.push(char::REPLACEMENT_CHARACTER);
                }
            }
            if rest.is_empty() {
                break;
            }
        }
        self.pending = rest.to_vec();
        text
    }
}
