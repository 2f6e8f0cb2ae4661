//! Partial files that outlive their process: what a run with `--resume` leaves for the next.
//!
//! ```text
//! .NAME.resume.partial     the output so far
//! .NAME.journal.partial    what of it is finished
//!
//! claim:  open, no links followed ── regular? ── lock ── still under that name? ── ours? ── taken
//!             │ nothing there           │ no: a link, a pipe                          │ no: another user's, two names
//!             └ create, exclusive       └─────────── its name is removed, and a new file is made
//! ```
//!
//! The names have no random part, so that the next run finds them; whoever holds the lock owns the file.

use super::standing::{Standing, has_name, lock_regular, look, remove_own, try_lock};
use super::{AtomicFile, NAME_BYTES_MAX, check_target, folder_of, partial_prefix, stale, write_error};
use crate::error::{Error, Result};
use crate::hexadecimal::hexadecimal;
use crate::source_file::{FileStamp, SourceFile};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::{NamedTempFile, TempPath};

/// The end of the name of an output that is to be resumed.
pub(crate) const DATA: &str = "resume.partial";

/// The end of the name of a journal.
pub(crate) const JOURNAL: &str = "journal.partial";

/// Bytes of the hash in the name of a kept file whose output has a long name.
const HASH_BYTES: usize = 8;

/// Attempts to get a file that another process looks at or removes just now, and the wait after one that was in vain.
const ATTEMPTS: usize = 16;
const WAIT: Duration = Duration::from_millis(10);

/// A kept file that this process has locked.
#[derive(Debug)]
pub(crate) struct KeptFile {
    pub file: File,
    pub path: PathBuf,
    /// Whether something else had its name, which was removed.
    pub replaced: bool,
}

/// What came of the wish to own a kept file.
pub(crate) enum Claim {
    /// It is this process's; empty when it was not there.
    Mine(KeptFile),
    /// Another process has it locked.
    Taken(File),
}

/// The name of a kept file that belongs to the output `path`. Where it repeats a part of that name only, a hash tells
/// it from those that begin alike, as the files of one model do.
pub(crate) fn kept_path(path: &Path, ending: &str) -> Result<PathBuf> {
    let mut name = partial_prefix(path)?;
    let whole = path.file_name().unwrap_or_default().as_bytes();
    if whole.len() > NAME_BYTES_MAX {
        let hash = Sha256::digest(whole);
        name.push(hexadecimal(hash.get(..HASH_BYTES).unwrap_or(&hash)));
        name.push(".");
    }
    name.push(ending);
    Ok(path.with_file_name(name))
}

/// Opens or creates a kept file and locks it. What anyone has locked is left to him, whatever it is.
pub(crate) fn claim(path: PathBuf) -> Result<Claim> {
    let (mut replaced, mut taken) = (false, None);
    for _ in 0..ATTEMPTS {
        let file = match look(&path, OFlags::RDWR).map_err(|error| not_opened(&path, &error))? {
            Standing::Regular(file) => file,
            Standing::Nothing => match create(&path)? {
                Some(file) => file,
                None => continue,
            },
            Standing::Other => {
                remove_name(&path)?;
                replaced = true;
                continue;
            }
        };
        match try_lock(&file) {
            // The process that had it may have removed it, or given it its final name, in the meantime.
            Ok(true) if !has_name(&file, &path) => taken = None,
            Ok(true) if is_ours(&file) => return Ok(Claim::Mine(KeptFile { file, path, replaced })),
            Ok(true) => {
                remove_name(&path)?;
                replaced = true;
            }
            Ok(false) => {
                taken = Some(file);
                std::thread::sleep(WAIT);
            }
            Err(error) => {
                let problem = format!("cannot be locked, which --resume needs: {error}");
                return Err(Error::new(path, problem).help("run without --resume, or write to another disk"));
            }
        }
    }
    taken
        .map(Claim::Taken)
        .ok_or_else(|| Error::new(path, "another process keeps removing it").help("stop the other process"))
}

/// What a failed write to a kept file means.
pub(crate) fn fault(path: &Path, error: std::io::Error) -> Error {
    write_error(path, &folder_of(path), error, 0)
}

/// A kept file, locked; `None` when it is not there or someone has it locked.
pub(crate) fn lock_existing(path: &Path) -> Option<File> {
    // Nearly always there is none, and nothing is opened then.
    std::fs::symlink_metadata(path).ok().and_then(|_| lock_regular(path))
}

/// Removes a kept file unless someone has it locked.
pub(crate) fn discard(path: &Path) {
    if let Some(locked) = lock_existing(path) {
        remove(&locked, path);
    }
}

/// Where the output's name is a link, what was kept is beside the file that it leads to; removes what was kept beside
/// the link itself before it became one, unless someone has that locked.
pub(crate) fn discard_beside_link(path: &Path) {
    let is_link = path.symlink_metadata().is_ok_and(|facts| facts.is_symlink());
    // A link that leads nowhere is replaced by the output.
    if is_link
        && path.exists()
        && let Ok(kept) = kept_path(path, DATA)
    {
        discard(&kept);
    }
}

/// Removes a kept file that this process has locked, where it still has its name.
pub(crate) fn remove(file: &File, path: &Path) {
    remove_own(file, path);
}

/// Whether a kept file of this process still has its name.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    has_name(file, path)
}

/// Removes the partial files without a lock of all files that an output at `path` may have been split into, and of
/// `path` itself.
pub(crate) fn remove_stale(path: &Path, stem: &OsStr) {
    let folder = folder_of(path);
    if let Ok(prefix) = partial_prefix(path) {
        stale::remove(&folder, &prefix);
    }
    stale::remove_split(&folder, stem);
}

impl AtomicFile {
    /// As [`AtomicFile::create`], but goes on with the partial file that an earlier run kept, if there is one, and
    /// keeps it when it is dropped.
    pub(crate) fn create_kept(path: &Path, inputs: &[&SourceFile]) -> Result<AtomicFile> {
        let named = path;
        let path = std::fs::canonicalize(named).unwrap_or_else(|_| named.to_owned());
        let inputs: Vec<FileStamp> = inputs.iter().map(|input| input.stamp().clone()).collect();
        check_target(&path, &inputs)?;
        discard_beside_link(named);
        let folder = folder_of(&path);
        stale::remove(&folder, &partial_prefix(&path)?);
        let kept = match claim(kept_path(&path, DATA)?)? {
            Claim::Mine(kept) => kept,
            Claim::Taken(_) => {
                return Err(Error::new(&path, "another run with --resume is writing it").help(
                    "wait for it, or \
                    stop it",
                ));
            }
        };
        let named = TempPath::try_from_path(&kept.path).map_err(|error| write_error(&path, &folder, error, 0))?;
        let mut partial = NamedTempFile::from_parts(kept.file, named);
        partial.disable_cleanup(true);
        Ok(AtomicFile { path, folder, partial, inputs, position: 0, _live: None })
    }

    /// Cuts what stands in the file to `bytes`, if it has more.
    pub(crate) fn cut(&self, bytes: u64) -> Result<()> {
        let cut = self
            .file()
            .metadata()
            .and_then(|facts| if facts.len() > bytes { self.file().set_len(bytes) } else { Ok(()) });
        cut.map_err(|error| self.fault(error, 0))
    }

    /// Fills `out` with what was written from `offset` on.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        use std::os::unix::fs::FileExt;
        let read = self.file().read_exact_at(out, offset);
        read.map_err(|error| Error::new(&self.path, format!("its partial file cannot be read: {error}")))
    }

    /// Waits until everything that was written is on the disk.
    pub(crate) fn sync_data(&self) -> Result<()> {
        self.file().sync_data().map_err(|error| self.fault(error, 0))
    }

    /// Makes the name of the partial file last.
    pub(crate) fn sync_name(&self) -> Result<()> {
        super::naming::sync_folder(&self.folder).map_err(|error| self.fault(error, 0))
    }

    /// Removes the partial file when it is dropped, though it was to be kept; not another one that has its name by
    /// then.
    pub(crate) fn forget(&mut self) {
        self.partial.disable_cleanup(!self.is_named());
    }
}

/// A file of this user, with one name.
fn is_ours(file: &File) -> bool {
    let is_ours = |facts: Metadata| facts.nlink() == 1 && facts.uid() == rustix::process::geteuid().as_raw();
    file.metadata().is_ok_and(is_ours)
}

/// `None` when another process was faster.
fn create(path: &Path) -> Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).create_new(true).mode(0o666).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(write_error(path, &folder_of(path), error, 0)),
    }
}

fn not_opened(path: &Path, error: &std::io::Error) -> Error {
    let problem = format!("occupies the name of the partial file and cannot be opened: {error}");
    Error::new(path, problem).help("remove it, unless another run is writing it")
}

fn remove_name(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let problem = format!("occupies the name of the partial file and cannot be removed: {error}");
            Err(Error::new(path, problem).help("remove it"))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::claim;

    #[test]
    fn a_folder_that_is_missing_is_named_as_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let error = claim(folder.path().join("none/.out.partial")).err().unwrap().to_string();
        assert!(error.contains("does not exist; create it, or choose"), "{error}");
    }
}
