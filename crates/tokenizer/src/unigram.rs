//! Unigram models: of all ways to cut a word into pieces the one with the best sum of scores.
//!
//! ```text
//! "abc"    a -2 · b -2 · ab -3 · bc -3 · c: no piece, so unknown: the lowest score - 10
//!
//! end      0    1        2          3
//! best     0    a -2     ab -3      a bc -5        one way from left to right; then back along the best ways
//! ```
//!
//! The steps are the length of the text times that of the longest piece, which is bounded. Of equally good ways the one
//! found first counts: its last piece begins earlier. So which sums are equal matters, and with it how they are rounded
//! ([`UnigramRule`]).
//!
//! The rules: `EncodeOptimized` of sentencepiece (as of 0.2.3; older releases gave -0.1 to pieces wanted whole), and
//! the model `Unigram` of the tokenizers library.

use crate::vocabulary::{Token, TokenKind};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Longest piece of a unigram model, in bytes.
pub(crate) const PIECE_BYTES_MAX: usize = 1024;
/// How much below the lowest score what is unknown has.
const UNKNOWN_PENALTY: f64 = 10.0;
/// What a byte behind its first adds to the score of a piece that the maker of the model wanted whole.
const BYTE_BONUS: f64 = 0.1;
/// Beyond this sum, below or above 0, sentencepiece counts from zero again, so that f32 tells the scores of long texts
/// apart.
const SUM_MAX: f64 = 100_000.0;
/// Where no piece ends, or no way leads.
const NONE: u32 = u32::MAX;

/// Whose arithmetic the sums of scores follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnigramRule {
    /// Sums rounded to f32, counted from zero again where they leave -100,000 to 100,000; what is unknown is scored
    /// below the normal pieces; a piece that the maker of the model wanted whole has, whatever the file says, 0.1 for
    /// each byte behind its first, so that it is almost always taken.
    Sentencepiece,
    /// Sums in f64; what is unknown is scored below all pieces, and scores are those of the file.
    Tokenizers,
}

impl UnigramRule {
    /// Whether what is unknown is scored below a token.
    pub(crate) fn counts(self, token: &Token) -> bool {
        match self {
            UnigramRule::Sentencepiece => token.kind == TokenKind::Normal,
            UnigramRule::Tokenizers => token.kind != TokenKind::Unused,
        }
    }

    /// A sum as it is kept. The f64 sum of two f32, rounded once, is their f32 sum.
    fn stored(self, sum: f64) -> f64 {
        match self {
            UnigramRule::Sentencepiece => f64::from(rounded(sum)),
            UnigramRule::Tokenizers => sum,
        }
    }
}

/// A piece of a word, and its bytes; no id where it is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    pub id: Option<u32>,
    pub bytes: usize,
}

/// The pieces of a model, ready to cut words.
#[derive(Clone, Debug)]
pub(crate) struct Unigram {
    trie: Trie,
    rule: UnigramRule,
    /// Scores by id, as the rule has them.
    scores: Vec<f64>,
    unknown: f64,
}

/// The best way to an end.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    /// Its last piece, [`NONE`] where that is unknown.
    id: u32,
    /// Bytes of that, 0 where no way is known yet.
    bytes: u32,
}

impl Unigram {
    /// Prepares the `pieces` of a vocabulary, given by text and id.
    pub(crate) fn new(tokens: &[Token], pieces: &HashMap<Box<str>, u32>, rule: UnigramRule) -> Unigram {
        let counted = tokens.iter().filter(|token| rule.counts(token)).map(|token| token.score);
        let score = |token: &Token| match (rule, token.kind) {
            (UnigramRule::Sentencepiece, TokenKind::UserDefined) => score_of_whole(token.text.len()),
            _ => f64::from(token.score),
        };
        let mut sorted: Vec<(&[u8], u32)> = pieces.iter().map(|(text, id)| (text.as_bytes(), *id)).collect();
        sorted.sort_unstable();
        Unigram {
            trie: Trie::new(&sorted),
            rule,
            scores: tokens.iter().map(score).collect(),
            unknown: rule.stored(f64::from(counted.fold(f32::MAX, f32::min)) - UNKNOWN_PENALTY),
        }
    }

    /// Cuts a word; the pieces put together are the word.
    pub(crate) fn cut(&self, word: &str) -> Vec<Cut> {
        let nowhere = Best { score: 0.0, id: NONE, bytes: 0 };
        let mut best = vec![nowhere; word.len().saturating_add(1)];
        let mut reached = 0;
        for (start, c) in word.char_indices() {
            let mut here = best.get(start).map_or(0.0, |best| best.score);
            if self.rule == UnigramRule::Sentencepiece && here.abs() > SUM_MAX {
                count_anew(best.get_mut(start..=reached).unwrap_or_default(), here);
                here = 0.0;
            }
            let mut has_character = false;
            for (bytes, id) in self.trie.walk(word.as_bytes().get(start..).unwrap_or_default()) {
                let end = start.saturating_add(bytes);
                let Some(best) = best.get_mut(end) else { break };
                self.better(best, self.score(id) + here, id, bytes);
                reached = reached.max(end);
                has_character |= bytes == c.len_utf8();
            }
            if !has_character && let Some(best) = best.get_mut(start.saturating_add(c.len_utf8())) {
                self.better(best, self.unknown + here, NONE, c.len_utf8());
                reached = reached.max(start.saturating_add(c.len_utf8()));
            }
        }
        let mut cuts = Vec::new();
        let mut end = word.len();
        while let Some(best) = best.get(end).filter(|best| best.bytes > 0) {
            let bytes = usize::try_from(best.bytes).unwrap_or(usize::MAX);
            cuts.push(Cut { id: Some(best.id).filter(|id| *id != NONE), bytes });
            end = end.saturating_sub(bytes);
        }
        cuts.reverse();
        cuts
    }

    /// Takes a way that is better than the one known.
    fn better(&self, best: &mut Best, score: f64, id: u32, bytes: usize) {
        let score = self.rule.stored(score);
        if best.bytes == 0 || score > best.score {
            *best = Best { score, id, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) };
        }
    }

    fn score(&self, id: u32) -> f64 {
        usize::try_from(id).ok().and_then(|id| self.scores.get(id)).copied().unwrap_or_default()
    }
}

/// Takes a sum from all that are known.
fn count_anew(best: &mut [Best], sum: f64) {
    for best in best.iter_mut().filter(|best| best.bytes > 0) {
        best.score = f64::from(rounded(best.score - sum));
    }
}

/// The score of a piece that was wanted whole.
fn score_of_whole(bytes: usize) -> f64 {
    let behind_first = u32::try_from(bytes.saturating_sub(1)).unwrap_or(u32::MAX);
    f64::from(rounded(BYTE_BONUS * f64::from(behind_first)))
}

#[allow(clippy::as_conversions)]
fn rounded(score: f64) -> f32 {
    score as f32
}

/// Pieces by their bytes. The children of a node stand side by side, rising, behind those of the node before it.
#[derive(Clone, Debug)]
struct Trie {
    /// The byte that leads to a node; the root's is not used.
    labels: Vec<u8>,
    /// Where the children of each node begin, and of one node more.
    children: Vec<u32>,
    /// The piece that ends at a node, or [`NONE`].
    ids: Vec<u32>,
}

impl Trie {
    /// `pieces` rise by their bytes, and are all different.
    fn new(pieces: &[(&[u8], u32)]) -> Trie {
        let mut trie = Trie { labels: vec![0], children: Vec::new(), ids: vec![NONE] };
        // Nodes of one depth, each with the pieces that begin with it.
        let mut level: Vec<&[(&[u8], u32)]> = vec![pieces];
        let mut depth = 0;
        while !level.is_empty() {
            let mut deeper = Vec::new();
            for pieces in level {
                trie.children.push(u32::try_from(trie.labels.len()).unwrap_or(NONE));
                let longer = pieces.iter().position(|(text, _)| text.len() > depth).unwrap_or(pieces.len());
                let longer = pieces.get(longer..).unwrap_or_default();
                for group in longer.chunk_by(|first, second| first.0.get(depth) == second.0.get(depth)) {
                    let Some((text, id)) = group.first() else { continue };
                    let ends = text.len() == depth.saturating_add(1);
                    trie.labels.push(text.get(depth).copied().unwrap_or_default());
                    trie.ids.push(if ends { *id } else { NONE });
                    deeper.push(group);
                }
            }
            level = deeper;
            depth = depth.saturating_add(1);
        }
        trie.children.push(u32::try_from(trie.labels.len()).unwrap_or(NONE));
        trie
    }

    /// All pieces that `text` begins with, the shortest first: their bytes and ids.
    fn walk<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = (usize, u32)> + 't {
        let mut node = Some(0);
        let nodes = text.iter().map_while(move |byte| {
            node = self.child(node?, *byte);
            node
        });
        let pieces = (1..).zip(nodes).map(|(bytes, node)| (bytes, self.ids.get(node).copied().unwrap_or(NONE)));
        pieces.filter(|(_, id)| *id != NONE)
    }

    fn child(&self, node: usize, byte: u8) -> Option<usize> {
        let place = |node: usize| self.children.get(node).and_then(|place| usize::try_from(*place).ok());
        let (first, end) = (place(node)?, place(node.checked_add(1)?)?);
        let found = self.labels.get(first..end)?.binary_search(&byte).ok()?;
        first.checked_add(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str, score: f32, kind: TokenKind) -> Token {
        Token { text: text.to_owned(), score, kind }
    }

    fn unigram(tokens: &[Token], rule: UnigramRule) -> Unigram {
        let pieces = (0u32..).zip(tokens).map(|(id, token)| (token.text.clone().into_boxed_str(), id)).collect();
        Unigram::new(tokens, &pieces, rule)
    }

    fn ids(unigram: &Unigram, word: &str) -> Vec<Option<u32>> {
        let cuts = unigram.cut(word);
        assert_eq!(cuts.iter().map(|cut| cut.bytes).sum::<usize>(), word.len(), "{word}");
        cuts.into_iter().map(|cut| cut.id).collect()
    }

    /// By the rule: the best sum; of equal ones the way whose last piece begins earlier.
    #[test]
    fn the_best_way_is_taken() {
        let tokens = [("a", -2.0), ("b", -2.0), ("ab", -3.0), ("bc", -3.0), ("é", -1.0)];
        let tokens = tokens.map(|(text, score)| token(text, score, TokenKind::Normal));
        for rule in [UnigramRule::Sentencepiece, UnigramRule::Tokenizers] {
            let unigram = unigram(&tokens, rule);
            assert_eq!(ids(&unigram, ""), []);
            assert_eq!(ids(&unigram, "abc"), [Some(0), Some(3)]);
            assert_eq!(ids(&unigram, "abxé"), [Some(2), None, Some(4)]);
            assert_eq!(ids(&unigram, "c日"), [None, None]);
        }
    }

    /// By the rule: 0.1 for each byte behind the first, in f32.
    #[test]
    fn pieces_that_are_wanted_whole() {
        for (score, rule, expected) in [
            (0.0999, UnigramRule::Sentencepiece, vec![Some(2)]),
            (0.1001, UnigramRule::Sentencepiece, vec![Some(0), Some(1)]),
            (-4.4, UnigramRule::Tokenizers, vec![Some(0), Some(1)]),
        ] {
            let normal = |text: &str, score| token(text, score, TokenKind::Normal);
            let tokens = [normal("a", 0.0), normal("b", score), token("ab", -9.0, TokenKind::UserDefined)];
            assert_eq!(ids(&unigram(&tokens, rule), "ab"), expected, "{score} {rule:?}");
        }
    }

    /// As sentencepiece 0.2.3 cuts: "ab c" is better by less than f32 can tell beside a sum of -17,000, until that is
    /// beyond -100,000.
    #[test]
    fn sums_of_long_texts() {
        let tokens = [
            ("z", -1000.0),
            ("y", -1.0),
            ("a", -2.0),
            ("c", -2.0),
            ("ab", -3.0 + 1.0 / 1024.0),
            ("bc", -3.0),
            ("yab", -3.995),
        ];
        let tokens = tokens.map(|(text, score)| token(text, score, TokenKind::Normal));
        let (told, not_told) = (vec![Some(4), Some(3)], vec![Some(2), Some(5)]);
        for (count, between, expected) in [
            (16, "", &told),
            (17, "", &not_told),
            (99, "", &not_told),
            (100, "", &not_told),
            (101, "", &told),
            (150, "", &not_told),
            (100, "y", &vec![Some(6), Some(3)]),
        ] {
            let word = format!("{}{between}abc", "z".repeat(count));
            let found = ids(&unigram(&tokens, UnigramRule::Sentencepiece), &word);
            assert_eq!(&found[found.len() - 2..], expected, "{count} {between}");
        }
        let exact = ids(&unigram(&tokens, UnigramRule::Tokenizers), &format!("{}abc", "z".repeat(99)));
        assert_eq!(&exact[99..], told);
    }

    /// The slow readable twin: every way, from the left.
    fn best_sum(tokens: &[Token], word: &str, unknown: f64) -> f64 {
        let Some(c) = word.chars().next() else { return 0.0 };
        let starting = tokens.iter().filter(|token| word.starts_with(&token.text));
        let sum = |bytes: usize, score: f64| score + best_sum(tokens, &word[bytes..], unknown);
        let known = starting.map(|token| sum(token.text.len(), f64::from(token.score)));
        known.fold(sum(c.len_utf8(), unknown), f64::max)
    }

    #[test]
    fn fast_equals_slow() {
        let mut state: u64 = 11;
        for case in 0..200 {
            let mut random = |below: u64| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) % below
            };
            let mut text = |longest: u64| (0..=random(longest)).map(|_| ["a", "b", "é"][random(3) as usize]).collect();
            let mut texts: Vec<String> = (0..6).map(|_| text(4)).collect();
            let word: String = text(9);
            texts.sort();
            texts.dedup();
            let tokens: Vec<Token> =
                texts.iter().zip(1u8..).map(|(text, n)| token(text, -f32::from(n), TokenKind::Normal)).collect();
            let unigram = unigram(&tokens, UnigramRule::Tokenizers);
            let unknown = unigram.unknown;
            let found: f64 = ids(&unigram, &word).iter().map(|id| id.map_or(unknown, |id| unigram.score(id))).sum();
            assert_eq!(found, best_sum(&tokens, &word, unknown), "case {case}: {word} {texts:?}");
        }
    }
}
