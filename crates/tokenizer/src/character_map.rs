//! The character map that sentencepiece normalizes by (`precompiled_charsmap`): beginnings of text, and what stands
//! there afterwards.
//!
//! ```text
//! bytes    size (u32) │ units (u32 each): a double array │ texts, each ended by NUL
//!
//! unit     bits 0-7 label   8 has a leaf   9 offset is in 256s   10-30 offset       the children of unit i: i ^ offset ^ label
//! leaf     bit 31 set       0-30 place in the texts                                 at i ^ offset
//!
//! "ﬁn"     root ─ef─> ─ac─> ─81─> leaf ─> "fi"                                      what no key begins stays as it is
//! ```
//!
//! The layout of units is that of darts-clone, which sentencepiece writes; numbers are little-endian. A map is checked
//! once, when it is read: every leaf leads to a text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// Longest key, in bytes; those of Unicode's compatibility forms have up to 18.
const KEY_BYTES_MAX: usize = 256;
/// A unit that is a leaf.
const LEAF: u32 = 1 << 31;

/// A map that has been checked. In `tokenizer.json` it is the base64 of its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct CharacterMap(Arc<Parts>);

#[derive(PartialEq, Eq)]
struct Parts {
    units: Vec<u32>,
    texts: String,
}

impl std::fmt::Debug for CharacterMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CharacterMap({} units, {} bytes of text)", self.0.units.len(), self.0.texts.len())
    }
}

/// What a walk along a text meets.
struct Found {
    /// Bytes of the key.
    bytes: usize,
    /// Where its text begins.
    place: usize,
}

impl CharacterMap {
    /// Reads the bytes that sentencepiece writes.
    ///
    /// # Errors
    /// A size is wrong, a leaf leads to no text, or the texts are no UTF-8: one sentence without a place.
    pub fn read(bytes: &[u8]) -> Result<CharacterMap, String> {
        let Some((size, rest)) = bytes.split_first_chunk::<4>() else {
            return Err(format!("character map: expected 4 bytes or more, found {}", bytes.len()));
        };
        let size = usize::try_from(u32::from_le_bytes(*size)).unwrap_or(usize::MAX);
        if size == 0 || !size.is_multiple_of(4) {
            return Err(format!("character map: expected a size that is a multiple of 4, found {size}"));
        }
        let Some((units, texts)) = rest.split_at_checked(size) else {
            let left = rest.len();
            return Err(format!("character map: expected {size} bytes of units, found {left}"));
        };
        let units = units.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        let Ok(texts) = std::str::from_utf8(texts) else {
            return Err("character map: expected texts in UTF-8, found other bytes".to_owned());
        };
        let parts = Parts { units, texts: texts.to_owned() };
        parts.check()?;
        Ok(CharacterMap(Arc::new(parts)))
    }

    /// As sentencepiece writes it: what [`CharacterMap::read`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let size = u32::try_from(self.0.units.len().saturating_mul(4)).unwrap_or(u32::MAX);
        let mut bytes = size.to_le_bytes().to_vec();
        bytes.extend(self.0.units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend_from_slice(self.0.texts.as_bytes());
        bytes
    }

    /// The longest key that `text` begins with: its bytes, and what takes its place. Fails where keys are longer than
    /// any language needs, so that no table makes a long text slow.
    pub(crate) fn longest(&self, text: &str) -> Result<Option<(usize, &str)>, String> {
        let mut longest = None;
        let mut walk = self.0.walk(text.as_bytes());
        for found in walk.by_ref() {
            if text.is_char_boundary(found.bytes) {
                longest = Some(found);
            }
        }
        if walk.bytes > KEY_BYTES_MAX {
            return Err(format!("character map: expected keys of at most {KEY_BYTES_MAX} bytes, found a longer one"));
        }
        Ok(longest.map(|found| (found.bytes, self.0.text(found.place))))
    }

    /// What the shortest key that `text` begins with stands for.
    pub(crate) fn shortest(&self, text: &str) -> Option<&str> {
        self.0.walk(text.as_bytes()).next().map(|found| self.0.text(found.place))
    }
}

impl Parts {
    fn unit(&self, place: usize) -> Option<u32> {
        self.units.get(place).copied()
    }

    /// The text at a place, up to the NUL that ends it.
    fn text(&self, place: usize) -> &str {
        let text = self.texts.get(place..).unwrap_or_default();
        text.split_once('\0').map_or(text, |(text, _)| text)
    }

    /// Every leaf is there, and leads to the beginning of a character of the texts.
    fn check(&self) -> Result<(), String> {
        for (place, unit) in self.units.iter().enumerate().filter(|(_, unit)| **unit & LEAF == 0) {
            let children = place ^ offset(*unit);
            let Some(leaf) = self.unit(children) else {
                let count = self.units.len();
                return Err(format!(
                    "unit {place} of the character map: expected a unit below {count}, found {children}"
                ));
            };
            let text = usize::try_from(leaf & !LEAF).unwrap_or(usize::MAX);
            let is_text = leaf & LEAF != 0 && text < self.texts.len() && self.texts.is_char_boundary(text);
            if has_leaf(*unit) && !is_text {
                return Err(format!(
                    "unit {place} of the character map: expected the offset of a string below {}, found {text}",
                    self.texts.len()
                ));
            }
        }
        Ok(())
    }

    /// All keys that `text` begins with, the shortest first.
    fn walk<'m>(&'m self, text: &'m [u8]) -> Walk<'m> {
        let children = self.unit(0).filter(|root| root & LEAF == 0).map(offset);
        Walk { parts: self, text, children, bytes: 0 }
    }
}

/// A way from the root of a map along a text.
struct Walk<'m> {
    parts: &'m Parts,
    text: &'m [u8],
    /// Where the children of the last unit are, by their labels; `None` where the way has ended.
    children: Option<usize>,
    /// How long the way is.
    bytes: usize,
}

impl Iterator for Walk<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        while self.bytes <= KEY_BYTES_MAX {
            let children = self.children.take()?;
            let byte = *self.text.get(self.bytes)?;
            let place = children ^ usize::from(byte);
            let unit = self.parts.unit(place)?;
            if unit & (LEAF | 0xff) != u32::from(byte) {
                return None;
            }
            self.bytes = self.bytes.saturating_add(1);
            let children = place ^ offset(unit);
            self.children = Some(children);
            if has_leaf(unit) {
                let leaf = self.parts.unit(children)?;
                return Some(Found { bytes: self.bytes, place: usize::try_from(leaf & !LEAF).ok()? });
            }
        }
        None
    }
}

fn has_leaf(unit: u32) -> bool {
    unit & (1 << 8) != 0
}

/// What a unit adds to its own place, bit by bit, to reach its children.
fn offset(unit: u32) -> usize {
    let offset = unit >> 10;
    let offset = if unit & (1 << 9) == 0 { offset } else { offset << 8 };
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl Serialize for CharacterMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(self.to_bytes()))
    }
}

impl<'de> Deserialize<'de> for CharacterMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CharacterMap, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD
            .decode(text)
            .map_err(|problem| de::Error::custom(format!("precompiled_charsmap: expected base64 text: {problem}")))?;
        CharacterMap::read(&bytes).map_err(|problem| de::Error::custom(format!("precompiled_charsmap: {problem}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map of "a" to "x", "ab" to "yz" and "b" to nothing, laid out by the format's description: the root's children
    /// lie in a block behind it.
    fn small() -> Vec<u8> {
        let mut units = vec![0u32; 0x300];
        let node = |label: u8, offset: usize, leaf: bool| {
            u32::try_from(offset).unwrap() << 10 | u32::from(leaf) << 8 | u32::from(label)
        };
        units[0] = node(0, 0x100, false);
        let a = 0x100 ^ usize::from(b'a');
        units[a] = node(b'a', a ^ 0x200, true);
        units[0x200] = LEAF;
        let ab = 0x200 ^ usize::from(b'b');
        units[ab] = node(b'b', ab ^ 0x280, true);
        units[0x280] = LEAF | 2;
        let b = 0x100 ^ usize::from(b'b');
        units[b] = node(b'b', b ^ 0x281, true);
        units[0x281] = LEAF | 1;
        let mut bytes = u32::try_from(units.len() * 4).unwrap().to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend_from_slice("x\0yz\0".as_bytes());
        bytes
    }

    #[test]
    fn longest_and_shortest_keys() {
        let map = CharacterMap::read(&small()).unwrap();
        assert_eq!(map.longest("abc"), Ok(Some((2, "yz"))));
        assert_eq!(map.longest("ac"), Ok(Some((1, "x"))));
        assert_eq!(map.longest("bc"), Ok(Some((1, ""))));
        for text in ["", "c", "\0", "é", "日"] {
            assert_eq!(map.longest(text), Ok(None), "{text:?}");
        }
        assert_eq!((map.shortest("abc"), map.shortest("c")), (Some("x"), None));
        assert_eq!(CharacterMap::read(&map.to_bytes()), Ok(map.clone()));
        let json = serde_json::to_string(&map).unwrap();
        assert_eq!(serde_json::from_str::<CharacterMap>(&json).unwrap(), map);
    }

    /// Every beginning of a map is refused, but for one that ends in its texts behind what leaves lead to.
    #[test]
    fn truncated_maps() {
        let whole = small();
        for end in 0..whole.len() {
            let read = CharacterMap::read(&whole[..end]);
            assert_eq!(read.is_ok(), end >= whole.len() - 2, "{end}: {read:?}");
        }
    }

    #[test]
    fn hostile_maps() {
        let with = |place: usize, unit: u32| {
            let mut bytes = small();
            bytes[4 + 4 * place..][..4].copy_from_slice(&unit.to_le_bytes());
            bytes
        };
        let sized = |size: u32| [&size.to_le_bytes()[..], &small()[4..]].concat();
        let cases = [
            (sized(0), "multiple of 4, found 0"),
            (sized(6), "multiple of 4, found 6"),
            (sized(u32::MAX), "multiple of 4, found 4294967295"),
            (sized(u32::MAX - 3), "expected 4294967292 bytes of units"),
            (with(0x200, LEAF | 6), "expected the offset of a string below "),
            (with(0x200, LEAF | u32::MAX), "expected the offset of a string below "),
            (with(0x200, 0), "expected the offset of a string below "),
            (with(5, 0x1f_ffff << 10), "unit 5 of the character map: expected a unit below"),
            (with(5, 0x1f_ffff << 10 | 1 << 9), "expected a unit below"),
            ([&small()[..], &[0xff]].concat(), "expected texts in UTF-8"),
        ];
        for (bytes, expected) in cases {
            let error = CharacterMap::read(&bytes).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{expected}: {error}");
        }
        // A leaf into the middle of a character.
        let mut inside = with(0x200, LEAF | 1);
        inside.truncate(inside.len() - 5);
        inside.extend_from_slice("é\0\0\0".as_bytes());
        assert!(CharacterMap::read(&inside).unwrap_err().contains("expected the offset of a string below "));
    }

    /// A node that is its own child makes a key without an end.
    #[test]
    fn endless_keys() {
        let mut bytes = small();
        let a = 0x100 ^ usize::from(b'a');
        let unit = (u32::from(b'a') << 10) | u32::from(b'a');
        bytes[4 + 4 * a..][..4].copy_from_slice(&unit.to_le_bytes());
        let map = CharacterMap::read(&bytes).unwrap();
        assert_eq!(map.longest(&"a".repeat(KEY_BYTES_MAX)), Ok(None));
        assert!(map.longest(&"a".repeat(1000)).unwrap_err().contains("expected keys of at most 256 bytes"));
        assert_eq!(map.shortest(&"a".repeat(1000)), None);
    }
}
