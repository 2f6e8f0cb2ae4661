//! A token that changes, with its text: what stood before it, what should have followed and what did.

use serde::Serialize;
use trueup_formats::quote;

/// Ids that are kept of what stands before a flip.
pub(crate) const BEFORE_MAX: usize = 12;
/// Characters of the text before a flip that are shown, and of one token.
const BEFORE_CHARS_MAX: usize = 60;
const TOKEN_CHARS_MAX: usize = 40;

/// A position whose most likely token differs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Flip {
    /// The prompt, counted from 0.
    pub prompt: usize,
    /// Whether it differs in the batch of all prompts, instead of in the run of the prompt alone.
    pub in_batch: bool,
    /// The position of the token whose successor differs.
    pub position: usize,
    /// The last ids up to that position, at most 12.
    pub before: Vec<u32>,
    /// The reference's most likely token.
    pub reference: u32,
    /// The device's.
    pub device: u32,
    /// How far the reference's best logit is above that of the token that the device took.
    pub margin: f64,
    /// Whether noise of the logits' size explains it.
    pub explained: bool,
    /// The same in text; null where the model has no tokenizer.
    pub text: Option<FlipText>,
}

/// Texts of a flip, safe to print: control and bidirectional characters and bytes that are no UTF-8 escaped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FlipText {
    /// The end of the text before.
    pub before: String,
    /// The reference's token.
    pub reference: String,
    /// The device's token.
    pub device: String,
}

impl Flip {
    /// Adds the texts, by a tokenizer that gives the bytes of a sequence of ids.
    pub fn add_text(&mut self, decode: &dyn Fn(&[u32]) -> Vec<u8>) {
        let before = decode(&self.before);
        // Ids that begin within a character.
        let broken = before.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        let token = |id: u32| {
            let ids: Vec<u32> = self.before.iter().copied().chain([id]).collect();
            let all = decode(&ids);
            // Behind other text: the first word of a text may lose its space.
            let bytes = all.strip_prefix(before.as_slice()).map_or_else(|| decode(&[id]), <[u8]>::to_vec);
            first_chars(&escaped(&bytes), TOKEN_CHARS_MAX)
        };
        self.text = Some(FlipText {
            before: last_chars(&escaped(&before[broken..]), BEFORE_CHARS_MAX),
            reference: token(self.reference),
            device: token(self.device),
        });
    }

    /// Where it is: `position 3 of prompt 0, in the batch of all prompts`, with the text `before` after the prompt.
    pub(crate) fn place(&self, before: &str) -> String {
        let batch = if self.in_batch { ", in the batch of all prompts" } else { "" };
        format!("position {} of prompt {}{before}{batch}", self.position, self.prompt)
    }

    /// The two tokens in words: `" dog" (17) instead of " cat" (4)`, or the ids alone.
    pub(crate) fn tokens(&self) -> String {
        let Flip { reference, device, .. } = self;
        match &self.text {
            Some(text) => format!("\"{}\" ({device}) instead of \"{}\" ({reference})", text.device, text.reference),
            None => format!("{device} instead of {reference}"),
        }
    }
}

/// Bytes as text in which each character and each byte can be seen.
fn escaped(bytes: &[u8]) -> Vec<String> {
    let mut shown = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let character = |c: char| match c {
            '\n' | '\r' | '\t' | '\\' | '"' => c.escape_default().to_string(),
            c => quote(c.encode_utf8(&mut [0; 4])),
        };
        shown.extend(chunk.valid().chars().map(character));
        shown.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    shown
}

fn first_chars(shown: &[String], most: usize) -> String {
    let rest = if shown.len() > most { "…" } else { "" };
    shown.iter().take(most).map(String::as_str).chain([rest]).collect()
}

fn last_chars(shown: &[String], most: usize) -> String {
    let skipped = shown.len().saturating_sub(most);
    let rest = if skipped > 0 { "…" } else { "" };
    [rest].into_iter().chain(shown.iter().skip(skipped).map(String::as_str)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids that are bytes; the first word of a text loses its space, as sentencepiece has it.
    fn decode(ids: &[u32]) -> Vec<u8> {
        let bytes: Vec<u8> = ids.iter().map(|id| *id as u8).collect();
        bytes.strip_prefix(b" ").map_or(bytes.clone(), <[u8]>::to_vec)
    }

    fn flip(before: &[u8], reference: u8, device: u8) -> Flip {
        let before = before.iter().copied().map(u32::from).collect();
        let (reference, device) = (u32::from(reference), u32::from(device));
        let mut flip = Flip {
            prompt: 0,
            in_batch: false,
            position: 3,
            before,
            reference,
            device,
            margin: 0.5,
            explained: true,
            text: None,
        };
        assert_eq!(flip.tokens(), format!("{device} instead of {reference}"));
        flip.add_text(&decode);
        flip
    }

    #[test]
    fn tokens_are_shown_as_they_follow_the_text() {
        let found = flip(b" the", b' ', b's');
        let text = found.text.as_ref().unwrap();
        assert_eq!((text.before.as_str(), text.reference.as_str(), text.device.as_str()), ("the", " ", "s"));
        assert_eq!(found.tokens(), "\"s\" (115) instead of \" \" (32)");
    }

    #[test]
    fn what_is_no_character_is_escaped_and_long_text_is_cut() {
        let text = |before: &[u8], token| flip(before, token, b'\\').text.unwrap();
        let found = text(b"\xa9\xc3\xa9\x1b[2J\"", 0xff);
        assert_eq!((found.before.as_str(), found.reference.as_str()), ("é\\u{1b}[2J\\\"", "\\xff"));
        assert_eq!((text(b"a", b'\n').reference.as_str(), found.device.as_str()), ("\\n", "\\\\"));
        let long = text(&[b'x'; 1000], b'y').before;
        assert_eq!((long.chars().count(), long.chars().next()), (BEFORE_CHARS_MAX + 1, Some('…')));
    }
}
