//! A file that exists only while the process needs it.
//!
//! ```text
//! FOLDER/.NAME.RANDOM.partial/NAME     the directory: mode 0700, locked by the process
//! ```
//!
//! The lock of the directory ends with the process. The next [`TemporaryFile::create`] for the same folder and name
//! removes directories without a lock.

use super::live::{self, LiveFolder};
use super::standing::{has_name, open_folder, try_lock};
use super::{CREATE_ATTEMPTS, RANDOM_CHARS, partial_prefix, stale, write_error};
use crate::error::{Error, Result};
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A path for an [`AtomicFile`](super::AtomicFile), in a new directory that only the current user can open. File and
/// directory are removed when it is dropped, and by
/// [`AtomicFile::remove_all_live`](super::AtomicFile::remove_all_live).
#[derive(Debug)]
pub struct TemporaryFile {
    path: PathBuf,
    /// Declared before the lock: the directory is removed while it is locked.
    _folder: LiveFolder,
    /// The directory, open and locked.
    _lock: File,
}

impl TemporaryFile {
    /// Creates the directory in `folder`, for a file called `name`. Removes the directories that killed processes left
    /// there for a file of this name.
    pub fn create(folder: &Path, name: &str) -> Result<TemporaryFile> {
        let path = folder.join(name);
        let prefix = partial_prefix(&path)?;
        let failed = |error| write_error(&path, folder, error, 0);
        stale::remove_folders(folder, &prefix);
        // The error of this function keeps its number; that of the library's own does not.
        let make = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        let create = || {
            let mut name = tempfile::Builder::new();
            let made = name.prefix(&prefix).suffix(stale::SUFFIX).rand_bytes(RANDOM_CHARS).make_in(folder, make)?;
            made.into_temp_path().keep().map_err(|error| error.error)
        };
        for _ in 0..CREATE_ATTEMPTS {
            let made = live::create_folder(create).map_err(failed)?;
            let lock = match open_folder(made.path()) {
                Ok(lock) => lock,
                // Another process took it for a stale one.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            // Where directories cannot be locked, no process removes those of others.
            if lock_own(&lock) && has_name(&lock, made.path()) {
                return Ok(TemporaryFile { path: made.path().join(name), _folder: made, _lock: lock });
            }
        }
        let problem = "another process keeps removing the temporary directory";
        Err(Error::new(&path, problem).help("stop the other process"))
    }

    /// The path of the file, which does not exist at first.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Locks a directory. `false` if another process has locked it.
fn lock_own(folder: &File) -> bool {
    try_lock(folder).unwrap_or(true)
}
