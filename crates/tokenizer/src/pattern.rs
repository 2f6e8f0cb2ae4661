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
/// Largest compiled part of a pattern, in bytes, tried in this order.
const PART_BYTES: [usize; 4] = [128 << 10, 512 << 10, 2 << 20, 8 << 20];
/// All compiled patterns of a tokenizer together, in bytes.
const COMPILED_BYTES_MAX: usize = 128 << 20;
/// Most steps of a normalizer or of a pre-tokenizer; known ones have up to ten.
pub(crate) const STEPS_MAX: usize = 64;
/// How much longer than its input a text may become, in bytes.
const GROWTH_MAX: usize = 64;
const GROWTH_BYTES: usize = 64 << 10;
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

/// Bytes that the patterns of one tokenizer may still take when they are compiled.
#[derive(Debug)]
pub(crate) struct CompileBudget(usize);

impl Default for CompileBudget {
    fn default() -> CompileBudget {
        CompileBudget(COMPILED_BYTES_MAX)
    }
}

/// The most bytes that a text of `input_bytes` may become on its way through all steps.
pub(crate) fn output_bytes_max(input_bytes: usize) -> usize {
    input_bytes.saturating_mul(GROWTH_MAX).saturating_add(GROWTH_BYTES)
}

/// Refuses a text that has grown beyond `bytes_max`.
pub(crate) fn refuse_growth(bytes: usize, bytes_max: usize) -> Result<(), String> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(format!("expected at most {bytes_max} bytes of output from the normalizer or pre-tokenizer, found {bytes}"))
}

/// Refuses more than [`STEPS_MAX`] steps.
pub(crate) fn refuse_steps(steps: usize) -> Result<(), String> {
    if steps <= STEPS_MAX {
        return Ok(());
    }
    Err(format!("expected at most {STEPS_MAX} steps, found {steps}"))
}

impl Searcher {
    /// Compiles a pattern within what is left of `budget`; the error is one sentence without a place.
    pub(crate) fn new(pattern: &Pattern, budget: &mut CompileBudget) -> Result<Searcher, String> {
        let source = match pattern {
            Pattern::String(text) if text.is_empty() => return Err("expected a pattern, found empty text".to_owned()),
            Pattern::String(text) => return Ok(Searcher::Text(text.clone())),
            Pattern::Regex(source) => source,
        };
        if source.len() > PATTERN_BYTES_MAX {
            return Err(format!("expected a pattern of at most {PATTERN_BYTES_MAX} bytes, found {}", source.len()));
        }
        let translated = translate_words(source);
        let parts = parts_max(&translated);
        let mut problem = String::new();
        for part_bytes in PART_BYTES {
            let Some(left) = budget.0.checked_sub(parts.saturating_mul(part_bytes)) else {
                return Err(format!(
                    "pattern {}: expected all patterns to compile to at most {COMPILED_BYTES_MAX} bytes, found more",
                    trueup_formats::quote(source)
                ));
            };
            match build(&translated, part_bytes) {
                Ok(regex) => {
                    budget.0 = left;
                    return Ok(Searcher::Regex(Box::new(regex)));
                }
                Err(error) => problem = error.to_string(),
            }
        }
        Err(format!(
            "pattern {}: expected a valid regular expression: {}",
            trueup_formats::quote(source),
            trueup_formats::quote(&problem)
        ))
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
                .map_err(|error| {
                    format!(
                        "pattern {}: the search in this text failed: {error}",
                        trueup_formats::quote(regex.as_str())
                    )
                }),
        }
    }

    /// Cuts `text` into pieces by the rule of `behavior`; with `invert` the text between the matches counts as the
    /// match.
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

/// Compiles a pattern whose parts without look-around take at most `part_bytes` each.
fn build(source: &str, part_bytes: usize) -> Result<Regex, Box<fancy_regex::Error>> {
    // Oniguruma's anchors are those of lines.
    RegexBuilder::new(source)
        .multi_line(true)
        .oniguruma_mode(true)
        .backtrack_limit(BACKTRACK_MAX)
        .delegate_size_limit(part_bytes)
        .max_prog_size(INSTRUCTIONS_MAX)
        .build()
        .map_err(Box::new)
}

/// Characters of words in a class, as Oniguruma defines them. `\w` of the engine includes the two joiners.
const CLASS_WORD: &str = r"[\w&&[^\x{200C}\x{200D}]]";
/// Characters of words outside classes, where Oniguruma includes six numbers of Latin-1.
const WORD: &str = r"[[\w&&[^\x{200C}\x{200D}]]\x{B2}\x{B3}\x{B9}\x{BC}\x{BD}\x{BE}]";

/// Replaces `\w`, `\W`, `\b` and `\B` by classes and look-around with the meaning that they have in Oniguruma.
fn translate_words(source: &str) -> String {
    let mut translated = String::with_capacity(source.len());
    let mut class_depth: usize = 0;
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        match c {
            '[' => class_depth = class_depth.saturating_add(1),
            ']' => class_depth = class_depth.saturating_sub(1),
            _ => {}
        }
        if c != '\\' {
            translated.push(c);
            continue;
        }
        match (chars.next(), class_depth == 0) {
            (Some('w'), true) => translated.push_str(WORD),
            (Some('w'), false) => translated.push_str(CLASS_WORD),
            (Some('W'), true) => translated.push_str(&format!("[^{WORD}]")),
            (Some('W'), false) => translated.push_str(&format!("[^{CLASS_WORD}]")),
            (Some('b'), true) => translated.push_str(&format!("(?:(?<={WORD})(?!{WORD})|(?<!{WORD})(?={WORD}))")),
            (Some('B'), true) => translated.push_str(&format!("(?:(?<={WORD})(?={WORD})|(?<!{WORD})(?!{WORD}))")),
            (next, _) => translated.extend(['\\'].into_iter().chain(next)),
        }
    }
    translated
}

/// The most parts that a pattern falls into around look-around, references back and possessive repeats, counted
/// generously.
fn parts_max(source: &str) -> usize {
    let mut parts: usize = 1;
    let mut previous = ' ';
    for c in source.chars() {
        let around = match c {
            '(' => 2,
            '|' => 1,
            '+' if matches!(previous, '+' | '*' | '?' | '}') => 2,
            '0'..='9' | 'k' | 'g' | 'K' | 'G' if previous == '\\' => 2,
            _ => 0,
        };
        parts = parts.saturating_add(around);
        previous = c;
    }
    parts
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
            let searcher = Searcher::new(&pattern, &mut CompileBudget::default()).unwrap();
            for (behavior, expected) in cases {
                assert_eq!(&searcher.split(text, *behavior, false).unwrap(), expected, "{behavior:?} {pattern:?}");
            }
        }
    }

    /// Expected by tokenizers 0.22.2: `Split(Regex(pattern), "isolated").pre_tokenize_str(text)`.
    #[test]
    fn words_are_those_of_oniguruma() {
        let cases: &[(&str, &str, &[&str])] = &[
            (r"\w+", "a½²b\u{200c}c ⅳ₂", &["a½²b", "\u{200c}", "c", " ", "ⅳ", "₂"]),
            (r"\W", "a½²b\u{200c}c ⅳ₂", &["a½²b", "\u{200c}", "c", " ", "ⅳ", "₂"]),
            (r"[\w ]+", "a½²b\u{200c}c ⅳ₂", &["a", "½²", "b", "\u{200c}", "c ⅳ", "₂"]),
            (r"[^\w]", "a½²b\u{200c}c ⅳ₂", &["a", "½", "²", "b", "\u{200c}", "c", " ", "ⅳ", "₂"]),
            (r"\d+\b", "4½ 4\u{200c} 45 4x", &["4½ ", "4", "\u{200c} ", "45", " 4x"]),
            (r"\B.", "a½²b\u{200c}c ⅳ₂", &["a", "½", "²", "b", "\u{200c}c ⅳ₂"]),
            (r"[\b]", "a½²b\u{200c}c ⅳ₂", &["a½²b\u{200c}c ⅳ₂"]),
            (r"\\\b", "a\\\\b \\ b", &["a\\", "\\", "b \\ b"]),
        ];
        for (pattern, text, expected) in cases {
            let searcher = Searcher::new(&Pattern::Regex((*pattern).into()), &mut CompileBudget::default()).unwrap();
            assert_eq!(&searcher.split(text, Behavior::Isolated, false).unwrap(), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn hostile_patterns_are_refused() {
        let deep = format!("{}a{}", "(".repeat(10_000), ")".repeat(10_000));
        let huge = "a".repeat(PATTERN_BYTES_MAX + 1);
        for pattern in ["(", "[z-a]", "a{1000}{1000}{1000}", &deep, &huge] {
            let searcher = Searcher::new(&Pattern::Regex(pattern.to_owned()), &mut CompileBudget::default());
            assert!(searcher.is_err(), "{}", &pattern[..pattern.len().min(40)]);
        }
        assert!(Searcher::new(&Pattern::String(String::new()), &mut CompileBudget::default()).is_err());
        // Every way to cut the a's is tried before this one fails.
        let catastrophic = Pattern::Regex(r"^(?:(a+)(?=a|b))+\1\1\1c".into());
        let catastrophic = Searcher::new(&catastrophic, &mut CompileBudget::default()).unwrap();
        assert!(catastrophic.matches(&"a".repeat(200)).is_err());
    }

    #[test]
    fn patterns_share_one_budget() {
        let mut budget = CompileBudget::default();
        let large = |n: usize| Pattern::Regex(format!(r"\p{{L}}{{60}}(?!{n})"));
        let compiled = (0..1000).take_while(|n| Searcher::new(&large(*n), &mut budget).is_ok()).count();
        assert!((1..64).contains(&compiled), "{compiled}");
        let error = Searcher::new(&large(0), &mut budget).unwrap_err();
        assert!(error.contains("expected all patterns to compile to at most"), "{error}");
        let alternatives = vec!["(?=a)a"; 2000].join("|");
        assert!(Searcher::new(&Pattern::Regex(alternatives), &mut CompileBudget::default()).is_err());
    }
}
