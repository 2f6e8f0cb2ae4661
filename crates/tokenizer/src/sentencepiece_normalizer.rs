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
        while let Some((bytes, content)) = self.next(rest)? {
            let content = if after_space { content.trim_start_matches(' ') } else { content };
            refuse_growth(normalized.len().saturating_add(content.len()), bytes_max)?;
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
