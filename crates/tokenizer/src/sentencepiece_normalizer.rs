//! What sentencepiece does to a text before it looks for pieces, as one step.
//!
//! ```text
//! "  Ｈi  ﬁn "      the longest of: a piece that stays as it is, a key of the map, a character
//! "Hi fin"          runs of spaces are one, and none are at the ends         (remove_extra_whitespaces)
//! "▁Hi▁fin"         a mark before it (add_dummy_prefix), and for every space
//! ```
//!
//! All of it is one way from left to right, for a space may come out of the map and end a run.

use crate::added_tokens::AddedTokens;
use crate::character_map::CharacterMap;
use crate::pattern::refuse_growth;

/// What stands for a space.
pub(crate) const MARK: char = '▁';

/// Which ends of a text a part of it reaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub first: bool,
    pub last: bool,
}

impl Ends {
    /// A text of its own.
    pub(crate) const BOTH: Ends = Ends { first: true, last: true };
}

/// The settings of a model, and its pieces that are found in raw text.
#[derive(Clone, Debug)]
pub(crate) struct SentencepieceNormalizer {
    pub map: Option<CharacterMap>,
    pub add_dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
    pub whole_text: bool,
    /// Pieces that are copied as they stand.
    pub kept: AddedTokens,
}

impl SentencepieceNormalizer {
    /// Whether a text that begins with an added token has a mark before that.
    pub(crate) fn marks_texts(&self) -> bool {
        self.whole_text && self.add_dummy_prefix
    }

    /// Normalizes a part of a text that reaches these of its ends; the result never grows beyond `bytes_max`.
    pub(crate) fn run(&self, text: &str, ends: Ends, bytes_max: usize) -> Result<String, String> {
        let ends = if self.whole_text { ends } else { Ends::BOTH };
        let mut normalized = String::with_capacity(text.len());
        if ends.first && self.add_dummy_prefix && !text.is_empty() {
            normalized.push(MARK);
        }
        let mut after_space = ends.first && self.remove_extra_whitespaces;
        let mut rest = text;
        // With the spaces that are dropped, which a map may make of every character.
        let mut seen: usize = 0;
        while let Some((bytes, content)) = self.next(rest)? {
            seen = seen.saturating_add(content.len());
            refuse_growth(seen, bytes_max)?;
            let content = if after_space { content.trim_start_matches(' ') } else { content };
            normalized.extend(content.chars().map(|c| if c == ' ' { MARK } else { c }));
            if !content.is_empty() {
                after_space = self.remove_extra_whitespaces && content.ends_with(' ');
            }
            rest = rest.get(bytes..).unwrap_or_default();
        }
        if ends.last && self.remove_extra_whitespaces {
            normalized.truncate(normalized.trim_end_matches(MARK).len());
        }
        Ok(normalized)
    }

    /// What stands first in `rest`: its bytes, and what becomes of it.
    fn next<'t>(&'t self, rest: &'t str) -> Result<Option<(usize, &'t str)>, String> {
        if let Some(bytes) = self.kept.at_start(rest) {
            return Ok(rest.get(..bytes).map(|kept| (bytes, kept)));
        }
        if let Some(map) = &self.map
            && let Some(found) = map.longest(rest)?
        {
            return Ok(Some(found));
        }
        let character = rest.chars().next().map(char::len_utf8);
        Ok(character.and_then(|bytes| Some((bytes, rest.get(..bytes)?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::output_bytes_max;

    /// A map of one key, "a", by the description in `character_map.rs`.
    fn map_of_a(content: &str) -> CharacterMap {
        let mut units = vec![0u32; 0x300];
        units[0] = 0x100 << 10;
        let a = 0x100 ^ usize::from(b'a');
        units[a] = u32::try_from(a ^ 0x200).unwrap() << 10 | 1 << 8 | u32::from(b'a');
        units[0x200] = 1 << 31;
        let size = u32::try_from(units.len() * 4).unwrap().to_le_bytes();
        let units: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        CharacterMap::read(&[&size, &units[..], content.as_bytes(), b"\0"].concat()).unwrap()
    }

    fn run(content: &str, whole_text: bool, text: &str, ends: Ends) -> Result<String, String> {
        let map = Some(map_of_a(content));
        let (add_dummy_prefix, remove_extra_whitespaces) = (true, true);
        let kept = AddedTokens::default();
        SentencepieceNormalizer { map, add_dummy_prefix, remove_extra_whitespaces, whole_text, kept }.run(
            text,
            ends,
            output_bytes_max(text.len()),
        )
    }

    /// By the rule: spaces at the ends of a text go, those at the ends of its parts stay.
    #[test]
    fn ends_of_texts_and_of_parts() {
        let part = |first, last| Ends { first, last };
        for (whole_text, ends, expected) in [
            (true, Ends::BOTH, "▁b▁b"),
            (true, part(true, false), "▁b▁b▁"),
            (true, part(false, true), "▁b▁b"),
            (true, part(false, false), "▁b▁b▁"),
            (false, part(false, false), "▁b▁b"),
        ] {
            assert_eq!(run(" ", whole_text, " ab a ba ", ends).as_deref(), Ok(expected), "{whole_text} {ends:?}");
        }
        assert_eq!(run(" ", false, "a a", Ends::BOTH).as_deref(), Ok(""));
        assert_eq!(run(" ", true, "a", part(true, false)).as_deref(), Ok("▁"));
    }

    /// A map that makes much of little, be it dropped again.
    #[test]
    fn growth_is_bounded() {
        for content in ["x".repeat(5000), " ".repeat(5000)] {
            assert!(run(&content, false, &"a".repeat(10), Ends::BOTH).is_ok());
            assert!(
                run(&content, false, &"a".repeat(1000), Ends::BOTH)
                    .unwrap_err()
                    .contains("bytes of output from the normalizer or pre-tokenizer, found")
            );
        }
    }
}
