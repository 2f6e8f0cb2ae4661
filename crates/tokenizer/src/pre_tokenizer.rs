//! How text is cut into words before merging: `pre_tokenizer` of `tokenizer.json`, run as it stands.
//!
//! ```text
//! "Hello  world" ── split by pattern ──> "Hello" " " " world" ── bytes to alphabet ──> "Hello" "Ġ" "Ġworld"
//! ```
//!
//! Every kind comes down to three steps: put something before a word, split by a pattern, write bytes as characters.

use crate::bert_characters as bert;
use crate::byte_alphabet;
use crate::pattern::{Behavior, CompileBudget, Pattern, Searcher, output_bytes_max, refuse_growth, refuse_steps};
use serde::{Deserialize, Serialize};

/// The pattern that `ByteLevel` applies unless told otherwise (published GPT-2 encoder).
pub(crate) const GPT2_PATTERN: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Characters of a word by the Unicode standard (UTS 18). The tokenizers library uses this set in `Whitespace` only;
/// `\w` in a pattern is Oniguruma's.
const WORD: &str = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}";

/// One pre-tokenizer, in the words of `tokenizer.json`. A kind that is not here is refused by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum PreTokenizer {
    /// One after the other.
    Sequence {
        /// The steps.
        pretokenizers: Vec<PreTokenizer>,
    },
    /// Cuts by a pattern.
    Split {
        /// What is searched.
        pattern: Pattern,
        /// What becomes of the matches.
        behavior: Behavior,
        /// Whether the text between the matches counts as the match.
        #[serde(default)]
        invert: bool,
    },
    /// Writes bytes in the printable alphabet, after cutting as GPT-2 does.
    ByteLevel {
        /// Whether a word that does not begin with a space gets one.
        #[serde(default = "yes")]
        add_prefix_space: bool,
        /// Whether it cuts by the GPT-2 pattern.
        #[serde(default = "yes")]
        use_regex: bool,
    },
    /// Spaces become a visible mark.
    Metaspace {
        /// The mark.
        #[serde(default = "lower_block")]
        replacement: char,
        /// Which words get a mark in front.
        #[serde(default)]
        prepend_scheme: PrependScheme,
        /// Whether it cuts before each mark.
        #[serde(default = "yes")]
        split: bool,
    },
    /// Cuts numbers out.
    Digits {
        /// Each digit by itself.
        #[serde(default)]
        individual_digits: bool,
    },
    /// Cuts punctuation out.
    Punctuation {
        /// What becomes of it.
        #[serde(default = "isolated")]
        behavior: Behavior,
    },
    /// Words and runs of punctuation, white space dropped.
    Whitespace,
    /// Cut at white space, which is dropped.
    WhitespaceSplit,
    /// Cut at white space, which is dropped, and around each punctuation character.
    BertPreTokenizer,
    /// Cut at one character, which is dropped.
    CharDelimiterSplit {
        /// The character.
        delimiter: char,
    },
}

/// Which words `Metaspace` puts its mark before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrependScheme {
    /// The one at the very start of the text.
    First,
    /// None.
    Never,
    /// Each part between added tokens.
    #[default]
    Always,
    /// A whole text, whatever it begins with, an added token too: as sentencepiece does it.
    Text,
}

fn yes() -> bool {
    true
}

fn lower_block() -> char {
    '▁'
}

fn isolated() -> Behavior {
    Behavior::Isolated
}

/// A pre-tokenizer ready to run.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Split { searcher: Searcher, behavior: Behavior, invert: bool },
    PrefixSpace,
    Mark { mark: char, scheme: PrependScheme },
    Bytes,
}

/// Flattens sequences and compiles patterns. Fails when there are too many of them.
pub(crate) fn compile(pre_tokenizer: Option<&PreTokenizer>, budget: &mut CompileBudget) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut waiting: Vec<&PreTokenizer> = pre_tokenizer.into_iter().collect();
    while let Some(next) = waiting.pop() {
        match next {
            PreTokenizer::Sequence { pretokenizers } => waiting.extend(pretokenizers.iter().rev()),
            PreTokenizer::Split { pattern, behavior, invert } => {
                steps.push(Step::Split {
                    searcher: Searcher::new(pattern, budget)?,
                    behavior: *behavior,
                    invert: *invert,
                });
            }
            PreTokenizer::ByteLevel { add_prefix_space, use_regex } => {
                if *add_prefix_space {
                    steps.push(Step::PrefixSpace);
                }
                if *use_regex {
                    steps.push(split(GPT2_PATTERN, Behavior::Isolated, false, budget)?);
                }
                steps.push(Step::Bytes);
            }
            PreTokenizer::Metaspace { replacement, prepend_scheme, split } => {
                steps.push(Step::Mark { mark: *replacement, scheme: *prepend_scheme });
                if *split {
                    let searcher = Searcher::new(&Pattern::String(replacement.to_string()), budget)?;
                    steps.push(Step::Split { searcher, behavior: Behavior::MergedWithNext, invert: false });
                }
            }
            PreTokenizer::Digits { individual_digits } => {
                let behavior = if *individual_digits { Behavior::Isolated } else { Behavior::Contiguous };
                steps.push(split(r"\p{N}", behavior, false, budget)?);
            }
            PreTokenizer::Punctuation { behavior } => {
                steps.push(split(r"[\p{P}\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e]", *behavior, false, budget)?);
            }
            PreTokenizer::Whitespace => {
                steps.push(split(&format!("[{WORD}]+|[^{WORD}\\s]+"), Behavior::Removed, true, budget)?);
            }
            PreTokenizer::WhitespaceSplit => steps.push(split(r"\s", Behavior::Removed, false, budget)?),
            PreTokenizer::BertPreTokenizer => {
                steps.push(split(r"\s", Behavior::Removed, false, budget)?);
                steps.push(split(&bert::pattern(bert::PUNCTUATION), Behavior::Isolated, false, budget)?);
            }
            PreTokenizer::CharDelimiterSplit { delimiter } => {
                let searcher = Searcher::new(&Pattern::String(delimiter.to_string()), budget)?;
                steps.push(Step::Split { searcher, behavior: Behavior::Removed, invert: false });
            }
        }
        refuse_steps(steps.len())?;
    }
    Ok(steps)
}

fn split(pattern: &str, behavior: Behavior, invert: bool, budget: &mut CompileBudget) -> Result<Step, String> {
    Ok(Step::Split { searcher: Searcher::new(&Pattern::Regex(pattern.to_owned()), budget)?, behavior, invert })
}

/// Cuts `text` into words; `at_start` says that it stands at the very start of the input. Fails when a
/// pattern gives up or the words grow beyond what any language needs.
pub(crate) fn words(steps: &[Step], text: &str, at_start: bool) -> Result<Vec<String>, String> {
    let bytes_max = output_bytes_max(text.len());
    let mut words = vec![text.to_owned()];
    for step in steps {
        words = match step {
            Step::Split { searcher, behavior, invert } => {
                let mut cut = Vec::new();
                for word in &words {
                    cut.extend(searcher.split(word, *behavior, *invert)?.into_iter().map(str::to_owned));
                }
                cut
            }
            Step::PrefixSpace => words.into_iter().map(|word| prefixed(word, ' ')).collect(),
            Step::Mark { mark, scheme } => words
                .into_iter()
                .enumerate()
                .map(|(i, word)| marked(word, *mark, *scheme, at_start && i == 0))
                .collect(),
            Step::Bytes => words.iter().map(|word| byte_alphabet::encode(word)).collect(),
        };
        refuse_growth(words.iter().map(String::len).fold(0, usize::saturating_add), bytes_max)?;
    }
    words.retain(|word| !word.is_empty());
    Ok(words)
}

fn prefixed(word: String, mark: char) -> String {
    if word.starts_with(mark) { word } else { format!("{mark}{word}") }
}

fn marked(word: String, mark: char, scheme: PrependScheme, first: bool) -> String {
    let word = word.replace(' ', mark.encode_utf8(&mut [0; 4]));
    match scheme {
        PrependScheme::Always => prefixed(word, mark),
        PrependScheme::First if first => prefixed(word, mark),
        PrependScheme::Text if first => format!("{mark}{word}"),
        PrependScheme::First | PrependScheme::Text | PrependScheme::Never => word,
    }
}

/// Whether a text that begins with an added token has a mark before that.
pub(crate) fn marks_texts(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Mark { scheme: PrependScheme::Text, .. }))
}

/// Whether any step writes bytes in the printable alphabet.
pub(crate) fn is_byte_level(pre_tokenizer: Option<&PreTokenizer>) -> bool {
    let mut waiting: Vec<&PreTokenizer> = pre_tokenizer.into_iter().collect();
    while let Some(next) = waiting.pop() {
        match next {
            PreTokenizer::ByteLevel { .. } => return true,
            PreTokenizer::Sequence { pretokenizers } => waiting.extend(pretokenizers),
            PreTokenizer::Split { .. }
            | PreTokenizer::Metaspace { .. }
            | PreTokenizer::Digits { .. }
            | PreTokenizer::Punctuation { .. }
            | PreTokenizer::Whitespace
            | PreTokenizer::WhitespaceSplit
            | PreTokenizer::BertPreTokenizer
            | PreTokenizer::CharDelimiterSplit { .. } => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(json: &str, text: &str) -> Vec<String> {
        let pre_tokenizer: PreTokenizer = serde_json::from_str(json).unwrap();
        words(&compile(Some(&pre_tokenizer), &mut CompileBudget::default()).unwrap(), text, true).unwrap()
    }

    /// Expected values from the documentation of the tokenizers library's pre-tokenizers.
    #[test]
    fn each_kind() {
        let cases: &[(&str, &str, &[&str])] = &[
            (r#"{"type":"Whitespace"}"#, "Hey man!", &["Hey", "man", "!"]),
            (r#"{"type":"WhitespaceSplit"}"#, "Hey man!", &["Hey", "man!"]),
            (r#"{"type":"Digits","individual_digits":true}"#, "a123 b", &["a", "1", "2", "3", " b"]),
            (r#"{"type":"Digits","individual_digits":false}"#, "a123 b", &["a", "123", " b"]),
            (r#"{"type":"Punctuation"}"#, "Hey friend!!", &["Hey friend", "!", "!"]),
            (r#"{"type":"CharDelimiterSplit","delimiter":"x"}"#, "axbx", &["a", "b"]),
            (
                r#"{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}"#,
                "Hello my friend",
                &["ĠHello", "Ġmy", "Ġfriend"],
            ),
            (
                r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}"#,
                "Hey my friend",
                &["▁Hey", "▁my", "▁friend"],
            ),
            (r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"never","split":false}"#, "a b", &["a▁b"]),
        ];
        for (json, text, expected) in cases {
            assert_eq!(&run(json, text), expected, "{json}");
        }
    }

    #[test]
    fn long_runs_of_space_are_cut() {
        let text = " ".repeat(200_000);
        assert_eq!(run(r#"{"type":"ByteLevel","add_prefix_space":false}"#, &text).len(), 1);
    }

    #[test]
    fn steps_and_growth_are_bounded() {
        let bytes = PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: false };
        let patterns = (0..20_000).map(|n| PreTokenizer::Split {
            pattern: Pattern::Regex(format!(r"\p{{L}}{{60}}(?!{n})")),
            behavior: Behavior::Isolated,
            invert: false,
        });
        for (pretokenizers, expected) in [
            (vec![bytes; 60], "bytes of output from the normalizer or pre-tokenizer, found"),
            (vec![PreTokenizer::Whitespace; 65], "expected at most 64 steps, found 65"),
            (patterns.collect(), "expected all patterns to compile to at most"),
        ] {
            let sequence = PreTokenizer::Sequence { pretokenizers };
            let steps = compile(Some(&sequence), &mut CompileBudget::default());
            let error = steps.and_then(|steps| words(&steps, "é", true)).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
