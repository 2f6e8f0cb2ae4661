//! What is done to text before it is cut: `normalizer` of `tokenizer.json`, run as it stands.

use crate::pattern::{CompileBudget, Pattern, Searcher, output_bytes_max, refuse_growth, refuse_steps};
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// One normalizer, in the words of `tokenizer.json`. A kind that is not here is refused by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Normalizer {
    /// One after the other.
    Sequence {
        /// The steps.
        normalizers: Vec<Normalizer>,
    },
    /// Unicode composition.
    #[allow(clippy::upper_case_acronyms)]
    NFC,
    /// Unicode decomposition.
    #[allow(clippy::upper_case_acronyms)]
    NFD,
    /// Unicode compatibility composition.
    #[allow(clippy::upper_case_acronyms)]
    NFKC,
    /// Unicode compatibility decomposition.
    #[allow(clippy::upper_case_acronyms)]
    NFKD,
    /// Every character by itself in lower case.
    Lowercase,
    /// Every match replaced by a text.
    Replace {
        /// What is replaced.
        pattern: Pattern,
        /// What stands there afterwards, literally.
        content: String,
    },
    /// Text put before a part that is not empty.
    Prepend {
        /// The text.
        prepend: String,
    },
    /// White space dropped at the ends.
    Strip {
        /// At the left.
        strip_left: bool,
        /// At the right.
        strip_right: bool,
    },
    /// Combining marks dropped.
    StripAccents,
}

/// A normalizer ready to run.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    Replace(Searcher, String),
    Prepend(String),
    Strip { left: bool, right: bool },
    StripAccents,
}

/// Flattens sequences and compiles patterns. Fails when there are too many of them.
pub(crate) fn compile(normalizer: Option<&Normalizer>, budget: &mut CompileBudget) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut waiting: Vec<&Normalizer> = normalizer.into_iter().collect();
    while let Some(next) = waiting.pop() {
        match next {
            Normalizer::Sequence { normalizers } => waiting.extend(normalizers.iter().rev()),
            Normalizer::NFC => steps.push(Step::Nfc),
            Normalizer::NFD => steps.push(Step::Nfd),
            Normalizer::NFKC => steps.push(Step::Nfkc),
            Normalizer::NFKD => steps.push(Step::Nfkd),
            Normalizer::Lowercase => steps.push(Step::Lowercase),
            Normalizer::Replace { pattern, content } => {
                steps.push(Step::Replace(Searcher::new(pattern, budget)?, content.clone()));
            }
            Normalizer::Prepend { prepend } => steps.push(Step::Prepend(prepend.clone())),
            Normalizer::Strip { strip_left, strip_right } => {
                steps.push(Step::Strip { left: *strip_left, right: *strip_right });
            }
            Normalizer::StripAccents => steps.push(Step::StripAccents),
        }
        refuse_steps(steps.len())?;
    }
    Ok(steps)
}

/// Runs the steps in order. Fails when the text grows beyond what any language needs.
pub(crate) fn normalize(steps: &[Step], text: &str) -> Result<String, String> {
    normalize_within(steps, text, output_bytes_max(text.len()))
}

/// Runs the steps in order; the text never grows beyond `bytes_max`.
pub(crate) fn normalize_within(steps: &[Step], text: &str, bytes_max: usize) -> Result<String, String> {
    let mut text = text.to_owned();
    for step in steps {
        text = match step {
            Step::Nfc => text.nfc().collect(),
            Step::Nfd => text.nfd().collect(),
            Step::Nfkc => text.nfkc().collect(),
            Step::Nfkd => text.nfkd().collect(),
            Step::Lowercase => text.chars().flat_map(char::to_lowercase).collect(),
            Step::Replace(searcher, content) => replace(searcher, &text, content, bytes_max)?,
            Step::Prepend(prefix) if !text.is_empty() => {
                refuse_growth(prefix.len().saturating_add(text.len()), bytes_max)?;
                format!("{prefix}{text}")
            }
            Step::Prepend(_) => text,
            Step::Strip { left, right } => strip(&text, *left, *right).to_owned(),
            Step::StripAccents => text.chars().filter(|c| !is_combining_mark(*c)).collect(),
        };
        refuse_growth(text.len(), bytes_max)?;
    }
    Ok(text)
}

fn replace(searcher: &Searcher, text: &str, content: &str, bytes_max: usize) -> Result<String, String> {
    let mut replaced = String::with_capacity(text.len());
    let mut end = 0;
    for found in searcher.matches(text)? {
        refuse_growth(replaced.len().saturating_add(content.len()), bytes_max)?;
        replaced.push_str(text.get(end..found.start).unwrap_or_default());
        replaced.push_str(content);
        end = found.end;
    }
    replaced.push_str(text.get(end..).unwrap_or_default());
    Ok(replaced)
}

fn strip(text: &str, left: bool, right: bool) -> &str {
    let text = if left { text.trim_start() } else { text };
    if right { text.trim_end() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(json: &str, text: &str) -> String {
        let normalizer: Normalizer = serde_json::from_str(json).unwrap();
        normalize(&compile(Some(&normalizer), &mut CompileBudget::default()).unwrap(), text).unwrap()
    }

    /// Expected values from Unicode's normalization forms and the tokenizers library's documented normalizers.
    #[test]
    fn each_kind() {
        let cases = [
            (r#"{"type":"NFC"}"#, "e\u{301}", "é"),
            (r#"{"type":"NFD"}"#, "é", "e\u{301}"),
            (r#"{"type":"NFKC"}"#, "ﬁ①", "fi1"),
            (r#"{"type":"NFKD"}"#, "é½", "e\u{301}1\u{2044}2"),
            (r#"{"type":"Lowercase"}"#, "ÀΣ", "àσ"),
            (r#"{"type":"Replace","pattern":{"String":" "},"content":"▁"}"#, "a b ", "a▁b▁"),
            (r#"{"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "}"#, "a   b c", "a b c"),
            (r#"{"type":"Prepend","prepend":"▁"}"#, "a", "▁a"),
            (r#"{"type":"Prepend","prepend":"▁"}"#, "", ""),
            (r#"{"type":"Strip","strip_left":true,"strip_right":false}"#, " a ", "a "),
            (r#"{"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"}]}"#, "café", "cafe"),
        ];
        for (json, text, expected) in cases {
            assert_eq!(run(json, text), expected, "{json}");
        }
    }

    #[test]
    fn growth_and_steps_are_bounded() {
        let replace = |pattern: &str, content: &str| Normalizer::Replace {
            pattern: Pattern::String(pattern.to_owned()),
            content: content.to_owned(),
        };
        let long = "x".repeat(2000);
        let regex = Normalizer::Replace { pattern: Pattern::Regex("x".to_owned()), content: long.clone() };
        let bombs = [
            vec![replace("x", &long); 4],
            vec![regex; 4],
            vec![replace("x", "xx"); 60],
            vec![Normalizer::Prepend { prepend: "x".repeat(40_000) }; 2],
            vec![Normalizer::NFC; 65],
        ];
        for normalizers in bombs {
            let shown = format!("{:.80}", format!("{normalizers:?}"));
            let normalizer = Normalizer::Sequence { normalizers };
            let steps = compile(Some(&normalizer), &mut CompileBudget::default());
            let error = steps.and_then(|steps| normalize(&steps, "x")).err();
            assert!(error.is_some_and(|error| error.contains("more than")), "{shown}");
        }
    }
}
