//! A vocabulary: the tokens by id, and everything that says how text becomes them.
//!
//! ```text
//! id      text        score   kind
//! 0       <unk>         0     unknown
//! 1       <s>           0     control         bos, the prefix of every text
//! 3       <0x00>        0     byte
//! 259     ▁a           -0     normal
//! 1024    [PAD1024]     0     unused          rows of the embedding that no token has
//! ```
//!
//! It is validated once, when it is made; afterwards every id it names is inside it and every merge leads to a token.

use crate::decoder::Decoder;
use crate::normalizer::Normalizer;
use crate::pre_tokenizer::{self, PreTokenizer};
use crate::unigram::{PIECE_BYTES_MAX, UnigramRule};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use trueup_formats::{Error, Result, quote};

/// Most tokens that a vocabulary may have.
pub const TOKENS_MAX: usize = 1 << 21;
/// Remedy for a vocabulary that breaks a rule or exceeds a limit.
const DAMAGED: &str = "the vocabulary may be damaged; compare it with the file of the original model";
/// Most bytes that one added token may have.
const ADDED_BYTES_MAX: usize = 4096;

/// One entry of a vocabulary.
#[derive(Clone, PartialEq, Debug)]
pub struct Token {
    /// As the vocabulary writes it: `Ġthe` in a byte-level vocabulary, `▁the` in a sentencepiece one.
    pub text: String,
    /// Sentencepiece's score: the pair whose token has the highest score is merged first, and the way to cut a word
    /// with the highest sum is taken.
    pub score: f32,
    /// What it is for.
    pub kind: TokenKind,
}

/// What a token is for, numbered as GGUF's `tokenizer.ggml.token_type` does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TokenKind {
    /// Text.
    Normal,
    /// Stands for text that nothing else covers.
    Unknown,
    /// Steers the model and has no text of its own.
    Control,
    /// Text that the maker of the model wanted whole.
    UserDefined,
    /// A number without a meaning.
    Unused,
    /// One byte, `<0x0A>`.
    Byte,
}

impl TokenKind {
    /// Every kind with its number in GGUF.
    pub const ALL: [(TokenKind, i32); 6] = [
        (TokenKind::Normal, 1),
        (TokenKind::Unknown, 2),
        (TokenKind::Control, 3),
        (TokenKind::UserDefined, 4),
        (TokenKind::Unused, 5),
        (TokenKind::Byte, 6),
    ];

    /// Its number in GGUF.
    pub fn number(self) -> i32 {
        TokenKind::ALL.iter().find(|(kind, _)| *kind == self).map_or(0, |(_, number)| *number)
    }

    /// The kind of a number in GGUF.
    pub fn from_number(number: i32) -> Option<TokenKind> {
        TokenKind::ALL.iter().find(|(_, known)| *known == number).map(|(kind, _)| *kind)
    }
}

/// How words become tokens.
#[derive(Clone, PartialEq, Debug)]
pub enum Algorithm {
    /// Sentencepiece: of all adjacent pairs that make a token the one with the best score is merged, the leftmost
    /// first.
    Scores,
    /// A list of merges, the first of the list first; the leftmost first.
    Merges {
        /// In order of rank.
        merges: Vec<Merge>,
        /// Whether an unknown character becomes byte tokens.
        byte_fallback: bool,
        /// Whether adjacent unknown characters become one unknown token.
        fuse_unknown: bool,
        /// Whether a word that is a token stays whole, whatever the merges say.
        ignore_merges: bool,
    },
    /// Of all ways to cut a word the one with the best sum of scores.
    Unigram {
        /// Whose arithmetic the sums follow.
        rule: UnigramRule,
    },
    /// Of each word the longest token that begins it, then the longest that continues it, and so on.
    WordPiece {
        /// Characters of the longest word that is cut; longer words are unknown.
        chars_max: usize,
    },
    /// No order of merging is known.
    DecodeOnly {
        /// What is missing and where it could come from.
        reason: String,
    },
}

/// Two tokens that become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merge {
    /// The left one.
    pub left: u32,
    /// The right one.
    pub right: u32,
    /// The token whose text is both of theirs.
    pub result: u32,
}

/// A token that is found in text before anything else happens to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AddedToken {
    /// Its id.
    pub id: u32,
    /// The text it is found by.
    pub content: String,
    /// Only between characters that are no part of a word.
    #[serde(default)]
    pub single_word: bool,
    /// White space to its left belongs to it.
    #[serde(default)]
    pub lstrip: bool,
    /// White space to its right belongs to it.
    #[serde(default)]
    pub rstrip: bool,
    /// Found in normalized text, by its normalized text.
    #[serde(default)]
    pub normalized: bool,
    /// Left out of decoded text when special tokens are.
    #[serde(default)]
    pub special: bool,
}

/// Tokens with a role.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Special {
    /// Begins a text.
    pub bos: Option<u32>,
    /// Ends a text.
    pub eos: Option<u32>,
    /// Stands for unknown characters.
    pub unknown: Option<u32>,
    /// Fills up a batch.
    pub padding: Option<u32>,
    /// Ends one turn of a conversation.
    pub end_of_turn: Option<u32>,
    /// Ends one message before a tool is called.
    pub end_of_message: Option<u32>,
    /// Separates two texts.
    pub separator: Option<u32>,
    /// Stands for text that the model is to guess.
    pub mask: Option<u32>,
    /// All tokens after which generation ends, rising; holds eos, end of turn and end of message too.
    pub end_of_generation: Vec<u32>,
}

impl Special {
    /// Every id it names, with its role.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let named = [
            ("bos", self.bos),
            ("eos", self.eos),
            ("for unknown text", self.unknown),
            ("for padding", self.padding),
            ("at the end of a turn", self.end_of_turn),
            ("at the end of a message", self.end_of_message),
            ("for separation", self.separator),
            ("for a mask", self.mask),
        ];
        let ends = self.end_of_generation.iter().map(|id| ("at the end of generation", *id));
        named.into_iter().filter_map(|(role, id)| id.map(|id| (role, id))).chain(ends)
    }

    /// Gives every role the id that a function has for it.
    pub(crate) fn renumber(&mut self, id_of: impl Fn(u32) -> Option<u32>) {
        let Special { bos, eos, unknown, padding, end_of_turn, end_of_message, separator, mask, end_of_generation } =
            self;
        for role in [bos, eos, unknown, padding, end_of_turn, end_of_message, separator, mask] {
            *role = role.and_then(&id_of);
        }
        *end_of_generation = end_of_generation.iter().filter_map(|id| id_of(*id)).collect();
    }

    /// Puts every token that ends something into the list of those that end generation.
    fn complete(&mut self) {
        self.end_of_generation.extend([self.eos, self.end_of_turn, self.end_of_message].into_iter().flatten());
        self.end_of_generation.sort_unstable();
        self.end_of_generation.dedup();
    }
}

/// What a vocabulary is made of, before it is validated.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Parts {
    pub tokens: Vec<Token>,
    pub algorithm: Algorithm,
    pub normalizer: Option<Normalizer>,
    pub pre_tokenizer: Option<PreTokenizer>,
    pub decoder: Decoder,
    pub added: Vec<AddedToken>,
    pub special: Special,
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
    pub chat_template: Option<String>,
}

/// A validated vocabulary.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    parts: Parts,
    path: PathBuf,
    notes: Vec<String>,
    conflicts: usize,
}

impl Vocabulary {
    /// Validates the parts; `path` is the file that errors name.
    pub(crate) fn new(mut parts: Parts, path: &Path) -> Result<Vocabulary> {
        let error = |place: String, problem: String| Err(Error::new(path, problem).at(place).help(DAMAGED));
        let count = parts.tokens.len();
        if count == 0 || count > TOKENS_MAX {
            return error("vocabulary".into(), format!("expected 1 to {TOKENS_MAX} tokens, found {count}"));
        }
        let infinite = (0u32..).zip(&parts.tokens).find(|(_, token)| !token.score.is_finite());
        if let Some((id, token)) = infinite {
            return error(format!("token {id}"), format!("expected a finite score, found {}", token.score));
        }
        if let Algorithm::Unigram { .. } = parts.algorithm
            && let Some(id) = parts.tokens.iter().position(|token| token.text.len() > PIECE_BYTES_MAX)
        {
            return error(
                format!("token {id}"),
                format!("expected at most {PIECE_BYTES_MAX} bytes of text in a unigram model, found more"),
            );
        }
        parts.special.complete();
        let last = count.saturating_sub(1);
        let inside = |id: u32| usize::try_from(id).is_ok_and(|id| id < count);
        let around = [("before every text", &parts.prefix), ("after every text", &parts.suffix)];
        let around = around.into_iter().flat_map(|(role, ids)| ids.iter().map(move |id| (role, *id)));
        if let Some((role, id)) = parts.special.ids().chain(around).find(|(_, id)| !inside(*id)) {
            let problem = format!("expected a token ID from 0 to {last}, found {id} for the token {role}");
            return error("special tokens".into(), problem);
        }
        for added in &parts.added {
            if !inside(added.id) {
                let problem = format!("expected a token ID from 0 to {last}, found {}", added.id);
                return error(format!("added token {}", quote(&added.content)), problem);
            }
            if added.content.is_empty() || added.content.len() > ADDED_BYTES_MAX {
                let bytes = added.content.len();
                return error(
                    format!("added token {}", added.id),
                    format!("expected 1 to {ADDED_BYTES_MAX} bytes of text, found {bytes}"),
                );
            }
        }
        parts.added.sort_by_key(|added| added.id);
        let vocabulary = Vocabulary { parts, path: path.to_owned(), notes: Vec::new(), conflicts: 0 };
        if let Some((id, token)) = vocabulary.kept_whole().find(|(_, token)| token.text.len() > ADDED_BYTES_MAX) {
            let bytes = token.text.len();
            return error(
                format!("token {id}"),
                format!(
                    "expected at most {ADDED_BYTES_MAX} bytes of text in a token that is matched as a whole, found {bytes}"
                ),
            );
        }
        Ok(vocabulary)
    }

    /// Adds sentences that a person should see.
    pub(crate) fn with_notes(mut self, notes: Vec<String>) -> Vocabulary {
        self.notes.extend(notes);
        self
    }

    /// Adds sentences about files that disagree or are incomplete. They come first.
    pub(crate) fn with_conflicts(mut self, conflicts: Vec<String>) -> Vocabulary {
        self.conflicts = self.conflicts.saturating_add(conflicts.len());
        self.notes.splice(..0, conflicts);
        self
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// All tokens, by id.
    pub fn tokens(&self) -> &[Token] {
        &self.parts.tokens
    }

    /// The token of an id.
    pub fn token(&self, id: u32) -> Option<&Token> {
        self.parts.tokens.get(usize::try_from(id).ok()?)
    }

    /// How words become tokens.
    pub fn algorithm(&self) -> &Algorithm {
        &self.parts.algorithm
    }

    /// What is done to text first.
    pub fn normalizer(&self) -> Option<&Normalizer> {
        self.parts.normalizer.as_ref()
    }

    /// Whether a character map is applied to text first.
    pub fn folds_characters(&self) -> bool {
        self.normalizer().is_some_and(|normalizer| normalizer.character_map().is_some())
    }

    /// How text is cut into words.
    pub fn pre_tokenizer(&self) -> Option<&PreTokenizer> {
        self.parts.pre_tokenizer.as_ref()
    }

    /// How tokens become text.
    pub fn decoder(&self) -> &Decoder {
        &self.parts.decoder
    }

    /// Tokens that are found in text before anything else, by id.
    pub fn added(&self) -> &[AddedToken] {
        &self.parts.added
    }

    /// Tokens with a role.
    pub fn special(&self) -> &Special {
        &self.parts.special
    }

    /// Ids put before every text.
    pub fn prefix(&self) -> &[u32] {
        &self.parts.prefix
    }

    /// Ids put after every text.
    pub fn suffix(&self) -> &[u32] {
        &self.parts.suffix
    }

    /// Whether every text begins with bos.
    pub fn adds_bos(&self) -> bool {
        self.parts.special.bos.is_some_and(|bos| self.parts.prefix.contains(&bos))
    }

    /// The chat template's Jinja source.
    pub fn chat_template(&self) -> Option<&str> {
        self.parts.chat_template.as_deref()
    }

    /// The file it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a person should know about how it was read: one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Those of the notes that name tokenizer files which disagree or are incomplete.
    pub fn conflicts(&self) -> &[String] {
        self.notes.get(..self.conflicts).unwrap_or_default()
    }

    /// Pieces that sentencepiece finds in raw text, by its own rule: those that the maker of the model wanted whole,
    /// but for what is an added token by the same text.
    pub(crate) fn kept_whole(&self) -> impl Iterator<Item = (u32, &Token)> {
        let added: HashSet<(u32, &str)> = self.added().iter().map(|added| (added.id, added.content.as_str())).collect();
        let pieces = (0u32..).zip(self.tokens()).filter(|(_, token)| token.kind == TokenKind::UserDefined);
        pieces.filter(move |(id, token)| !added.contains(&(*id, token.text.as_str())))
    }

    /// Whether words are written in the printable alphabet of bytes.
    pub fn is_byte_level(&self) -> bool {
        self.parts.decoder.byte_level || pre_tokenizer::is_byte_level(self.pre_tokenizer())
    }
}

/// The first id of each text.
pub(crate) fn ids_by_text(tokens: &[Token]) -> HashMap<&str, u32> {
    let mut ids = HashMap::with_capacity(tokens.len());
    for (id, token) in (0u32..).zip(tokens) {
        ids.entry(token.text.as_str()).or_insert(id);
    }
    ids
}

/// Puts `tokens` into a list of added tokens, each in place of the tokens with its ID, and sorts the list by ID. The
/// last of several `tokens` with one ID counts.
pub(crate) fn replace_added(added: &mut Vec<AddedToken>, tokens: impl IntoIterator<Item = AddedToken>) {
    let tokens: HashMap<u32, AddedToken> = tokens.into_iter().map(|token| (token.id, token)).collect();
    added.retain(|known| !tokens.contains_key(&known.id));
    added.extend(tokens.into_values());
    added.sort_by_key(|added| added.id);
}

/// Finds the tokens of merges written as pairs of text. The error names the place inside the list.
pub(crate) fn resolve_merges<'m>(
    tokens: &[Token],
    pairs: impl Iterator<Item = (&'m str, &'m str)>,
) -> std::result::Result<Vec<Merge>, (usize, String)> {
    let ids = ids_by_text(tokens);
    let mut text = String::new();
    let mut merges = Vec::new();
    for (place, (left, right)) in pairs.enumerate() {
        if left.is_empty() || right.is_empty() {
            return Err((place, "expected two tokens, found an empty one".to_owned()));
        }
        text.clear();
        text.push_str(left);
        text.push_str(right);
        let find = |part: &str| {
            let missing =
                || format!("expected tokens of the vocabulary, found \"{}\", which is not in it", quote(part));
            ids.get(part).copied().ok_or_else(|| (place, missing()))
        };
        merges.push(Merge { left: find(left)?, right: find(right)?, result: find(&text)? });
    }
    Ok(merges)
}

/// The byte that a token such as `<0x0A>` stands for.
pub(crate) fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

/// The token text of a byte, `<0x0A>`.
pub(crate) fn byte_text(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// How many ids the tokens of a file may reach: as many as the model has, and where that is not known a small multiple
/// of the number of tokens, so that one number in a file does not cost memory.
pub(crate) fn ids_max(vocab_size: Option<usize>, tokens: usize) -> usize {
    vocab_size.unwrap_or_else(|| tokens.saturating_mul(4).saturating_add(1 << 16)).min(TOKENS_MAX)
}

/// Fills the vocabulary up to the model's size with `[PADn]`; a model with fewer rows than tokens is an error.
pub(crate) fn pad(tokens: &mut Vec<Token>, vocab_size: Option<usize>, path: &Path) -> Result<()> {
    let Some(vocab_size) = vocab_size else { return Ok(()) };
    let problem = if vocab_size > TOKENS_MAX {
        format!("expected a model with at most {TOKENS_MAX} tokens, found {vocab_size}")
    } else if vocab_size < tokens.len() {
        format!("expected at most {vocab_size} tokens, the rows of the embedding, found {}", tokens.len())
    } else {
        tokens.extend((tokens.len()..vocab_size).map(padding_token));
        return Ok(());
    };
    Err(Error::new(path, problem).at("vocabulary").help("pass the tokenizer of this model with --tokenizer"))
}

/// What stands at an id that has no token.
pub(crate) fn padding_token(id: usize) -> Token {
    Token { text: format!("[PAD{id}]"), score: 0.0, kind: TokenKind::Unused }
}
