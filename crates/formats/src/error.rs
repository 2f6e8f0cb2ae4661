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

/// Longest piece of foreign text that a message repeats, in characters.
const QUOTE_CHARS_MAX: usize = 120;

/// Text from a file, made safe to print: control and bidirectional characters escaped, long text cut.
pub fn quote(text: &str) -> String {
    let mut quoted = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == QUOTE_CHARS_MAX {
            quoted.push('…');
            break;
        }
        if c.is_control() || is_bidi(c) { quoted.extend(c.escape_unicode()) } else { quoted.push(c) }
    }
    quoted
}

/// Characters that change the direction or visibility of the text after them.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}
