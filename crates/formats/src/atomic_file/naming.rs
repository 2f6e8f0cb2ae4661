//! The moment in which complete files get their names.
//!
//! ```text
//! one file       rename ── sync the folder
//! several files  lock the folder ── remove the old first ── sync ── rename the others ── sync ── rename the first ── sync
//! ```
//!
//! A set without its first file does not open, so one that is killed in between is no mixture of old and new. Two
//! writers of one set take turns here, what is named is looked at just before (inputs unchanged, each partial file
//! still under its name), and a signal that ends the program waits until all names are given.

use super::{AtomicFile, explain, live, write_error};
use crate::error::{Error, Result};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is left when a set cannot be named to its end.
const INCOMPLETE: &str = "the files of this output are incomplete and cannot be opened; fix the cause and run again";

/// What is left when only the last sync fails.
const UNCONFIRMED: &str = "the new file is in place, but may be lost in a power failure";

/// Why the files of an output are not all named and lasting.
#[derive(Debug)]
pub(crate) struct Uncommitted {
    pub error: Error,
    pub left: Left,
}

/// What is left of an output that was not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// The first file is still a partial one.
    Partial,
    /// Another process took a partial file away, or put another in its place.
    Lost,
    /// All files have their names; only the last sync failed.
    Named,
}

impl From<Error> for Uncommitted {
    fn from(error: Error) -> Uncommitted {
        Uncommitted { error, left: Left::Partial }
    }
}

/// Gives all files their names; the first of the list leads to the others. All are complete and on the disk.
pub(super) fn give_names(files: Vec<AtomicFile>) -> std::result::Result<(), Uncommitted> {
    let folders = Folders::open(&files)?;
    let is_set = files.len() > 1;
    if is_set {
        folders.lock();
        // That may have taken long.
        files.iter().try_for_each(AtomicFile::check)?;
    }
    let mut files = files.into_iter();
    let Some(first) = files.next() else { return Ok(()) };
    let others: Vec<AtomicFile> = files.collect();
    let _naming = live::name().map_err(|error| first.fault(error, 0))?;
    // All of them before the first name changes.
    if let Some(lost) = std::iter::once(&first).chain(&others).find(|file| !file.is_named()) {
        return Err(Uncommitted { error: lost.lost(), left: Left::Lost });
    }
    if is_set {
        remove_old(&first, &folders)?;
        name_others(others, &folders)?;
    }
    if !first.is_named() {
        let error = if is_set { first.lost().help(INCOMPLETE) } else { first.lost() };
        return Err(Uncommitted { error, left: Left::Lost });
    }
    let AtomicFile { path, folder, partial, .. } = first;
    let named = partial.persist(&path).map_err(|error| error.error);
    named.map_err(
        |error| {
            if is_set { incomplete(&path, &folder, &error) } else { write_error(&path, &folder, error, 0) }
        },
    )?;
    let synced = folders.sync();
    synced.map_err(|error| {
        let error = Error::new(&path, explain(&folder, &error, 0).0).help(UNCONFIRMED);
        Uncommitted { error, left: Left::Named }
    })
}

/// Removes what has the first file's name, if anything, and makes sure of that on the disk.
fn remove_old(first: &AtomicFile, folders: &Folders) -> Result<()> {
    match std::fs::remove_file(&first.path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(first.fault(error, 0)),
        Ok(()) => folders.sync().map_err(|error| incomplete(&first.path, &first.folder, &error)),
    }
}

/// Gives all but the first file of a set their names, and makes these last.
fn name_others(others: Vec<AtomicFile>, folders: &Folders) -> std::result::Result<(), Uncommitted> {
    let mut last = (PathBuf::new(), PathBuf::new());
    for file in others.into_iter().rev() {
        if !file.is_named() {
            return Err(Uncommitted { error: file.lost().help(INCOMPLETE), left: Left::Lost });
        }
        let AtomicFile { path, folder, partial, .. } = file;
        partial.persist(&path).map_err(|error| incomplete(&path, &folder, &error.error))?;
        last = (path, folder);
    }
    folders.sync().map_err(|error| incomplete(&last.0, &last.1, &error).into())
}

fn incomplete(path: &Path, folder: &Path, error: &io::Error) -> Error {
    Error::new(path, explain(folder, error, 0).0).help(INCOMPLETE)
}

/// The folders of an output, each once however its path is spelled, opened before any name changes: a process that may
/// not open more files fails before that.
struct Folders(Vec<((u64, u64), File)>);

impl Folders {
    fn open(files: &[AtomicFile]) -> Result<Folders> {
        let mut folders: Vec<((u64, u64), File)> = Vec::new();
        for file in files {
            let opened = File::open(&file.folder).and_then(|folder| Ok((folder.metadata()?, folder)));
            let (facts, folder) = opened.map_err(|error| file.fault(error, 0))?;
            // A second lock of one folder would wait for the first for ever.
            let key = (facts.dev(), facts.ino());
            if folders.iter().all(|(known, _)| *known != key) {
                folders.push((key, folder));
            }
        }
        // Whoever locks several does so in the same order.
        folders.sort_by_key(|(key, _)| *key);
        Ok(Folders(folders))
    }

    /// Waits for other writers of sets. Where folders cannot be locked, writers of one set may mix.
    fn lock(&self) {
        for (_, folder) in &self.0 {
            let _ = rustix::io::retry_on_intr(|| rustix::fs::flock(folder, FlockOperation::LockExclusive));
        }
    }

    /// Makes changed names last.
    fn sync(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|(_, folder)| sync_open(folder))
    }
}

/// Makes a changed name in a folder last.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    sync_open(&File::open(folder)?)
}

fn sync_open(folder: &File) -> io::Result<()> {
    // Some file systems cannot sync a folder; the change is made all the same.
    folder.sync_all().or_else(|error| if error.kind() == ErrorKind::InvalidInput { Ok(()) } else { Err(error) })
}
