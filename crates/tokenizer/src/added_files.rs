//! Added tokens from all files of a tokenizer, compared and merged by the rules of transformers 4.57.
//!
//! ```text
//! tokenizer_config.json has added_tokens_decoder ── its tokens and flags; added_tokens.json is not used
//!                          has none             ── tokens of added_tokens.json; special if a role names them
//! both                                          ── tokens that only a role names (pad_token ...) get the next free IDs
//!
//! merged into the vocabulary of tokenizer.json, tokenizer.model, vocab.json or vocab.txt:
//!   text is known, same ID      the listed flags are used
//!   text is known, other ID     the vocabulary's ID is used, with a note; for tokenizer.model, the listed ID is used
//!   text is listed twice        the smaller ID is used, with a note
//!   text is new, ID is free     the token is added
//!   text is new, ID is taken    an error that names both tokens
//!   ID is beyond the embedding  the token is omitted, with a note
//! ```

use crate::special_names::SpecialNames;
use crate::vocabulary::{AddedToken, Parts, TOKENS_MAX, Token, TokenKind, ids_by_text, padding_token, replace_added};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use trueup_formats::{Error, Result, TokenizerFiles, listed, quote};

/// Names of the files in messages.
const CONFIG: &str = "tokenizer_config.json";
const ADDED: &str = "added_tokens.json";

/// Tokens that `tokenizer_config.json` or `added_tokens.json` lists.
pub(crate) struct Listed {
    /// Tokens by ID.
    pub tokens: Vec<AddedToken>,
    /// The file that lists them.
    file: &'static str,
    /// Texts that the file lists again with a larger ID, and this ID. These entries are not in `tokens`.
    repeated: Vec<(String, u32)>,
}

impl Listed {
    /// No tokens.
    pub(crate) fn none() -> Listed {
        Listed { tokens: Vec::new(), file: ADDED, repeated: Vec::new() }
    }

    /// Reads the lists.
    pub(crate) fn read(files: &TokenizerFiles) -> Listed {
        let decoder =
            files.tokenizer_config.as_ref().and_then(|config| config.get("added_tokens_decoder")?.as_object());
        let (mut tokens, file) = match decoder {
            Some(decoder) => {
                let names = SpecialNames::of(files).texts();
                let tokens = decoder.iter().filter_map(|(id, entry)| decoder_token(id, entry));
                let tokens = tokens
                    .map(|token| AddedToken { special: token.special || names.contains(&token.content), ..token });
                (tokens.collect::<Vec<_>>(), CONFIG)
            }
            None => (plain_tokens(files), ADDED),
        };
        tokens.sort_by_key(|added| added.id);
        // A token that is listed again keeps its smallest ID and gets the flags of its last entry, but remains special,
        // as in the fast tokenizers of transformers.
        let (mut first, mut repeated) = (HashMap::<String, usize>::new(), Vec::new());
        let mut unique: Vec<AddedToken> = Vec::with_capacity(tokens.len());
        for token in tokens {
            match first.get(&token.content).and_then(|place| unique.get_mut(*place)) {
                Some(earlier) => {
                    repeated.push((token.content.clone(), token.id));
                    *earlier = AddedToken { id: earlier.id, special: earlier.special || token.special, ..token };
                }
                None => {
                    first.insert(token.content.clone(), unique.len());
                    unique.push(token);
                }
            }
        }
        Listed { tokens: unique, file, repeated }
    }
}

/// An entry of `added_tokens_decoder`. Absent flags get the defaults of transformers.
fn decoder_token(id: &str, entry: &Value) -> Option<AddedToken> {
    let flag = |key: &str| entry.get(key).and_then(Value::as_bool);
    let special = flag("special").unwrap_or(false);
    Some(AddedToken {
        id: id.parse().ok()?,
        content: entry.get("content")?.as_str()?.to_owned(),
        single_word: flag("single_word").unwrap_or(false),
        lstrip: flag("lstrip").unwrap_or(false),
        rstrip: flag("rstrip").unwrap_or(false),
        normalized: flag("normalized").unwrap_or(!special),
        special,
    })
}

/// The tokens of `added_tokens.json`, which has no flags. Tokens that a role names are special.
fn plain_tokens(files: &TokenizerFiles) -> Vec<AddedToken> {
    let names = SpecialNames::of(files).texts();
    let entries = files.added_tokens.iter().flatten();
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    entries.filter_map(|(content, value)| Some(plain(id(value)?, content, names.contains(content)))).collect()
}

/// A token with default flags.
pub(crate) fn plain(id: u32, content: &str, special: bool) -> AddedToken {
    let (single_word, lstrip, rstrip) = (false, false, false);
    AddedToken { id, content: content.to_owned(), single_word, lstrip, rstrip, normalized: !special, special }
}

/// Facts about the vocabulary that tokens are merged into.
pub(crate) struct Target<'t> {
    /// The file that contains it.
    pub file: &'static str,
    /// Rows of the embedding.
    pub vocab_size: Option<usize>,
    /// The model that errors name.
    pub path: &'t Path,
    /// Tokens of that file that are already omitted because their IDs have no row in the embedding.
    pub beyond: Vec<(u32, String)>,
    /// Whether a bos or eos token gets an ID if no file gives it one. The vocabulary files of some classes do not list
    /// it.
    pub makes_ends: bool,
    /// Whether a token whose text is in the vocabulary keeps the vocabulary's ID, as in the tokenizers library.
    /// Otherwise its listed ID is used.
    pub by_text: bool,
}

/// Merges the listed tokens and the tokens that roles name into a vocabulary.
///
/// # Errors
/// A listed token has the ID of another token or an ID that is too large, or the bos or eos token has no row in the
/// embedding.
pub(crate) fn merge(
    parts: &mut Parts,
    listed_tokens: Listed,
    (files, names): (&TokenizerFiles, &SpecialNames<'_>),
    mut target: Target<'_>,
    notes: &mut Vec<String>,
) -> Result<()> {
    note_unused_file(parts, &listed_tokens, files, notes);
    let file = listed_tokens.file;
    let mut ids: HashMap<String, u32> =
        ids_by_text(&parts.tokens).into_iter().map(|(text, id)| (text.to_owned(), id)).collect();
    let beyond = std::mem::take(&mut target.beyond);
    let mut merging = Merging::new(parts, &mut ids, &target, beyond);
    for token in listed_tokens.tokens {
        merging.put(token, file, notes)?;
    }
    notes.extend(merging.repeated_note(&listed_tokens.repeated, file));
    for token in names.tokens() {
        let role = ["bos_token", "eos_token"].into_iter().find(|role| names.role(role) == Some(token.content.as_str()));
        if let Some(role) = role.filter(|_| merging.lacks(&token.content) && !target.makes_ends) {
            let text = quote(&token.content);
            notes.push(match names.conflict(role) {
                Some(conflict) => format!("{conflict}, but no file gives it an ID: the tokenizer has no {role}"),
                None => format!("{role} \"{text}\" is ignored: no file gives it an ID"),
            });
            continue;
        }
        merging.put_named(token, notes);
    }
    let beyond = merging.finish();
    notes.extend(beyond_note(&beyond, target.vocab_size));
    refuse_beyond_role(&beyond, names, &target)
}

/// A note about tokens whose IDs have no row in the embedding.
pub(crate) fn beyond_note(beyond: &[(u32, String)], vocab_size: Option<usize>) -> Option<String> {
    let tokens: Vec<String> = beyond.iter().map(|(id, text)| format!("\"{}\" ({id})", quote(text))).collect();
    let rows = vocab_size.unwrap_or(TOKENS_MAX);
    (!tokens.is_empty()).then(|| {
        let are = if tokens.len() == 1 { "token is" } else { "tokens are" };
        format!("{} {are} omitted because the embedding has only {rows} rows: {}", tokens.len(), listed(&tokens, ", "))
    })
}

/// Fails if the bos or eos token has no row in the embedding.
fn refuse_beyond_role(beyond: &[(u32, String)], names: &SpecialNames<'_>, target: &Target<'_>) -> Result<()> {
    for role in ["bos_token", "eos_token"] {
        let Some(name) = names.role(role) else { continue };
        if let Some((id, _)) = beyond.iter().find(|(_, text)| text == name) {
            let rows = target.vocab_size.unwrap_or(TOKENS_MAX);
            let last = rows.saturating_sub(1);
            let problem = format!(
                "expected an ID from 0 to {last}, the rows of the embedding, found {id} for \"{}\"",
                quote(name)
            );
            let error = Error::new(target.path, problem).at(format!("{}, {role}", target.file));
            return Err(error.help("pass the tokenizer of this model with --tokenizer"));
        }
    }
    Ok(())
}

/// A vocabulary while tokens are merged into it.
struct Merging<'m> {
    parts: &'m mut Parts,
    /// IDs by text.
    ids: &'m mut HashMap<String, u32>,
    target: &'m Target<'m>,
    /// Omitted tokens.
    beyond: Vec<(u32, String)>,
    /// Texts of the omitted tokens.
    beyond_texts: HashSet<String>,
    /// The merged tokens, in order. A later one with the same ID replaces an earlier one.
    merged: Vec<AddedToken>,
    /// IDs of all added tokens: those of the vocabulary and the merged ones.
    added_ids: HashSet<u32>,
    /// The first ID after the last used token.
    free: usize,
}

impl<'m> Merging<'m> {
    fn new(
        parts: &'m mut Parts,
        ids: &'m mut HashMap<String, u32>,
        target: &'m Target<'m>,
        beyond: Vec<(u32, String)>,
    ) -> Merging<'m> {
        let beyond_texts = beyond.iter().map(|(_, text)| text.clone()).collect();
        let added_ids = parts.added.iter().map(|added| added.id).collect();
        let last = parts.tokens.iter().rposition(|known| known.kind != TokenKind::Unused);
        let free = last.map_or(0, |last| last.saturating_add(1));
        Merging { parts, ids, target, beyond, beyond_texts, merged: Vec::new(), added_ids, free }
    }

    /// Adds the merged tokens to the vocabulary. Returns the omitted tokens.
    fn finish(self) -> Vec<(u32, String)> {
        replace_added(&mut self.parts.added, self.merged);
        self.beyond
    }

    /// Merges a token that `file` lists.
    fn put(&mut self, mut token: AddedToken, file: &str, notes: &mut Vec<String>) -> Result<()> {
        if self.is_beyond(&token.content) {
            return Ok(());
        }
        let shown = quote(&token.content);
        match self.ids.get(&token.content).copied() {
            Some(id) if id == token.id => {
                self.set(token);
                return Ok(());
            }
            Some(id) if self.target.by_text => {
                notes.push(format!(
                    "{file} gives \"{shown}\" id {}, and {} gives it id {id}; {id} is used, as in transformers",
                    token.id, self.target.file
                ));
                token.id = id;
                self.set(token);
                return Ok(());
            }
            Some(_) | None => {}
        }
        let index = usize::try_from(token.id).unwrap_or(usize::MAX);
        if index >= self.rows() && self.target.vocab_size.is_none() {
            let problem = format!("expected an ID below {}, found {index}", self.rows());
            let error = Error::new(self.target.path, problem).at(format!("added token \"{shown}\""));
            return Err(error.help("correct the ID in the file"));
        }
        if index >= self.rows() {
            self.leave_out(token.id, token.content);
            return Ok(());
        }
        if let Some(other) = self.parts.tokens.get(index).filter(|other| other.kind != TokenKind::Unused) {
            let (id, other) = (token.id, quote(&other.text));
            let problem = format!(
                "expected one token with ID {id}, found \"{shown}\" in {file} and \"{other}\" in {}",
                self.target.file
            );
            let error = Error::new(self.target.path, problem).at(format!("added token \"{shown}\""));
            return Err(error.help("use the files of one tokenizer, or pass the right file with --tokenizer"));
        }
        let free = self.parts.tokens.len();
        if self.target.by_text && index > free {
            notes.push(format!(
                "{file} gives \"{shown}\" id {index}, which is used; transformers numbers added tokens without a gap and gives it id {free}"
            ));
        }
        self.fill(index);
        self.ids.insert(token.content.clone(), token.id);
        self.set(token);
        Ok(())
    }

    /// A note about tokens that `file` lists again with an ID that is not used.
    fn repeated_note(&self, repeated: &[(String, u32)], file: &str) -> Option<String> {
        let used = |(content, id): &(String, u32)| {
            let used = self.ids.get(content).filter(|used| *used != id)?;
            Some(format!("\"{}\" ({id}, used: {used})", quote(content)))
        };
        let tokens: Vec<String> = repeated.iter().filter_map(used).collect();
        let tokens = (!tokens.is_empty()).then(|| listed(&tokens, ", "));
        tokens.map(|tokens| format!("{file} gives tokens a second ID, which is not used: {tokens}"))
    }

    /// Merges a token that only a role names. It gets the vocabulary's ID for its text, or the next free ID.
    fn put_named(&mut self, token: AddedToken, notes: &mut Vec<String>) {
        if self.is_beyond(&token.content) {
            return;
        }
        if let Some(id) = self.ids.get(&token.content).copied() {
            if !self.added_ids.contains(&id) {
                self.set(AddedToken { id, ..token });
            }
            return;
        }
        let free = self.free;
        let id = u32::try_from(free).unwrap_or(u32::MAX);
        let shown = quote(&token.content);
        if free >= self.rows() {
            self.leave_out(id, token.content);
            return;
        }
        notes.push(format!("no file gives an id to the special token \"{shown}\"; it gets {id}, as in transformers"));
        self.fill(free);
        self.ids.insert(token.content.clone(), id);
        self.set(AddedToken { id, ..token });
    }

    /// Whether no file gives an ID to a text.
    fn lacks(&self, text: &str) -> bool {
        !self.ids.contains_key(text) && !self.is_beyond(text)
    }

    fn is_beyond(&self, text: &str) -> bool {
        self.beyond_texts.contains(text)
    }

    fn leave_out(&mut self, id: u32, text: String) {
        self.beyond_texts.insert(text.clone());
        self.beyond.push((id, text));
    }

    fn rows(&self) -> usize {
        let unknown = self.parts.tokens.len().saturating_mul(4).saturating_add(1 << 16);
        self.target.vocab_size.unwrap_or(unknown).min(TOKENS_MAX)
    }

    /// Appends padding tokens up to an index.
    fn fill(&mut self, index: usize) {
        while self.parts.tokens.len() <= index {
            self.parts.tokens.push(padding_token(self.parts.tokens.len()));
        }
    }

    /// Adds a token to the merged tokens, and sets the text and kind of its entry in the vocabulary if needed.
    fn set(&mut self, token: AddedToken) {
        let index = usize::try_from(token.id).unwrap_or(usize::MAX);
        if let Some(slot) = self.parts.tokens.get_mut(index) {
            match slot.kind {
                TokenKind::Unused => *slot = added_entry(&token),
                TokenKind::Unknown | TokenKind::Byte => {}
                TokenKind::Normal | TokenKind::Control | TokenKind::UserDefined => slot.kind = kind_of(&token),
            }
            self.free = self.free.max(index.saturating_add(1));
        }
        self.added_ids.insert(token.id);
        self.merged.push(token);
    }
}

fn kind_of(added: &AddedToken) -> TokenKind {
    if added.special { TokenKind::Control } else { TokenKind::UserDefined }
}

/// The vocabulary entry of an added token.
fn added_entry(added: &AddedToken) -> Token {
    Token { text: added.content.clone(), score: 0.0, kind: kind_of(added) }
}

/// Notes the tokens of `added_tokens.json` that are lost or have another ID because the list in `tokenizer_config.json`
/// is used instead.
fn note_unused_file(parts: &Parts, listed_tokens: &Listed, files: &TokenizerFiles, notes: &mut Vec<String>) {
    let Some(added) = files.added_tokens.as_ref().filter(|_| listed_tokens.file == CONFIG) else { return };
    let known: HashMap<&str, u32> = ids_by_text(&parts.tokens)
        .into_iter()
        .chain(listed_tokens.tokens.iter().map(|token| (token.content.as_str(), token.id)))
        .collect();
    let differs = |(text, id): &(&String, &Value)| known.get(text.as_str()).map(|id| u64::from(*id)) != id.as_u64();
    let lost: Vec<String> = added
        .iter()
        .filter(differs)
        .map(|(text, id)| format!("\"{}\" ({})", quote(text), quote(&id.to_string())))
        .collect();
    if !lost.is_empty() {
        notes.push(format!(
            "{ADDED} is not used because {CONFIG} has added_tokens_decoder, as in transformers; it differs in {}",
            listed(&lost, ", ")
        ));
    }
}

/// Notes the listed tokens of the model's directory that the tokenizer passed with `--tokenizer` lacks.
pub(crate) fn note_replaced(parts: &Parts, files: &TokenizerFiles, notes: &mut Vec<String>) {
    let known: HashSet<&str> = parts.tokens.iter().map(|token| token.text.as_str()).collect();
    let lost = Listed::read(files).tokens.into_iter().filter(|token| !known.contains(token.content.as_str()));
    let lost: Vec<String> = lost.map(|token| format!("\"{}\" ({})", quote(&token.content), token.id)).collect();
    if !lost.is_empty() {
        notes.push(format!(
            "the tokenizer given with --tokenizer lacks tokens of the model's directory: {}",
            listed(&lost, ", ")
        ));
    }
}
