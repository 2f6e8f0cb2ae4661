//! A file that exists only while the process needs it.

use super::live::{self, LivePartial};
use super::write_error;
use crate::error::Result;
use std::fs::File;
use std::path::Path;
use tempfile::NamedTempFile;

/// An empty file with a new name, which an [`AtomicFile`](super::AtomicFile) may replace. It is removed when it is
/// dropped, and by [`AtomicFile::remove_all_live`](super::AtomicFile::remove_all_live).
#[derive(Debug)]
pub struct TemporaryFile {
    file: NamedTempFile,
    /// Declared last: the file is removed before it leaves the list.
    _live: LivePartial,
}

impl TemporaryFile {
    /// Creates a file in `folder`. Its name starts with `prefix` and ends with `suffix`.
    pub fn create(folder: &Path, prefix: &str, suffix: &str) -> Result<TemporaryFile> {
        // Opened here so that the error keeps its number. The mode is that of any new file.
        let open = |path: &Path| File::options().write(true).create_new(true).open(path);
        let create = || tempfile::Builder::new().prefix(prefix).suffix(suffix).make_in(folder, open);
        let path = folder.join(format!("{prefix}{suffix}"));
        let (file, live) = live::create(create).map_err(|error| write_error(&path, folder, error, 0))?;
        Ok(TemporaryFile { file, _live: live })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}
