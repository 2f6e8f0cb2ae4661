//! Sets of characters by which BERT's tokenizer treats text, as the tokenizers library has them: its tables are those of
//! Unicode 8. A test compares every character with a golden file.

/// Control, format and private characters, and the replacement character. Tabs and ends of lines are white space.
pub(crate) const DROPPED: &str = r"[[\p{Cc}\p{Cf}\p{Co}\x{FFFD}]&&[^\t\n\r]]";
/// Marks that do not take space of their own.
pub(crate) const ACCENTS: &str = r"\p{Mn}";
/// Punctuation, and the ASCII symbols.
pub(crate) const PUNCTUATION: &str = r"[\p{P}\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e]";

/// Puts a space before and after each ideograph.
pub(crate) fn set_ideographs_apart(text: &str) -> String {
    let mut apart = String::with_capacity(text.len());
    for c in text.chars() {
        if is_ideograph(c) {
            apart.extend([' ', c, ' ']);
        } else {
            apart.push(c);
        }
    }
    apart
}

fn is_ideograph(c: char) -> bool {
    matches!(
        c,
        '\u{3400}'..='\u{4DBF}'
            | '\u{4E00}'..='\u{9FFF}'
            | '\u{F900}'..='\u{FAFF}'
            | '\u{20000}'..='\u{2A6DF}'
            | '\u{2A700}'..='\u{2B81F}'
            | '\u{2B920}'..='\u{2CEAF}'
            | '\u{2F800}'..='\u{2FA1F}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Behavior, CompileBudget, Pattern, Searcher};
    use serde_json::Value;
    use std::path::Path;
    use unicode_normalization::UnicodeNormalization;

    /// The characters of one set of the golden file, which `scripts/make_encoder_fixtures.py --characters` wrote.
    fn golden(key: &str) -> Vec<char> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tokenizers/bert-characters.json");
        let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let ends: Vec<u32> = golden[key].as_array().unwrap().iter().map(|end| end.as_u64().unwrap() as u32).collect();
        ends.as_chunks::<2>().0.iter().flat_map(|[first, last]| (*first..=*last).filter_map(char::from_u32)).collect()
    }

    fn all() -> impl Iterator<Item = char> {
        '\0'..=char::MAX
    }

    fn matched(pattern: &str) -> Vec<char> {
        let searcher = Searcher::new(&Pattern::Regex(pattern.to_owned()), &mut CompileBudget::default()).unwrap();
        let is_cut = |c: &char| {
            let text = c.to_string();
            searcher.split(&text, Behavior::Removed, false).unwrap().is_empty()
        };
        all().filter(is_cut).collect()
    }

    fn assert_same(found: &[char], expected: &[char], what: &str) {
        let more: Vec<String> =
            found.iter().filter(|c| expected.binary_search(c).is_err()).map(|c| format!("{:x}", *c as u32)).collect();
        let less: Vec<String> =
            expected.iter().filter(|c| found.binary_search(c).is_err()).map(|c| format!("{:x}", *c as u32)).collect();
        assert!(more.is_empty() && less.is_empty(), "{what}: too many {more:?}, missing {less:?}");
    }

    #[test]
    fn every_character_is_treated_as_in_the_tokenizers_library() {
        assert_same(&matched(DROPPED), &golden("dropped"), "dropped");
        assert_same(&matched(PUNCTUATION), &golden("punctuation"), "punctuation");
        let ideographs: Vec<char> = all().filter(|c| is_ideograph(*c)).collect();
        assert_same(&ideographs, &golden("ideographs"), "ideographs");
        // Accents are looked for in decomposed text.
        let stable = |c: &char| c.nfd().eq([*c]);
        let accents: Vec<char> = matched(ACCENTS).into_iter().filter(stable).collect();
        let expected: Vec<char> = golden("accents").into_iter().filter(stable).collect();
        assert_same(&accents, &expected, "accents");
    }
}
