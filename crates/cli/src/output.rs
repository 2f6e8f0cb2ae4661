//! Results to stdout, progress and notes to stderr.

use crate::failure::{Failure, Result};
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

static QUIET: AtomicBool = AtomicBool::new(false);

/// No notes and no progress bars from here on.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether notes and progress bars are unwanted.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Text to stdout as it is.
pub fn text(text: &str) -> Result<()> {
    let mut stdout = anstream::stdout().lock();
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

/// The sentence that ends the command.
pub fn error(sentence: &str) {
    stderr(&format!("error: {sentence}\n"));
}

/// A document to a file, or to stdout when the file is `-`.
pub fn document(path: &Path, text: &str) -> Result<()> {
    if path == Path::new("-") {
        return line(text);
    }
    let mut file = trueup::formats::AtomicFile::create(path, &[])?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    file.commit()?;
    Ok(())
}

/// Nothing can be said when stderr is closed.
fn stderr(text: &str) {
    let mut stderr = anstream::stderr().lock();
    stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()).ok();
}

fn closed(error: &io::Error) -> Failure {
    Failure::new(format!("standard output: {error}"))
}
