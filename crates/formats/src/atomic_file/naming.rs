//! The moment in which complete files get their names.
//!
//! ```text
//! one file       rename ── sync the folder
//! several files  lock the folder ── remove the old first ── sync ── rename the others ── sync ── rename the first ── sync
//! ```
//!
//! A set without its first file does not open, so one that is killed in between is no mixture of old and new. Two writers of one
//! set take turns here, and a signal that ends the program waits until all names are given.

use super::{AtomicFile, explain, live, sync_folder, write_error};
use crate::error::{Error, Result};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

/// What is left when a set cannot be named to its end.
const INCOMPLETE: &str = "the files of this output are incomplete and do not open; mend the cause and run again";

/// What is left when only the last sync fails.
const UNCONFIRMED: &str = "the new file has its name, but a power cut may take it back";

/// Gives all files their names; the first of the list leads to the others. All are complete and on the disk.
pub(super) fn give_names(files: Vec<AtomicFile>) -> Result<()> {
    let mut files = files.into_iter();
    let Some(first) = files.next() else { return Ok(()) };
    let others: Vec<AtomicFile> = files.collect();
    let is_set = !others.is_empty();
    let _turn = if is_set { lock(&first.folder) } else { None };
    let _naming = live::name().map_err(|error| first.fault(error, 0))?;
    if is_set {
        first.remove_old()?;
        name_others(others)?;
    }
    let AtomicFile { path, folder, partial, .. } = first;
    let named = partial.persist(&path).map_err(|error| error.error);
    named.map_err(
        |error| {
            if is_set { incomplete(&path, &folder, &error) } else { write_error(&path, &folder, error, 0) }
        },
    )?;
    sync_folder(&folder).map_err(|error| Error::new(&path, explain(&folder, &error, 0).0).help(UNCONFIRMED))
}

/// Gives all but the first file of a set their names, and makes these last.
fn name_others(others: Vec<AtomicFile>) -> Result<()> {
    let mut folders = Vec::new();
    for file in others.into_iter().rev() {
        let AtomicFile { path, folder, partial, .. } = file;
        partial.persist(&path).map_err(|error| incomplete(&path, &folder, &error.error))?;
        if !folders.iter().any(|(known, _)| *known == folder) {
            folders.push((folder, path));
        }
    }
    folders.iter().try_for_each(|(folder, path)| sync_folder(folder).map_err(|error| incomplete(path, folder, &error)))
}

fn incomplete(path: &Path, folder: &Path, error: &io::Error) -> Error {
    Error::new(path, explain(folder, error, 0).0).help(INCOMPLETE)
}

impl AtomicFile {
    /// Removes what has the file's name, if anything, and makes sure of that on the disk.
    fn remove_old(&self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.fault(error, 0)),
            Ok(()) => sync_folder(&self.folder).map_err(|error| incomplete(&self.path, &self.folder, &error)),
        }
    }
}

/// Waits for other writers of sets in this folder. Where folders cannot be locked, writers of one set may mix.
fn lock(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&folder, FlockOperation::LockExclusive)).ok()?;
    Some(folder)
}
