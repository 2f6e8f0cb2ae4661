//! When a list of merges says nothing that scores do not say, and when GGUF cannot store it.
//!
//! `tokenizer.json` of a sentencepiece model holds its scores turned into merges. Where both give the same ids for
//! every text, the vocabulary is kept as scores, which other programs read; where they could differ, the list is kept.

use crate::gguf_keys::MERGES;
use crate::vocabulary::{AddedToken, Algorithm, Merge, Parts, Token, TokenKind, byte_of};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use trueup_formats::{Error, Result, quote};

/// Longest piece, in bytes, whose cuts are looked at; a longer one is in no known vocabulary, and the list is kept
/// then.
const PIECE_BYTES_MAX: usize = 256;

/// Whether merging by the scores of `tokens` gives what the list gives. True only if
/// - no piece is longer than [`PIECE_BYTES_MAX`];
/// - all 256 byte tokens exist, so that nothing is unknown;
/// - every character of every piece is a piece, so that no unknown character can merge;
/// - the list holds every way to cut a piece into two pieces, and nothing else;
/// - the list is in the order of the scores, without ties between different pieces;
/// - of two cuts of one piece that can overlap in text the list prefers the left one, as scores do.
pub(crate) fn scores_say_the_same(tokens: &[Token], added: &[AddedToken], merges: &[Merge]) -> bool {
    let added: HashSet<u32> = added.iter().map(|added| added.id).collect();
    let pieces: HashMap<&str, u32> = (0u32..)
        .zip(tokens)
        .filter(|(id, token)| is_piece(token.kind) && !added.contains(id))
        .map(|(id, token)| (token.text.as_str(), id))
        .collect();
    let bytes: HashSet<u8> =
        tokens.iter().filter(|token| token.kind == TokenKind::Byte).filter_map(|token| byte_of(&token.text)).collect();
    let ranks: HashMap<(u32, u32), usize> =
        merges.iter().enumerate().map(|(rank, merge)| ((merge.left, merge.right), rank)).collect();
    pieces.keys().all(|piece| piece.len() <= PIECE_BYTES_MAX)
        && bytes.len() == 256
        && ranks.len() == merges.len()
        && is_in_order(tokens, merges)
        && pieces.keys().flat_map(|piece| piece.chars()).all(|c| pieces.contains_key(&*c.encode_utf8(&mut [0; 4])))
        && has_every_cut(&pieces, &ranks)
}

fn is_piece(kind: TokenKind) -> bool {
    match kind {
        TokenKind::Normal | TokenKind::UserDefined => true,
        TokenKind::Unknown | TokenKind::Control | TokenKind::Unused | TokenKind::Byte => false,
    }
}

/// Whether scores fall along the list, and are equal only for the same piece.
fn is_in_order(tokens: &[Token], merges: &[Merge]) -> bool {
    let score = |merge: &Merge| tokens.get(usize::try_from(merge.result).ok()?).map(|token| token.score);
    merges.windows(2).all(|pair| match pair {
        [first, second] => first.result == second.result || score(first) > score(second),
        _ => true,
    })
}

/// Whether the list is exactly the set of cuts, and prefers the left one where two cuts can overlap.
fn has_every_cut(pieces: &HashMap<&str, u32>, ranks: &HashMap<(u32, u32), usize>) -> bool {
    let mut seen: usize = 0;
    for piece in pieces.keys() {
        let mut cuts: Vec<((u32, u32), usize)> = Vec::new();
        for (at, _) in piece.char_indices().skip(1) {
            let (left, right) = piece.split_at(at);
            if let (Some(left), Some(right)) = (pieces.get(left), pieces.get(right)) {
                let Some(rank) = ranks.get(&(*left, *right)) else { return false };
                cuts.push(((*left, *right), *rank));
            }
        }
        seen = seen.saturating_add(cuts.len());
        // Symbols x y z with x+y and y+z both this piece: scores take x+y.
        let overlap_prefers_right =
            |first: &((u32, u32), usize), second: &((u32, u32), usize)| first.0.1 == second.0.0 && first.1 > second.1;
        if cuts.iter().any(|first| cuts.iter().any(|second| overlap_prefers_right(first, second))) {
            return false;
        }
    }
    seen == ranks.len()
}

/// Refuses merges that GGUF cannot store: a merge is a line there, and its left token ends at the first space after the
/// first character.
pub(crate) fn check(parts: &Parts, path: &Path) -> Result<()> {
    let Algorithm::Merges { merges, .. } = &parts.algorithm else { return Ok(()) };
    let left = |merge: &Merge| parts.tokens.get(usize::try_from(merge.left).ok()?).map(|token| token.text.as_str());
    match merges.iter().filter_map(left).find(|text| text.chars().skip(1).any(|c| c == ' ')) {
        None => Ok(()),
        Some(text) => {
            let problem = format!(
                "expected merges without spaces in their tokens, found \"{}\"; GGUF cannot store this tokenizer",
                quote(text)
            );
            Err(Error::new(path, problem).at(MERGES))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn token(text: &str, kind: TokenKind) -> Token {
        Token { text: text.to_owned(), score: 0.0, kind }
    }

    /// By the rule: scores say what the list says while every cut of every piece stands in the list, and no piece is
    /// longer than is looked at.
    #[test]
    fn long_pieces_keep_their_list() {
        let bytes = (0..=255u8).map(|byte| token(&crate::vocabulary::byte_text(byte), TokenKind::Byte));
        for (length, expected) in [(2, true), (PIECE_BYTES_MAX.saturating_add(1), false), (600_000, false)] {
            let mut tokens: Vec<Token> = bytes.clone().collect();
            tokens.push(token("a", TokenKind::Normal));
            tokens.push(token(&"a".repeat(length), TokenKind::Normal));
            let merges = [Merge { left: 256, right: 256, result: 257 }];
            let merges = if length == 2 { &merges[..] } else { &[] };
            let start = Instant::now();
            assert_eq!(scores_say_the_same(&tokens, &[], merges), expected, "{length}");
            assert!(start.elapsed() < Duration::from_secs(2), "{length}");
        }
    }
}
