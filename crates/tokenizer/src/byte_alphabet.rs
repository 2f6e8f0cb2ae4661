//! The printable alphabet in which byte-level vocabularies write bytes.
//!
//! ```text
//! byte 0x21..=0x7E, 0xA1..=0xAC, 0xAE..=0xFF   the character of the same number
//! the other 68 bytes, in order                 U+0100, U+0101, ...        (a space is U+0120)
//! ```
//!
//! Source: `bytes_to_unicode` of the published GPT-2 encoder.

/// Bytes that stand for themselves.
fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// The character of each byte.
const ENCODED: [char; 256] = encoded_table();

const fn encoded_table() -> [char; 256] {
    let mut table = ['\0'; 256];
    let mut byte: usize = 0;
    let mut next: u32 = 0x100;
    // A const function has neither iterators nor `try_from`; every index and number here is below 512.
    #[allow(clippy::as_conversions, clippy::arithmetic_side_effects, clippy::indexing_slicing)]
    while byte < 256 {
        let own = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        let number = if own { byte as u32 } else { next };
        if !own {
            next += 1;
        }
        table[byte] = match char::from_u32(number) {
            Some(c) => c,
            None => '\0',
        };
        byte += 1;
    }
    table
}

/// Writes each byte of `text` as its character.
pub(crate) fn encode(text: &str) -> String {
    encode_bytes(text.as_bytes())
}

/// Writes each byte as its character.
pub(crate) fn encode_bytes(bytes: &[u8]) -> String {
    bytes.iter().filter_map(|byte| ENCODED.get(usize::from(*byte))).collect()
}

/// The byte of a character, when it is one of the alphabet.
fn decode_char(c: char) -> Option<u8> {
    if let Ok(byte) = u8::try_from(c)
        && is_printable(byte)
    {
        return Some(byte);
    }
    let place = ENCODED.iter().position(|encoded| *encoded == c)?;
    u8::try_from(place).ok()
}

/// The bytes of a token; a token with any other character stands for its own UTF-8.
pub(crate) fn decode(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(decode_char).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Facts of the published GPT-2 vocabulary: `Ġ` is a space, `Ċ` a line feed, `č` a carriage return, `Ń` byte 0xAD.
    #[test]
    fn known_characters() {
        for (byte, c) in [(b' ', 'Ġ'), (b'\n', 'Ċ'), (b'\r', 'č'), (0xAD, 'Ń'), (b'A', 'A'), (0xE9, 'é')] {
            assert_eq!(ENCODED[usize::from(byte)], c);
            assert_eq!(decode_char(c), Some(byte));
        }
    }

    #[test]
    fn every_byte_comes_back() {
        for byte in 0..=255u8 {
            assert_eq!(decode_char(ENCODED[usize::from(byte)]), Some(byte), "byte {byte}");
        }
        assert_eq!(decode("日"), "日".as_bytes());
    }
}
