//! Text to ids and back.
//!
//! ```text
//! "<s>Hi there"
//!   added tokens, raw text          1 | "Hi there"
//!   normalizer                      1 | "▁Hi▁there"
//!   added tokens, normalized text   1 | "▁Hi▁there"
//!   pre-tokenizer                   1 | words
//!   merging                         1 | 6324 727
//! ```
//!
//! The order is that of the tokenizers library, so that ids are the same; sentencepiece and GGUF vocabularies run
//! through it with the steps that they stand for.

use crate::added_tokens::{AddedTokens, Part};
use crate::decoder::DecodeStream;
use crate::merge::{Candidate, Symbol, merge};
use crate::normalizer;
use crate::pattern::{CompileBudget, output_bytes_max};
use crate::pre_tokenizer;
use crate::sentencepiece_normalizer::{Ends, MARK};
use crate::unigram::{Unigram, UnigramRule};
use crate::vocabulary::{AddedToken, Algorithm, Token, TokenKind, Vocabulary, byte_of, byte_text};
use crate::word_piece;
use std::collections::{HashMap, HashSet};
use trueup_formats::{Error, Result};

/// A vocabulary ready to encode and decode. Costs a few times the vocabulary's bytes; make it once.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    raw: AddedTokens,
    normalized: AddedTokens,
    normalizer: Vec<normalizer::Step>,
    pre_tokenizer: Vec<pre_tokenizer::Step>,
    /// Tokens that words are made of, by text.
    pieces: HashMap<Box<str>, u32>,
    /// (left, right) to (rank, result), for vocabularies with a list of merges.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Byte tokens, when all 256 exist or some.
    bytes: Vec<Option<u32>>,
    piece_bytes_max: usize,
    /// Cuts words, for vocabularies that are not merged.
    unigram: Option<Unigram>,
}

/// The ids of a text as they come.
struct Ids {
    ids: Vec<u32>,
    /// Tokens that stood for a while before they were merged, where somebody wants to know.
    passed: Option<HashSet<u32>>,
}

impl Ids {
    fn push(&mut self, id: u32) {
        self.ids.push(id);
    }

    fn pass(&mut self, id: u32) {
        if let Some(passed) = &mut self.passed {
            passed.insert(id);
        }
    }
}

impl Extend<u32> for Ids {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        self.ids.extend(ids);
    }
}

impl Tokenizer {
    /// Prepares a vocabulary. Fails when a pattern of its file does not compile.
    pub fn new(vocabulary: Vocabulary) -> Result<Tokenizer> {
        let fail = |place: &str, problem: String| Error::new(vocabulary.path(), problem).at(place);
        let mut budget = CompileBudget::default();
        let mut normalizer =
            normalizer::compile(vocabulary.normalizer(), &mut budget).map_err(|problem| fail("normalizer", problem))?;
        let pre_tokenizer = pre_tokenizer::compile(vocabulary.pre_tokenizer(), &mut budget)
            .map_err(|problem| fail("pre_tokenizer", problem))?;
        let added_bytes = vocabulary.added().iter().map(|added| added.content.len()).fold(0, usize::saturating_add);
        let mut bytes_left = output_bytes_max(added_bytes);
        let mut found_in_normalized = Vec::new();
        let mut found_in_raw = Vec::new();
        for added in vocabulary.added() {
            if added.normalized {
                let content = normalizer::normalize_within(&normalizer, &added.content, Ends::BOTH, bytes_left)
                    .map_err(|problem| fail("normalizer of added tokens", problem))?;
                bytes_left = bytes_left.saturating_sub(content.len());
                found_in_normalized.push((content, added.clone()));
            } else {
                found_in_raw.push((added.content.clone(), added.clone()));
            }
        }
        if let Some(step) = normalizer::sentencepiece(&mut normalizer) {
            let kept: Vec<(String, AddedToken)> = vocabulary.kept_whole().map(kept_token).collect();
            step.kept = AddedTokens::new(kept.iter().cloned());
            // A unigram model has them among its pieces, with a bonus.
            if !matches!(vocabulary.algorithm(), Algorithm::Unigram { .. }) {
                found_in_normalized.extend(kept);
            }
        }
        let pieces = pieces(&vocabulary);
        let bytes = byte_tokens(&vocabulary, &pieces);
        Ok(Tokenizer {
            raw: AddedTokens::new(found_in_raw.into_iter()),
            normalized: AddedTokens::new(found_in_normalized.into_iter()),
            normalizer,
            pre_tokenizer,
            merges: ranks(vocabulary.algorithm()),
            piece_bytes_max: pieces.keys().map(|piece| piece.len()).max().unwrap_or_default(),
            unigram: match vocabulary.algorithm() {
                Algorithm::Unigram { rule } => Some(Unigram::new(vocabulary.tokens(), &pieces, *rule)),
                Algorithm::Scores
                | Algorithm::Merges { .. }
                | Algorithm::WordPiece { .. }
                | Algorithm::DecodeOnly { .. } => None,
            },
            pieces,
            bytes,
            vocabulary,
        })
    }

    /// What it was made from.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The text of an id as the vocabulary writes it.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.vocabulary.token(id).map(|token| token.text.as_str())
    }

    /// Whether generation ends after this id.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.vocabulary.special().end_of_generation.binary_search(&id).is_ok()
    }

    pub(crate) fn added(&self, id: u32) -> Option<&AddedToken> {
        let added = self.vocabulary.added();
        added.get(added.binary_search_by_key(&id, |added| added.id).ok()?)
    }

    /// The ids of `text`; with `add_special` between those that begin and end every text. Special tokens written in the
    /// text are recognised either way.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let prefix = if add_special { self.vocabulary.prefix() } else { &[] };
        let mut ids = Ids { ids: prefix.to_vec(), passed: None };
        self.encode_into(text, &mut ids)?;
        if add_special {
            ids.extend(self.vocabulary.suffix().iter().copied());
        }
        Ok(ids.ids)
    }

    /// All tokens that encoding `text` needs: its ids, and what they are merged of. A vocabulary of these tokens, and
    /// of any others of this one, encodes it to the same: of the pairs that can be merged, the best at each step is
    /// there. Where words are not merged that holds if the tokens of [`Vocabulary::indispensable`] are there too, by
    /// whose scores what is unknown is scored.
    pub fn tokens_of(&self, text: &str) -> Result<HashSet<u32>> {
        let mut ids = Ids { ids: Vec::new(), passed: Some(HashSet::new()) };
        self.encode_into(text, &mut ids)?;
        let mut tokens = ids.passed.unwrap_or_default();
        tokens.extend(ids.ids);
        Ok(tokens)
    }

    fn encode_into(&self, text: &str, ids: &mut Ids) -> Result<()> {
        let fail = |problem| Error::new(self.vocabulary.path(), problem).at("tokenizer");
        let parts = self.raw.split(text);
        if matches!(parts.first(), Some(Part::Token(_))) {
            if normalizer::marks_texts(&self.normalizer) {
                self.encode_word(MARK.encode_utf8(&mut [0; 4]), ids).map_err(fail)?;
            }
            if pre_tokenizer::marks_texts(&self.pre_tokenizer) {
                for word in pre_tokenizer::words(&self.pre_tokenizer, "", true).map_err(fail)? {
                    self.encode_word(&word, ids).map_err(fail)?;
                }
            }
        }
        for part in parts {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(range) => {
                    let ends = Ends { first: range.start == 0, last: range.end == text.len() };
                    self.encode_part(text.get(range).unwrap_or_default(), ends, ids).map_err(fail)?;
                }
            }
        }
        Ok(())
    }

    /// Text between added tokens: normalized, cut, merged.
    fn encode_part(&self, text: &str, ends: Ends, ids: &mut Ids) -> std::result::Result<(), String> {
        let text = normalizer::normalize(&self.normalizer, text, ends)?;
        for part in self.normalized.split(&text) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(range) => {
                    let at_start = ends.first && range.start == 0;
                    for word in
                        pre_tokenizer::words(&self.pre_tokenizer, text.get(range).unwrap_or_default(), at_start)?
                    {
                        self.encode_word(&word, ids)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn encode_word(&self, word: &str, ids: &mut Ids) -> std::result::Result<(), String> {
        match self.vocabulary.algorithm() {
            Algorithm::DecodeOnly { reason } => return Err(reason.clone()),
            Algorithm::Scores => self.encode_by_scores(word, ids),
            Algorithm::Unigram { .. } => return self.encode_by_sums(word, ids),
            Algorithm::WordPiece { chars_max } => return self.encode_by_pieces(word, *chars_max, ids),
            Algorithm::Merges { ignore_merges: true, .. } if self.pieces.contains_key(word) => {
                ids.extend(self.pieces.get(word).copied());
            }
            Algorithm::Merges { byte_fallback, fuse_unknown, .. } => {
                let symbols = self.symbols(word, *byte_fallback, *fuse_unknown);
                symbols.iter().filter_map(|symbol| symbol.id).for_each(|id| ids.pass(id));
                let candidate = |left: &Symbol, right: &Symbol| {
                    let (rank, result) = *self.merges.get(&(left.id?, right.id?))?;
                    Some(Candidate { rank: f64::from(rank), result })
                };
                let merged = merge(symbols, candidate, |id| ids.pass(id));
                ids.extend(merged.into_iter().filter_map(|symbol| symbol.id));
            }
        }
        Ok(())
    }

    /// The characters of a word as tokens; what is unknown becomes bytes, the unknown token, or nothing.
    fn symbols(&self, word: &str, byte_fallback: bool, fuse_unknown: bool) -> Vec<Symbol> {
        let mut symbols: Vec<Symbol> = Vec::new();
        let mut unknown: Option<Symbol> = None;
        for (start, c) in word.char_indices() {
            let range = start..start.saturating_add(c.len_utf8());
            let text = word.get(range.clone()).unwrap_or_default();
            if let Some(id) = self.pieces.get(text) {
                symbols.extend(unknown.take());
                symbols.push(Symbol { id: Some(*id), range });
                continue;
            }
            let bytes: Option<Vec<u32>> = text.bytes().map(|byte| self.byte(byte)).collect();
            if let (true, Some(bytes)) = (byte_fallback, bytes) {
                symbols.extend(unknown.take());
                symbols.extend(
                    (start..)
                        .zip(bytes)
                        .map(|(start, id)| Symbol { id: Some(id), range: start..start.saturating_add(1) }),
                );
                continue;
            }
            let Some(id) = self.vocabulary.special().unknown else { continue };
            match &mut unknown {
                Some(unknown) if fuse_unknown => unknown.range.end = range.end,
                _ => {
                    symbols.extend(unknown.take());
                    unknown = Some(Symbol { id: Some(id), range });
                }
            }
        }
        symbols.extend(unknown);
        symbols
    }

    /// Sentencepiece: characters that are no token may still merge into one; what stays unknown becomes bytes.
    fn encode_by_scores(&self, word: &str, ids: &mut Ids) {
        let symbols = word
            .char_indices()
            .map(|(start, c)| {
                let range = start..start.saturating_add(c.len_utf8());
                Symbol { id: word.get(range.clone()).and_then(|text| self.pieces.get(text)).copied(), range }
            })
            .collect();
        let candidate = |left: &Symbol, right: &Symbol| {
            let range = left.range.start..right.range.end;
            if range.len() > self.piece_bytes_max {
                return None;
            }
            let result = *self.pieces.get(word.get(range)?)?;
            Some(Candidate { rank: -f64::from(self.vocabulary.token(result)?.score), result })
        };
        let merged = merge(symbols, candidate, |id| ids.pass(id));
        self.push_all(word, merged.into_iter().map(|symbol| (symbol.id, symbol.range.len())), ids);
    }

    /// Unigram: the best sum of scores; what is no piece becomes bytes.
    fn encode_by_sums(&self, word: &str, ids: &mut Ids) -> std::result::Result<(), String> {
        let Some(unigram) = &self.unigram else { return Ok(()) };
        let cuts = unigram.cut(word);
        let is_unknown = cuts.iter().any(|cut| cut.id.is_none());
        if is_unknown && self.vocabulary.special().unknown.is_none() && self.bytes.iter().any(Option::is_none) {
            return Err("the text contains a character with no token, and the vocabulary has no `<unk>`".to_owned());
        }
        self.push_all(word, cuts.into_iter().map(|cut| (cut.id, cut.bytes)), ids);
        Ok(())
    }

    /// WordPiece: the longest pieces; a word that cannot be cut is one unknown token.
    fn encode_by_pieces(&self, word: &str, chars_max: usize, ids: &mut Ids) -> std::result::Result<(), String> {
        if let Some(pieces) = word_piece::cut(word, &self.pieces, (chars_max, self.piece_bytes_max)) {
            ids.extend(pieces);
            return Ok(());
        }
        let unknown = self.vocabulary.special().unknown;
        ids.push(
            unknown.ok_or("the text contains an unknown word, and the vocabulary has no token for unknown words")?,
        );
        Ok(())
    }

    /// The ids of a word's pieces, which are given with their bytes; a piece without an id becomes bytes, and several
    /// such in a row one unknown token.
    fn push_all(&self, word: &str, pieces: impl Iterator<Item = (Option<u32>, usize)>, ids: &mut Ids) {
        let (mut rest, mut after_unknown) = (word, false);
        for (id, bytes) in pieces {
            let (text, behind) = rest.split_at_checked(bytes).unwrap_or((rest, ""));
            rest = behind;
            let was_unknown = std::mem::take(&mut after_unknown);
            if let Some(id) = id {
                ids.push(id);
                continue;
            }
            let bytes: Option<Vec<u32>> = text.bytes().map(|byte| self.byte(byte)).collect();
            match (bytes, self.vocabulary.special().unknown) {
                (Some(bytes), _) => ids.extend(bytes),
                (None, Some(unknown)) => {
                    if !was_unknown {
                        ids.push(unknown);
                    }
                    after_unknown = true;
                }
                (None, None) => {}
            }
        }
    }

    fn byte(&self, byte: u8) -> Option<u32> {
        self.bytes.get(usize::from(byte)).copied().flatten()
    }

    /// The bytes of a sequence of ids. They are not UTF-8 when the ids end within a character. Ids outside the
    /// vocabulary have no bytes.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Vec<u8> {
        let mut stream = DecodeStream::new(self, skip_special, true);
        for id in ids {
            stream.push_bytes(*id);
        }
        stream.into_bytes()
    }

    /// Text that grows token by token. `at_start` says that nothing stands before it: a sentencepiece vocabulary then
    /// drops the space of the first word, which the continuation of a prompt keeps.
    pub fn stream(&self, skip_special: bool, at_start: bool) -> DecodeStream<'_> {
        DecodeStream::new(self, skip_special, at_start)
    }
}

/// A piece that is found whole, as a token to look for.
fn kept_token((id, token): (u32, &Token)) -> (String, AddedToken) {
    let (single_word, lstrip, rstrip, normalized, special) = (false, false, false, true, false);
    let content = token.text.clone();
    (token.text.clone(), AddedToken { id, content, single_word, lstrip, rstrip, normalized, special })
}

/// Tokens that words are made of. In a list of merges every token of the file takes part; sentencepiece keeps apart
/// what is found before merging begins, and control, byte and unknown tokens.
fn pieces(vocabulary: &Vocabulary) -> HashMap<Box<str>, u32> {
    let is_unigram = matches!(vocabulary.algorithm(), Algorithm::Unigram { .. });
    let by_scores =
        matches!(vocabulary.algorithm(), Algorithm::Scores | Algorithm::Unigram { rule: UnigramRule::Sentencepiece });
    let takes_part = |token: &Token| match token.kind {
        TokenKind::Normal | TokenKind::UserDefined => true,
        TokenKind::Unused => false,
        TokenKind::Unknown | TokenKind::Control | TokenKind::Byte => !by_scores,
    };
    let mut added: HashSet<u32> = vocabulary.added().iter().map(|added| added.id).collect();
    if is_unigram {
        for (id, _) in vocabulary.kept_whole() {
            added.remove(&id);
        }
    }
    let mut pieces = HashMap::with_capacity(vocabulary.tokens().len());
    for (id, token) in (0u32..).zip(vocabulary.tokens()) {
        let found_before = (by_scores || is_unigram) && added.contains(&id);
        if takes_part(token) && !found_before && !token.text.is_empty() {
            pieces.entry(token.text.clone().into_boxed_str()).or_insert(id);
        }
    }
    pieces
}

/// The tokens of the 256 bytes: those of the kind, or where words are merged those of the text.
fn byte_tokens(vocabulary: &Vocabulary, pieces: &HashMap<Box<str>, u32>) -> Vec<Option<u32>> {
    let by_text = !matches!(vocabulary.algorithm(), Algorithm::Unigram { .. });
    let token = |byte| pieces.get(byte_text(byte).as_str()).filter(|_| by_text).copied();
    let mut tokens: Vec<Option<u32>> = (0..=255u8).map(token).collect();
    for (id, token) in (0u32..).zip(vocabulary.tokens()).filter(|(_, token)| token.kind == TokenKind::Byte) {
        if let Some(place) = byte_of(&token.text).and_then(|byte| tokens.get_mut(usize::from(byte))) {
            place.get_or_insert(id);
        }
    }
    tokens
}

fn ranks(algorithm: &Algorithm) -> HashMap<(u32, u32), (u32, u32)> {
    let mut ranks = HashMap::new();
    if let Algorithm::Merges { merges, .. } = algorithm {
        ranks.reserve(merges.len());
        for (rank, merge) in (0u32..).zip(merges) {
            // A pair that is listed twice keeps its last rank, as in the tokenizers library.
            ranks.insert((merge.left, merge.right), (rank, merge.result));
        }
    }
    ranks
}
