//! The one error of everything that is read from or written to disk.

use std::fmt;
use std::path::{Path, PathBuf};

/// What is wrong with a file, in one sentence: where, what was expected and found, and what to do.
///
/// Shown as `PATH: PLACE: PROBLEM; HELP`. Text that came out of the file is escaped by [`quote`] before it gets here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The file or folder.
    pub path: PathBuf,
    /// The tensor, key or byte range inside it; empty when the whole file is meant.
    pub place: String,
    /// What was expected and what was found.
    pub problem: String,
    /// What the reader of the message can do; empty when nothing but another file would help.
    pub help: String,
}

/// What to do about a file that ends too early or contradicts itself.
pub(crate) const DAMAGED: &str = "the file is damaged or truncated; get a new copy and compare its size and hash";

/// What to do about a file that ends too early, if the problem says so already.
pub(crate) const CUT_SHORT: &str = "get a new copy and compare its size and hash";

/// What to do about a file whose parts contradict each other.
pub(crate) const FAULTY: &str =
    "the file is damaged, or a faulty program wrote it; get a new copy, or convert the model again";

/// What reading and writing return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error about the file as a whole.
    pub fn new(path: impl AsRef<Path>, problem: impl Into<String>) -> Error {
        let (place, help) = (String::new(), String::new());
        Error { path: path.as_ref().to_owned(), place, problem: problem.into(), help }
    }

    /// Names the place inside the file.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Error {
        self.place = place.into();
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.help = help.into();
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.as_os_str().is_empty() {
            write!(f, "{}: ", quote(&self.path.to_string_lossy()))?;
        }
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.problem)?;
        if !self.help.is_empty() {
            write!(f, "; {}", self.help)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Longest piece of foreign text that a message repeats, in characters after escaping.
const QUOTE_CHARS_MAX: usize = 120;

/// Text from a file, made safe to print: control and bidirectional characters escaped, long text cut.
pub fn quote(text: &str) -> String {
    let (mut quoted, mut room) = (String::new(), QUOTE_CHARS_MAX);
    for c in text.chars() {
        let escaped = (c.is_control() || is_bidi(c)).then(|| c.escape_unicode());
        let Some(rest) = room.checked_sub(escaped.as_ref().map_or(1, ExactSizeIterator::len)) else {
            quoted.push('…');
            break;
        };
        match escaped {
            Some(escaped) => quoted.extend(escaped),
            None => quoted.push(c),
        }
        room = rest;
    }
    quoted
}

/// Faults that one message repeats, and their characters; the first fault is always there.
const LISTED_MAX: usize = 10;
const LISTED_CHARS_MAX: usize = 560;

/// Several faults for one message: as many as a reader takes in, then how many more there are. Text from a file in them
/// must be escaped already.
pub fn listed(faults: &[String], separator: &str) -> String {
    let (mut text, mut chars) = (String::new(), 0_usize);
    for (number, fault) in faults.iter().enumerate() {
        chars = chars.saturating_add(separator.chars().count()).saturating_add(fault.chars().count());
        if number == LISTED_MAX || (number > 0 && chars > LISTED_CHARS_MAX) {
            text.push_str(&format!("{separator}and {} more", faults.len().saturating_sub(number)));
            break;
        }
        if number > 0 {
            text.push_str(separator);
        }
        text.push_str(fault);
    }
    text
}

/// Characters that change the direction or visibility of the text after them.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::{LISTED_CHARS_MAX, QUOTE_CHARS_MAX, listed, quote};

    #[test]
    fn quoted_text_is_short_however_it_is_escaped() {
        assert_eq!(quote("a\u{1b}b"), "a\\u{1b}b");
        for hidden in ['\u{61c}', '\u{200e}', '\u{2029}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{feff}', '\u{9b}'] {
            let quoted = quote(&format!("a{hidden}b"));
            assert_eq!(quoted, format!("a{}b", hidden.escape_unicode()));
        }
        assert_eq!(quote(&"x".repeat(QUOTE_CHARS_MAX)), "x".repeat(QUOTE_CHARS_MAX));
        assert_eq!(quote(&"x".repeat(QUOTE_CHARS_MAX + 1)), "x".repeat(QUOTE_CHARS_MAX) + "\u{2026}");
        assert!(quote(&"\u{202e}".repeat(5000)).chars().count() <= QUOTE_CHARS_MAX + 1);
    }

    #[test]
    fn many_faults_are_counted() {
        let faults: Vec<String> = (0..1000).map(|number| format!("fault {number:03}")).collect();
        assert_eq!(listed(&faults[..3], "; "), "fault 000; fault 001; fault 002");
        let text = listed(&faults, "; ");
        assert!(text.starts_with("fault 000; ") && text.ends_with("fault 009; and 990 more"), "{text}");
        // Room for two of them with their separators, to the last character.
        let half = ["x".repeat(LISTED_CHARS_MAX / 2 - 2), "y".repeat(LISTED_CHARS_MAX / 2 - 2), "z".to_owned()];
        assert_eq!(listed(&half, "; "), format!("{}; {}; and 1 more", half[0], half[1]));
        let long = ["x".repeat(5000), "y".to_owned()];
        assert_eq!(listed(&long, "; "), "x".repeat(5000) + "; and 1 more");
    }
}
