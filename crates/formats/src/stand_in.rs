//! What a download leaves where a file should be: a pointer of Git LFS, or a page of the web.
//!
//! ```text
//! version https://git-lfs.github.com/spec/v1      cloned without Git LFS: the file itself was not fetched
//! oid sha256:4d7a...
//! size 2200119664
//!
//! <!DOCTYPE html> ...                             a view of the file, a sign-in, an error
//! ```

use crate::error::Error;
use crate::source_file::SourceFile;

/// Bytes from which both are known; a pointer is shorter than that by its specification.
const START_BYTES: u64 = 1024;

/// How a pointer begins.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// How pages begin, behind white space, in lower case. Storage servers answer with XML.
const PAGES: [&[u8]; 3] = [b"<!doctype html", b"<html", b"<?xml"];

/// Something that stands for a file and is not the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StandIn {
    /// A pointer of Git LFS, with the size in bytes of the file that it stands for, where it says that.
    LfsPointer(Option<u64>),
    /// A page in HTML or an answer in XML.
    WebPage,
}

impl StandIn {
    /// What a file is that begins so; `None` for everything else.
    pub fn of(start: &[u8]) -> Option<StandIn> {
        if start.starts_with(POINTER) {
            return Some(StandIn::LfsPointer(size(start)));
        }
        let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
        let begins = |page: &&[u8]| start.get(..page.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(page));
        PAGES.iter().any(begins).then_some(StandIn::WebPage)
    }

    /// What the file is that an error is about; `None` too where it cannot be read.
    pub fn behind(error: &Error) -> Option<StandIn> {
        let source = SourceFile::open(&error.path).ok()?;
        let mut start = vec![0; usize::try_from(source.bytes().min(START_BYTES)).ok()?];
        source.read_at(0, &mut start).ok()?;
        StandIn::of(&start)
    }

    /// What was expected and found.
    pub fn problem(self) -> String {
        match self {
            StandIn::LfsPointer(None) => "expected the file itself, found a Git LFS pointer".to_owned(),
            StandIn::LfsPointer(Some(bytes)) => {
                format!("expected the file itself, found a Git LFS pointer to a file of {bytes} bytes")
            }
            StandIn::WebPage => "expected the file itself, found a web page (HTML or XML)".to_owned(),
        }
    }

    /// What to do.
    pub fn help(self) -> &'static str {
        match self {
            StandIn::LfsPointer(_) => "run `git lfs pull` in its directory, or download the file itself",
            StandIn::WebPage => "download the file again with its direct link; sign in if the site requires it",
        }
    }

    /// As the error that a file which does not open ends with.
    pub fn error(self, path: impl AsRef<std::path::Path>) -> Error {
        Error::new(path, self.problem()).help(self.help())
    }
}

/// An error of opening, in words of its own where something stands in for the file.
pub(crate) fn explained(error: Error) -> Error {
    match StandIn::behind(&error) {
        Some(stand_in) => stand_in.error(error.path),
        None => error,
    }
}

/// The number behind `size` on a line of its own.
fn size(pointer: &[u8]) -> Option<u64> {
    let lines = pointer.split(|byte| *byte == b'\n');
    let digits = lines.filter_map(|line| line.strip_prefix(b"size ")).next()?;
    std::str::from_utf8(digits.trim_ascii_end()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::StandIn;

    #[test]
    fn what_stands_in_for_a_model_is_said_when_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let opened = |contents: &str| {
            std::fs::write(&path, contents).unwrap();
            let error = crate::open(&path, &crate::OpenOptions::default()).err().unwrap();
            (error.problem, error.help)
        };
        let (problem, help) = opened("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n");
        assert_eq!(problem, "expected the file itself, found a Git LFS pointer to a file of 12345 bytes");
        assert!(help.contains("git lfs pull"), "{help}");
        let (problem, help) = opened("<!DOCTYPE html><title>Sign in</title>");
        assert_eq!(problem, "expected the file itself, found a web page (HTML or XML)");
        assert!(help.contains("download the file again"), "{help}");
        assert!(!opened("hello").0.contains("the file itself"));
    }

    #[test]
    fn pointers_and_pages_are_known_by_their_beginning() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        assert_eq!(StandIn::of(pointer), Some(StandIn::LfsPointer(Some(12345))));
        assert_eq!(StandIn::of(&pointer[..50]), Some(StandIn::LfsPointer(None)));
        let endless = b"version https://git-lfs.github.com/spec/v1\nsize 99999999999999999999999\n";
        assert_eq!(StandIn::of(endless), Some(StandIn::LfsPointer(None)));
        for page in ["<!DOCTYPE html>", "\u{feff}\n  <HTML lang=\"en\">", "<?xml version=\"1.0\"?><Error>"] {
            assert_eq!(StandIn::of(page.as_bytes()), Some(StandIn::WebPage), "{page}");
        }
        for other in ["", "<", "version 1", "{}", "GGUF", "hello <html>"] {
            assert_eq!(StandIn::of(other.as_bytes()), None, "{other}");
        }
    }
}
