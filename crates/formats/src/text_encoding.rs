//! Text as editors and shells write it: UTF-8 with or without a byte order mark, or UTF-16 with one.

use std::borrow::Cow;

/// The byte order mark of UTF-8.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Converts a file's bytes to UTF-8 without a byte order mark. Bytes without a mark are returned as they are.
///
/// ```
/// use trueup_formats::to_utf8;
/// assert_eq!(to_utf8(b"\xef\xbb\xbf{}").unwrap().as_ref(), b"{}");
/// assert_eq!(to_utf8(b"\xff\xfe{\0}\0").unwrap().as_ref(), b"{}");
/// assert_eq!(to_utf8(b"{}").unwrap().as_ref(), b"{}");
/// ```
///
/// # Errors
/// The mark says UTF-16, and the bytes after it are not; the message says so.
pub fn to_utf8(bytes: &[u8]) -> Result<Cow<'_, [u8]>, &'static str> {
    type ToUnit = fn([u8; 2]) -> u16;
    let (rest, unit): (&[u8], ToUnit) = match bytes {
        [0xff, 0xfe, rest @ ..] => (rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => (rest, u16::from_be_bytes),
        _ => return Ok(Cow::Borrowed(without_mark(bytes))),
    };
    let (units, odd) = rest.as_chunks();
    if !odd.is_empty() {
        return Err("expected UTF-16 text, as its byte order mark says, found an odd number of bytes");
    }
    let units: Vec<u16> = units.iter().map(|bytes| unit(*bytes)).collect();
    let text = String::from_utf16(&units);
    let text = text.map_err(|_| "expected UTF-16 text, as its byte order mark says, found an unpaired surrogate")?;
    Ok(Cow::Owned(text.into_bytes()))
}

/// The bytes after the byte order mark of UTF-8, when there is one.
pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(UTF8_MARK).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::to_utf8;

    #[test]
    fn marks_decide_the_encoding() {
        let text = "{\"naïve\": \"😀\"}";
        let utf16 = |mark: u16, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            [mark].into_iter().chain(text.encode_utf16()).flat_map(bytes).collect()
        };
        let marked = ["\u{feff}", text].concat().into_bytes();
        for bytes in [text.as_bytes(), &marked, &utf16(0xfeff, u16::to_le_bytes), &utf16(0xfeff, u16::to_be_bytes)] {
            assert_eq!(to_utf8(bytes).unwrap().as_ref(), text.as_bytes());
        }
        assert!(to_utf8(b"\xff\xfea").unwrap_err().contains("odd number"));
        assert!(to_utf8(b"\xff\xfe\0\xd8").unwrap_err().contains("surrogate"));
        // Without a mark nothing is guessed.
        assert_eq!(to_utf8(b"{\0}\0").unwrap().as_ref(), b"{\0}\0");
        assert_eq!(to_utf8(b"\xe9").unwrap().as_ref(), b"\xe9");
    }
}
