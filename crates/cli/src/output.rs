//! Output: results to stdout; notes, errors and progress to stderr.

use crate::failure::{Failure, Result};
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use trueup::formats::{AtomicFile, SourceFile, quote};

static QUIET: AtomicBool = AtomicBool::new(false);

/// Turns notes and progress bars off or on.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether notes and progress bars are off.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Escapes control and bidirectional characters in generated text, except newlines and tabs.
///
/// The result is safe to print on a terminal. `--json` output contains the text unchanged.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c => shown.push_str(&quote(c.encode_utf8(&mut [0; 4]))),
        }
    }
    shown
}

/// Writes text to stdout unchanged.
pub fn text(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| closed(&error))
}

/// Writes one line to stdout.
pub fn line(line: &str) -> Result<()> {
    text(&format!("{line}\n"))
}

/// Writes one JSON document to stdout.
pub fn json(document: &impl Serialize) -> Result<()> {
    line(&serde_json::to_string(document)?)
}

/// Writes a note to stderr, unless notes are off.
pub fn note(sentence: &str) {
    if !is_quiet() {
        stderr(&format!("note: {sentence}\n"));
    }
}

/// Writes a workflow command for the CI system to stderr.
pub fn annotation(command: &str) {
    stderr(&format!("{command}\n"));
}

/// Writes the error that ends the command to stderr.
pub fn error(sentence: &str) {
    stderr(&format!("error: {sentence}\n"));
}

/// Checks before any work that an output file can be written, and that it does not replace one of the `sources`.
pub fn check_target(target: &Path, sources: &[&SourceFile]) -> Result<()> {
    let shown = quote(&target.to_string_lossy());
    if target == Path::new("-") {
        return Ok(());
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let folder = quote(&folder.to_string_lossy());
        return Err(Failure::new(format!(
            "{shown}: cannot be written: the directory {folder} does not exist; create it, or choose another path for \
             the output"
        )));
    }
    match target.metadata() {
        Ok(facts) if sources.iter().any(|source| source.stamp().is_same_file(&facts)) => {
            Err(Failure::new(format!("{shown}: the output path is also an input; choose another output path")))
        }
        Ok(facts) if facts.is_dir() => {
            Err(Failure::new(format!("{shown}: expected a file name, found a directory; add a file name to the path")))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Writes a document to a file, or to stdout if the path is `-`.
pub fn document(path: &Path, text: &str) -> Result<()> {
    if path == Path::new("-") {
        return line(text);
    }
    let mut file = AtomicFile::create(path, &[])?;
    file.write_all(format!("{text}\n").as_bytes())?;
    file.commit()?;
    Ok(())
}

/// Writes to stderr. Ignores errors, because there is no place left to report them.
fn stderr(text: &str) {
    let mut stderr = io::stderr().lock();
    stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()).ok();
}

fn closed(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::reader_gone();
    }
    Failure::new(format!("standard output: {error}"))
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn terminal_control_characters_are_escaped() {
        assert_eq!(visible("a\tb\nc\u{e9}\u{1f600}"), "a\tb\nc\u{e9}\u{1f600}");
        assert_eq!(visible("\u{1b}[2J\u{202e}\r"), "\\u{1b}[2J\\u{202e}\\u{d}");
    }
}
