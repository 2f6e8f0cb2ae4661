//! What a normalizer or pre-tokenizer looks for in text, and what it does with what it found.
//!
//! ```text
//! "a-b", pattern "-"     isolated            a | - | b
//!                        removed             a | b
//!                        merged with previous  a- | b
//!                        merged with next      a | -b
//!                        contiguous          a | - | b, but runs of matches stay together
//! ```

use fancy_regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Longest pattern that a file may hold, in bytes.
const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// Most steps back that one search may take; real patterns need a handful.
const BACKTRACK_MAX: usize = 1_000_000;
/// Largest compiled pattern, in bytes.
const COMPILED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most instructions of a compiled pattern with look-around.
const INSTRUCTIONS_MAX: usize = 1_000_000;

/// What is searched, as `tokenizer.json` writes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Pattern {
    /// Exactly this text.
    String(String),
    /// A regular expression in Oniguruma's syntax.
    Regex(String),
}

/// What becomes of a match, as `tokenizer.json` names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Behavior {
    /// Matches are dropped.
    Removed,
    /// Each match is a piece of its own.
    Isolated,
    /// A match ends the piece before it.
    MergedWithPrevious,
    /// A match begins the piece after it.
    MergedWithNext,
    /// Adjacent matches are one piece.
    Contiguous,
}

/// A pattern ready to search.
#[derive(Clone, Debug)]
pub(crate) enum Searcher {
    Text(String),
    Regex(Box<Regex>),
}

impl Searcher {
    /// Compiles a pattern; the error is one sentence without a place.
    pub(crate) fn new(pattern: &Pattern) -> Result<Searcher, String> {
        let source = match pattern {
            Pattern::String(text) if text.is_empty() => return Err("a pattern is empty".to_owned()),
            Pattern::String(text) => return Ok(Searcher::Text(text.clone())),
            Pattern::Regex(source) => source,
        };
        if source.len() > PATTERN_BYTES_MAX {
            return Err(format!("a pattern has {} bytes, at most {PATTERN_BYTES_MAX} are read", source.len()));
        }
        // Oniguruma's anchors are those of lines.
        let regex = RegexBuilder::new(source)
            .multi_line(true)
            .oniguruma_mode(true)
            .backtrack_limit(BACKTRACK_MAX)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .max_prog_size(INSTRUCTIONS_MAX)
            .build()
            .map_err(|error| format!("the pattern {} does not compile: {error}", trueup_formats::quote(source)))?;
        Ok(Searcher::Regex(Box::new(regex)))
    }

    /// All matches from left to right, without overlap.
    pub(crate) fn matches(&self, text: &str) -> Result<Vec<Range<usize>>, String> {
        match self {
            Searcher::Text(needle) => Ok(text
                .match_indices(needle.as_str())
                .map(|(start, found)| start..start.saturating_add(found.len()))
                .collect()),
            Searcher::Regex(regex) => regex
                .find_iter(text)
                .map(|found| found.map(|found| found.start()..found.end()))
                .collect::<Result<_, _>>()
                .map_err(|error| format!("the pattern {} gave up on this text: {error}", regex.as_str())),
        }
    }

    /// Cuts `text` into pieces by the rule of `behavior`; with `invert` the text between the matches counts as the match.
    pub(crate) fn split<'t>(&self, text: &'t str, behavior: Behavior, invert: bool) -> Result<Vec<&'t str>, String> {
        let mut parts: Vec<(Range<usize>, bool)> = Vec::new();
        let mut end = 0;
        for found in self.matches(text)? {
            if end < found.start {
                parts.push((end..found.start, invert));
            }
            end = found.end;
            parts.push((found, !invert));
        }
        if end < text.len() {
            parts.push((end..text.len(), invert));
        }
        let pieces = merge_parts(parts, behavior);
        Ok(pieces.into_iter().filter_map(|range| text.get(range)).filter(|piece| !piece.is_empty()).collect())
    }
}

/// Joins matches and the text between them as `behavior` says.
fn merge_parts(parts: Vec<(Range<usize>, bool)>, behavior: Behavior) -> Vec<Range<usize>> {
    let mut pieces: Vec<Range<usize>> = Vec::new();
    let mut previous: Option<bool> = None;
    match behavior {
        Behavior::Isolated => pieces.extend(parts.into_iter().map(|(range, _)| range)),
        Behavior::Removed => pieces.extend(parts.into_iter().filter(|(_, is_match)| !is_match).map(|(range, _)| range)),
        Behavior::MergedWithPrevious => {
            for (range, is_match) in parts {
                match pieces.last_mut() {
                    Some(last) if is_match && previous != Some(true) => last.end = range.end,
                    _ => pieces.push(range),
                }
                previous = Some(is_match);
            }
        }
        Behavior::MergedWithNext => {
            for (range, is_match) in parts.into_iter().rev() {
                match pieces.last_mut() {
                    Some(last) if is_match && previous != Some(true) => last.start = range.start,
                    _ => pieces.push(range),
                }
                previous = Some(is_match);
            }
            pieces.reverse();
        }
        Behavior::Contiguous => {
            for (range, is_match) in parts {
                match pieces.last_mut() {
                    Some(last) if previous == Some(is_match) => last.end = range.end,
                    _ => pieces.push(range),
                }
                previous = Some(is_match);
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected by the documentation of the tokenizers library's split behaviours ("the-final--countdown").
    #[test]
    fn behaviors_cut_as_documented() {
        let text = "the-final--countdown";
        let cases: &[(Behavior, &[&str])] = &[
            (Behavior::Removed, &["the", "final", "countdown"]),
            (Behavior::Isolated, &["the", "-", "final", "-", "-", "countdown"]),
            (Behavior::MergedWithPrevious, &["the-", "final-", "-", "countdown"]),
            (Behavior::MergedWithNext, &["the", "-final", "-", "-countdown"]),
            (Behavior::Contiguous, &["the", "-", "final", "--", "countdown"]),
        ];
        for pattern in [Pattern::String("-".into()), Pattern::Regex("-".into())] {
            let searcher = Searcher::new(&pattern).unwrap();
            for (behavior, expected) in cases {
                assert_eq!(&searcher.split(text, *behavior, false).unwrap(), expected, "{behavior:?} {pattern:?}");
            }
        }
    }

    #[test]
    fn hostile_patterns_are_refused() {
        let deep = format!("{}a{}", "(".repeat(10_000), ")".repeat(10_000));
        let huge = "a".repeat(PATTERN_BYTES_MAX + 1);
        for pattern in ["(", "[z-a]", "a{1000}{1000}{1000}", &deep, &huge] {
            assert!(
                Searcher::new(&Pattern::Regex(pattern.to_owned())).is_err(),
                "{}",
                &pattern[..pattern.len().min(40)]
            );
        }
        assert!(Searcher::new(&Pattern::String(String::new())).is_err());
        // Every way to cut the a's is tried before this one fails.
        let catastrophic = Searcher::new(&Pattern::Regex(r"^(?:(a+)(?=a|b))+\1\1\1c".into())).unwrap();
        assert!(catastrophic.matches(&"a".repeat(200)).is_err());
    }
}
