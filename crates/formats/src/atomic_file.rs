//! Output files that are either the old one or the complete new one, whatever happens in between.
//!
//! ```text
//! create ── .NAME.RANDOM.partial beside NAME: exclusive, locked ── preallocate ── write ── commit:
//!             sync ── inputs unchanged? ── still under its own name? ── rename over NAME ── sync the folder
//! ```
//!
//! Until the rename the old file is untouched. A partial file that is dropped is removed; one that a killed process
//! left behind has no lock any more and is removed by the next writer of the same name. What a run with `--resume`
//! keeps has names of its own ([`kept`]).
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("answer.txt");
//! use trueup_formats::AtomicFile;
//!
//! let mut file = AtomicFile::create(&path, &[])?;
//! file.write_all(b"42")?;
//! assert!(!path.exists());
//! file.commit()?;
//! assert_eq!(std::fs::read(&path)?, b"42");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod kept;
mod live;
mod naming;
mod stale;
mod standing;
mod temporary;

use crate::error::{Error, Result, quote};
use crate::source_file::{FileStamp, SourceFile, kind_name};
use live::LivePartial;
pub(crate) use naming::{Left, Uncommitted};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
pub use temporary::TemporaryFile;

/// Random characters in the name of a partial file.
const RANDOM_CHARS: usize = 8;

/// Longest part of the output's name that its partial file repeats, so that both are valid names (255 bytes on most
/// systems).
const NAME_BYTES_MAX: usize = 200;

/// Attempts to get a partial file that no other process has just taken for a stale one.
const CREATE_ATTEMPTS: usize = 16;

/// A file that appears under its name only when it is complete.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    folder: PathBuf,
    partial: NamedTempFile,
    inputs: Vec<FileStamp>,
    /// Where `write_all` goes on.
    position: u64,
    /// Declared last: the partial file is gone before it leaves the list. `None` for one that is to be kept.
    _live: Option<LivePartial>,
}

impl AtomicFile {
    /// Starts a new version of `path`. `inputs` are the files it is made from: none of them may be `path` itself, and
    /// [`commit`](AtomicFile::commit) fails when one has changed by then. A link at `path` is followed.
    pub fn create(path: impl AsRef<Path>, inputs: &[&SourceFile]) -> Result<AtomicFile> {
        let inputs: Vec<FileStamp> = inputs.iter().map(|input| input.stamp().clone()).collect();
        // Messages name the path as it was given.
        check_target(path.as_ref(), &inputs)?;
        let path = std::fs::canonicalize(&path).unwrap_or_else(|_| path.as_ref().to_owned());
        let folder = folder_of(&path);
        let prefix = partial_prefix(&path)?;
        stale::remove(&folder, &prefix);
        let (partial, live) = create_partial(&path, &folder, &prefix)?;
        Ok(AtomicFile { path, folder, partial, inputs, position: 0, _live: Some(live) })
    }

    /// The name that the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Claims `bytes` of disk space, so that a full disk is known before the work is done. The file then has that size.
    pub fn preallocate(&mut self, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // A stop and a continuation interrupt it.
        let claim = || rustix::fs::fallocate(self.file(), FallocateFlags::empty(), 0, bytes);
        match rustix::io::retry_on_intr(claim) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.file().set_len(bytes).map_err(|error| self.fault(error, bytes))
            }
            Err(errno) => Err(self.fault(errno.into(), bytes)),
        }
    }

    /// Writes after what `write_all` wrote before.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_at(self.position, bytes)?;
        self.position = self.position.saturating_add(len(bytes));
        Ok(())
    }

    /// Writes at a place; several threads may write to different places at once.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file().write_all_at(bytes, offset).map_err(|error| self.fault(error, len(bytes)))
    }

    /// Makes the file appear under its name, complete and on the disk.
    pub fn commit(self) -> Result<()> {
        AtomicFile::commit_all(vec![self])
    }

    /// Makes several files appear that are one whole: all are complete on the disk before the first gets its name. The
    /// first of the list is the one that leads to the others: its old version goes before any new file gets its name,
    /// and the new one gets its name last, so that a set which is interrupted in between does not open instead of being
    /// a mixture of old and new.
    pub fn commit_all(files: Vec<AtomicFile>) -> Result<()> {
        AtomicFile::try_commit(files).map_err(|uncommitted| uncommitted.error)
    }

    /// As [`commit_all`](AtomicFile::commit_all), and says what is left where that fails.
    pub(crate) fn try_commit(files: Vec<AtomicFile>) -> std::result::Result<(), Uncommitted> {
        for file in &files {
            file.file().sync_all().map_err(|error| file.fault(error, 0))?;
        }
        files.iter().try_for_each(AtomicFile::check)?;
        naming::give_names(files)
    }

    /// Fails when an input changed, or the name became one that may not be written.
    fn check(&self) -> Result<()> {
        self.inputs.iter().try_for_each(FileStamp::unchanged)?;
        check_target(&self.path, &self.inputs)
    }

    /// Whether the partial file still has its name: a rename gives the output whatever has it.
    pub(crate) fn is_named(&self) -> bool {
        standing::has_name(self.file(), self.partial.path())
    }

    /// The partial file has not its name any more.
    fn lost(&self) -> Error {
        let name = quote(&self.partial.path().file_name().unwrap_or_default().to_string_lossy());
        let problem = format!("its partial file {name} was removed or replaced by another process");
        Error::new(&self.path, problem).help("stop the other process and run again")
    }

    /// Removes the partial files of this process and lets it create no more: for the moment before a signal ends it.
    pub fn remove_all_live() {
        live::remove_all();
    }

    fn file(&self) -> &File {
        self.partial.as_file()
    }

    /// A failed write of so many bytes; a file that was preallocated needs all of its own.
    fn fault(&self, error: io::Error, bytes: u64) -> Error {
        let planned = self.file().metadata().map_or(0, |facts| facts.len());
        write_error(&self.path, &self.folder, error, bytes.max(planned))
    }
}

/// Bytes that an unprivileged process can still write to the file system of `folder`. `None` if it does not say.
pub fn free_disk_bytes(folder: &Path) -> Option<u64> {
    rustix::fs::statvfs(folder).ok().map(|facts| facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// The folder that holds `path`.
fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// An output may replace a regular file that is none of the inputs, and nothing else.
fn check_target(path: &Path, inputs: &[FileStamp]) -> Result<()> {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(Error::new(path, "expected a file name, found a directory name").help("pass a file name"));
    }
    let facts = match std::fs::metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let problem = format!("cannot be written: {error}");
            return Err(Error::new(path, problem).help("choose another name for the output"));
        }
    };
    if !facts.is_file() {
        return Err(
            Error::new(path, format!("expected a file to write, found {}", kind_name(&facts))).help("pass a file name")
        );
    }
    if inputs.iter().any(|input| input.is_same_file(&facts)) {
        return Err(Error::new(path, "the output path is also an input").help("choose another output path"));
    }
    Ok(())
}

/// `.NAME.`, from the last part of the path.
fn partial_prefix(path: &Path) -> Result<OsString> {
    let name = path
        .file_name()
        .ok_or_else(|| Error::new(path, "expected the name of a file, found none").help("pass a file name"))?;
    let kept = name.as_bytes().get(..NAME_BYTES_MAX).unwrap_or(name.as_bytes());
    Ok(OsString::from_vec([b".", kept, b"."].concat()))
}

/// A new locked file. A file without its lock may be taken for a stale one and removed between its creation and its
/// locking: it then has no name any more and another is made.
fn create_partial(path: &Path, folder: &Path, prefix: &OsString) -> Result<(NamedTempFile, LivePartial)> {
    for _ in 0..CREATE_ATTEMPTS {
        // Opened here and not by the library, whose errors lose the number. The mode is that of any new file, less what
        // the process masks.
        let open = |path: &Path| File::options().read(true).write(true).create_new(true).open(path);
        let create = || {
            let mut name = tempfile::Builder::new();
            name.prefix(prefix).suffix(stale::SUFFIX).rand_bytes(RANDOM_CHARS).make_in(folder, open)
        };
        let (partial, live) = live::create(create).map_err(|error| write_error(path, folder, error, 0))?;
        // Held for a moment by a process that looks for stale files. On a file system without locks, writers of the
        // same name are told apart by their random parts alone.
        if rustix::fs::flock(partial.as_file(), FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            continue;
        }
        let facts = partial.as_file().metadata().map_err(|error| write_error(path, folder, error, 0))?;
        if facts.nlink() > 0 {
            return Ok((partial, live));
        }
    }
    Err(Error::new(path, "another process keeps removing the partial file").help("stop the other process"))
}

/// What a failed write means, with the numbers that help; `bytes` is what it needed, or 0.
fn write_error(path: &Path, folder: &Path, error: io::Error, bytes: u64) -> Error {
    let (problem, help) = explain(folder, &error, bytes);
    let error = Error::new(path, problem);
    if help.is_empty() { error } else { error.help(help) }
}

/// The problem, and what to do about it, if anything is known.
fn explain(folder: &Path, error: &io::Error, bytes: u64) -> (String, &'static str) {
    let needed = if bytes > 0 { format!("{bytes} bytes needed, ") } else { String::new() };
    match error.kind() {
        ErrorKind::StorageFull => {
            let available =
                free_disk_bytes(folder).map_or_else(|| "an unknown number".to_owned(), |bytes| bytes.to_string());
            let problem = format!("no space left on the disk: {needed}{available} bytes available");
            (problem, "free some space or write to another disk; the old file, if any, is unchanged")
        }
        ErrorKind::QuotaExceeded => {
            let needed = needed.trim_end_matches(", ");
            let problem = format!("the quota of this user or project on the disk is exceeded: {needed}");
            let problem = problem.trim_end_matches(": ").to_owned();
            (
                problem,
                "free some space, request a larger quota, or write to another disk; the old file, if any, \
                is unchanged",
            )
        }
        ErrorKind::ReadOnlyFilesystem => {
            ("cannot be written: the file system is read-only".to_owned(), "write to another directory")
        }
        ErrorKind::FileTooLarge => {
            let problem = format!("cannot be written: {needed}more than the maximum file size here");
            (problem, "raise the limit (ulimit -f), use another file system, or split the file")
        }
        ErrorKind::NotFound if !folder.is_dir() => {
            let folder = quote(&folder.to_string_lossy());
            (
                format!("cannot be written: the directory {folder} does not exist"),
                "create it, or choose another path for the output",
            )
        }
        // No kind of its own.
        _ if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
            let problem = "cannot be written: the disk reported an input/output error".to_owned();
            (problem, "check the disk; the old file, if any, is unchanged")
        }
        _ => (format!("cannot be written: {error}"), ""),
    }
}
