//! Finds added tokens in text: leftmost first, of those that begin at one place the longest.
//!
//! ```text
//! "<s>a</s>"   trie: < ── s ── > (1)          parts: token 1 | "a" | token 2
//!                      └─ / ── s ── > (2)
//! ```

use crate::vocabulary::AddedToken;
use std::collections::HashMap;
use std::ops::Range;

/// A trie over the bytes of the tokens.
#[derive(Clone, Default, Debug)]
pub(crate) struct AddedTokens {
    /// (node, byte) to node; node 0 is the root.
    edges: HashMap<(u32, u8), u32>,
    /// Token that ends at a node, by place in `tokens`.
    ends: HashMap<u32, usize>,
    begins: Vec<bool>,
    tokens: Vec<AddedToken>,
}

/// A part of a text: an added token, or text between them by its range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Token(u32),
    Text(Range<usize>),
}

impl AddedTokens {
    /// `tokens` with the text each is found by.
    pub(crate) fn new(tokens: impl Iterator<Item = (String, AddedToken)>) -> AddedTokens {
        let mut trie = AddedTokens { begins: vec![false; 256], ..AddedTokens::default() };
        let mut nodes: u32 = 1;
        for (content, token) in tokens.filter(|(content, _)| !content.is_empty()) {
            let mut node = 0;
            for byte in content.bytes() {
                node = *trie.edges.entry((node, byte)).or_insert_with(|| {
                    let new = nodes;
                    nodes = nodes.saturating_add(1);
                    new
                });
            }
            if let Some(begins) = content.bytes().next().and_then(|byte| trie.begins.get_mut(usize::from(byte))) {
                *begins = true;
            }
            trie.ends.entry(node).or_insert(trie.tokens.len());
            trie.tokens.push(token);
        }
        trie
    }

    /// The longest token that begins at `start`: its end and which it is.
    fn longest(&self, text: &[u8], start: usize) -> Option<(usize, &AddedToken)> {
        let mut node = 0;
        let mut best = None;
        for (offset, byte) in text.get(start..)?.iter().enumerate() {
            let Some(next) = self.edges.get(&(node, *byte)) else { break };
            node = *next;
            if let Some(place) = self.ends.get(&node) {
                best = Some((start.saturating_add(offset).saturating_add(1), self.tokens.get(*place)?));
            }
        }
        best
    }

    /// Bytes of the longest token that `text` begins with.
    pub(crate) fn at_start(&self, text: &str) -> Option<usize> {
        let begins = self.begins.get(usize::from(*text.as_bytes().first()?)) == Some(&true);
        if begins { self.longest(text.as_bytes(), 0).map(|(end, _)| end) } else { None }
    }

    /// Cuts the tokens out of `text`.
    pub(crate) fn split(&self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut done = 0;
        let mut at = 0;
        while !self.tokens.is_empty() && at < text.len() {
            let begins = text.as_bytes().get(at).and_then(|byte| self.begins.get(usize::from(*byte)));
            let found = if begins == Some(&true) { self.longest(text.as_bytes(), at) } else { None };
            let Some((end, token)) = found else {
                at = at.saturating_add(1);
                continue;
            };
            let (before, after) = (text.get(..at).unwrap_or_default(), text.get(end..).unwrap_or_default());
            let (start, next) = (at, end);
            at = end;
            if token.single_word && (before.ends_with(is_word) || after.starts_with(is_word)) {
                continue;
            }
            let start = if token.lstrip { before.trim_end().len().max(done) } else { start };
            let stop = if token.rstrip {
                next.saturating_add(after.len().saturating_sub(after.trim_start().len()))
            } else {
                next
            };
            if done < start {
                parts.push(Part::Text(done..start));
            }
            parts.push(Part::Token(token.id));
            done = stop;
        }
        if done < text.len() {
            parts.push(Part::Text(done..text.len()));
        }
        parts
    }
}

/// A character of a word, as `\w` has it.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || unicode_normalization::char::is_combining_mark(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u32, content: &str) -> AddedToken {
        AddedToken {
            id,
            content: content.into(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        }
    }

    fn trie(tokens: Vec<AddedToken>) -> AddedTokens {
        AddedTokens::new(tokens.into_iter().map(|token| (token.content.clone(), token)))
    }

    #[test]
    fn leftmost_then_longest() {
        let trie = trie(vec![token(1, "<s>"), token(2, "</s>"), token(3, "  "), token(4, "    ")]);
        use Part::{Text, Token};
        assert_eq!(trie.split("<s>a</s>"), [Token(1), Text(3..4), Token(2)]);
        assert_eq!(trie.split("a     b"), [Text(0..1), Token(4), Text(5..7)]);
        assert_eq!(trie.split("<<s>"), [Text(0..1), Token(1)]);
        assert_eq!(trie.split(""), []);
    }

    #[test]
    fn strips_and_words() {
        let mut mask = token(1, "<m>");
        mask.lstrip = true;
        mask.rstrip = true;
        let mut word = token(2, "ab");
        word.single_word = true;
        let trie = trie(vec![mask, word]);
        use Part::{Text, Token};
        assert_eq!(trie.split("x  <m> y"), [Text(0..1), Token(1), Text(7..8)]);
        assert_eq!(trie.split("cab ab"), [Text(0..4), Token(2)]);
    }
}
