//! What is done to text before it is cut: `normalizer` of `tokenizer.json`, run as it stands.

use crate::added_tokens::AddedTokens;
use crate::bert_characters as bert;
use crate::character_map::CharacterMap;
use crate::pattern::{CompileBudget, Pattern, Searcher, output_bytes_max, refuse_growth, refuse_steps};
use crate::sentencepiece_normalizer::{Ends, SentencepieceNormalizer};
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation;

/// Longest cluster of characters, in bytes, that [`Normalizer::Precompiled`] looks for as a whole.
const CLUSTER_BYTES_MAX: usize = 5;

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
    /// What BERT does to text, each part by a switch.
    BertNormalizer {
        /// Control characters are dropped, and white space becomes spaces.
        clean_text: bool,
        /// Ideographs are set apart by spaces.
        handle_chinese_chars: bool,
        /// Combining marks are dropped after decomposition; if absent, like `lowercase`.
        strip_accents: Option<bool>,
        /// Every character by itself in lower case.
        lowercase: bool,
    },
    /// A character map as the tokenizers library applies it: a cluster of characters of up to five bytes becomes what
    /// its shortest beginning in the map stands for; where there is none, and in longer clusters, each character does.
    /// This is not what sentencepiece makes of the same map, which is [`Normalizer::Sentencepiece`]: the half-width
    /// katakana ka with its voiced mark is two characters here and one there.
    Precompiled {
        /// The map.
        precompiled_charsmap: CharacterMap,
    },
    /// All that sentencepiece does, by its own rule: at each place the longest key of the map. Pieces that the maker of
    /// the model wanted whole stay as they are; spaces become marks. `tokenizer.json` has no name for it.
    Sentencepiece {
        /// The map, where the model has one.
        precompiled_charsmap: Option<CharacterMap>,
        /// Whether a text that is not empty gets a mark in front.
        add_dummy_prefix: bool,
        /// Whether runs of spaces become one, and spaces at the ends none.
        remove_extra_whitespaces: bool,
        /// Whether a text is one with the added tokens in it; else each part between them is normalized by itself.
        #[serde(default)]
        whole_text: bool,
    },
}

impl Normalizer {
    /// The character map in it, the first where there are several.
    pub(crate) fn character_map(&self) -> Option<&CharacterMap> {
        let mut waiting = vec![self];
        while let Some(next) = waiting.pop() {
            match next {
                Normalizer::Sequence { normalizers } => waiting.extend(normalizers.iter().rev()),
                Normalizer::Precompiled { precompiled_charsmap: map }
                | Normalizer::Sentencepiece { precompiled_charsmap: Some(map), .. } => return Some(map),
                _ => {}
            }
        }
        None
    }
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
    SetIdeographsApart,
    Precompiled(CharacterMap),
    Sentencepiece(Box<SentencepieceNormalizer>),
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
            Normalizer::BertNormalizer { clean_text, handle_chinese_chars, strip_accents, lowercase } => {
                if *clean_text {
                    steps.push(replaced(&bert::pattern(bert::DROPPED), "", budget)?);
                    steps.push(replaced(bert::SPACE, " ", budget)?);
                }
                if *handle_chinese_chars {
                    steps.push(Step::SetIdeographsApart);
                }
                if strip_accents.unwrap_or(*lowercase) {
                    steps.push(Step::Nfd);
                    steps.push(replaced(&bert::pattern(bert::ACCENTS), "", budget)?);
                }
                if *lowercase {
                    steps.push(Step::Lowercase);
                }
            }
            Normalizer::Precompiled { precompiled_charsmap } => {
                steps.push(Step::Precompiled(precompiled_charsmap.clone()));
            }
            Normalizer::Sentencepiece {
                precompiled_charsmap,
                add_dummy_prefix,
                remove_extra_whitespaces,
                whole_text,
            } => steps.push(Step::Sentencepiece(Box::new(SentencepieceNormalizer {
                map: precompiled_charsmap.clone(),
                add_dummy_prefix: *add_dummy_prefix,
                remove_extra_whitespaces: *remove_extra_whitespaces,
                whole_text: *whole_text,
                kept: AddedTokens::default(),
            }))),
        }
        refuse_steps(steps.len())?;
    }
    Ok(steps)
}

fn replaced(pattern: &str, content: &str, budget: &mut CompileBudget) -> Result<Step, String> {
    Ok(Step::Replace(Searcher::new(&Pattern::Regex(pattern.to_owned()), budget)?, content.to_owned()))
}

/// The step that does all that sentencepiece does, if there is one.
pub(crate) fn sentencepiece(steps: &mut [Step]) -> Option<&mut SentencepieceNormalizer> {
    steps.iter_mut().find_map(|step| if let Step::Sentencepiece(step) = step { Some(&mut **step) } else { None })
}

/// Whether a text that begins with an added token has a mark before that.
pub(crate) fn marks_texts(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Sentencepiece(step) if step.marks_texts()))
}

/// Runs the steps in order over a part of a text that reaches these of its ends. Fails when it grows beyond what any
/// language needs.
pub(crate) fn normalize(steps: &[Step], text: &str, ends: Ends) -> Result<String, String> {
    normalize_within(steps, text, ends, output_bytes_max(text.len()))
}

/// Runs the steps in order; the text never grows beyond `bytes_max`.
pub(crate) fn normalize_within(steps: &[Step], text: &str, ends: Ends, bytes_max: usize) -> Result<String, String> {
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
            Step::SetIdeographsApart => bert::set_ideographs_apart(&text),
            Step::Precompiled(map) => by_clusters(map, &text, bytes_max)?,
            Step::Sentencepiece(step) => step.run(&text, ends, bytes_max)?,
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

fn push_within(text: &mut String, content: &str, bytes_max: usize) -> Result<(), String> {
    refuse_growth(text.len().saturating_add(content.len()), bytes_max)?;
    text.push_str(content);
    Ok(())
}

/// Applies a map as the tokenizers library does.
fn by_clusters(map: &CharacterMap, text: &str, bytes_max: usize) -> Result<String, String> {
    let mut normalized = String::with_capacity(text.len());
    for cluster in text.graphemes(true) {
        let whole = if cluster.len() <= CLUSTER_BYTES_MAX { map.shortest(cluster) } else { None };
        if let Some(content) = whole {
            push_within(&mut normalized, content, bytes_max)?;
            continue;
        }
        for c in cluster.chars() {
            let mut character = [0; 4];
            let character: &str = c.encode_utf8(&mut character);
            push_within(&mut normalized, map.shortest(character).unwrap_or(character), bytes_max)?;
        }
    }
    Ok(normalized)
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
        normalize(&compile(Some(&normalizer), &mut CompileBudget::default()).unwrap(), text, Ends::BOTH).unwrap()
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
            let error = steps.and_then(|steps| normalize(&steps, "x", Ends::BOTH)).err();
            assert!(error.is_some_and(|error| error.starts_with("expected at most ")), "{shown}");
        }
    }
}
