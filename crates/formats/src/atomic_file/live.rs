//! The partial files and temporary directories that this process has open, so that a signal can remove them.

use super::stale;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::NamedTempFile;

static LIVE: Mutex<Live> = Mutex::new(Live { paths: Vec::new(), folders: Vec::new(), ended: false });

/// Held while complete files get their names, so that a signal does not come in between.
static NAMING: Mutex<()> = Mutex::new(());

struct Live {
    paths: Vec<PathBuf>,
    /// Temporary directories.
    folders: Vec<PathBuf>,
    /// Set when the process is about to end: no partial file may appear any more.
    ended: bool,
}

/// One entry of the list; leaves it when dropped.
#[derive(Debug)]
pub(super) struct LivePartial(PathBuf);

/// A temporary directory in the list. It is removed when dropped, and then leaves the list.
#[derive(Debug)]
pub(super) struct LiveFolder(PathBuf);

impl LiveFolder {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

/// Creates a directory and lists it, in one step as seen by [`remove_all`].
pub(super) fn create_folder(create: impl FnOnce() -> io::Result<PathBuf>) -> io::Result<LiveFolder> {
    let mut live = lock();
    if live.ended {
        return Err(ending());
    }
    let path = create()?;
    live.folders.push(path.clone());
    Ok(LiveFolder(path))
}

/// Creates a file and lists it, in one step as seen by [`remove_all`].
pub(super) fn create(create: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<(NamedTempFile, LivePartial)> {
    let mut live = lock();
    if live.ended {
        return Err(ending());
    }
    let partial = create()?;
    live.paths.push(partial.path().to_owned());
    let entry = LivePartial(partial.path().to_owned());
    Ok((partial, entry))
}

/// Begins the time in which files get their names: until its end [`remove_all`] waits.
pub(super) fn name() -> io::Result<MutexGuard<'static, ()>> {
    let naming = NAMING.lock().unwrap_or_else(PoisonError::into_inner);
    if lock().ended { Err(ending()) } else { Ok(naming) }
}

fn ending() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the program is ending")
}

/// Removes every listed file and directory.
pub(super) fn remove_all() {
    let _naming = NAMING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut live = lock();
    live.ended = true;
    for path in live.paths.drain(..) {
        // One that was renamed a moment ago is no longer there: it is complete.
        let _ = std::fs::remove_file(path);
    }
    live.folders.drain(..).for_each(|path| stale::remove_folder(&path));
}

impl Drop for LivePartial {
    fn drop(&mut self) {
        lock().paths.retain(|path| *path != self.0);
    }
}

impl Drop for LiveFolder {
    fn drop(&mut self) {
        stale::remove_folder(&self.0);
        lock().folders.retain(|path| *path != self.0);
    }
}

/// The list is whole after every step, so a panic elsewhere does not spoil it.
fn lock() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{create, lock};

    #[test]
    fn a_file_is_listed_until_it_is_dropped() {
        let (partial, entry) = create(tempfile::NamedTempFile::new).unwrap();
        let other = create(tempfile::NamedTempFile::new).unwrap();
        let is_listed = |path| lock().paths.contains(&path);
        assert!(is_listed(partial.path().to_owned()) && is_listed(other.0.path().to_owned()));
        drop(entry);
        assert!(!is_listed(partial.path().to_owned()));
        assert!(is_listed(other.0.path().to_owned()), "the others stay");
    }
}
