//! Results to stdout, progress and notes to stderr.

use crate::failure::{Failure, Result};
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use trueup::formats::{AtomicFile, SourceFile, quote};

static QUIET: AtomicBool = AtomicBool::new(false);

/// No notes and no progress bars from here on.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether notes and progress bars are unwanted.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Text of a model, safe to print: control and bidirectional characters escaped, but for new lines and tabs. `--json` has it exactly.
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

/// Text to stdout as it is.
pub fn text(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| closed(&error))
}

/// One line to stdout.
pub fn line(line: &str) -> Result<()> {
    text(&format!("{line}\n"))
}

/// One JSON document to stdout.
pub fn json(document: &impl Serialize) -> Result<()> {
    line(&serde_json::to_string(document)?)
}

/// A sentence to stderr that is good to know.
pub fn note(sentence: &str) {
    if !is_quiet() {
        stderr(&format!("note: {sentence}\n"));
    }
}

/// A command to the CI system that runs this, which reads stderr too.
pub fn annotation(command: &str) {
    stderr(&format!("{command}\n"));
}

/// The sentence that ends the command.
pub fn error(sentence: &str) {
    stderr(&format!("error: {sentence}\n"));
}

/// Fails before any work where a side result has nowhere to go, or would overwrite a file that is read.
pub fn check_target(target: &Path, sources: &[&SourceFile]) -> Result<()> {
    let shown = quote(&target.to_string_lossy());
    if target == Path::new("-") {
        return Ok(());
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let folder = quote(&folder.to_string_lossy());
        return Err(Failure::new(format!("{shown}: cannot be written: there is no folder {folder}")));
    }
    match target.metadata() {
        Ok(facts) if sources.iter().any(|source| source.stamp().is_same_file(&facts)) => {
            Err(Failure::new(format!("{shown}: is read by this command; choose another name for the output")))
        }
        Ok(facts) if facts.is_dir() => Err(Failure::new(format!("{shown}: is a folder; name a file to write"))),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A document to a file, or to stdout when the file is `-`.
pub fn document(path: &Path, text: &str) -> Result<()> {
    if path == Path::new("-") {
        return line(text);
    }
    let mut file = AtomicFile::create(path, &[])?;
    file.write_all(format!("{text}\n").as_bytes())?;
    file.commit()?;
    Ok(())
}

/// Nothing can be said when stderr is closed.
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
    fn what_moves_a_terminal_is_escaped() {
        assert_eq!(visible("a\tb\nc\u{e9}\u{1f600}"), "a\tb\nc\u{e9}\u{1f600}");
        assert_eq!(visible("\u{1b}[2J\u{202e}\r"), "\\u{1b}[2J\\u{202e}\\u{d}");
    }
}
