//! Partial files that outlive their process: what a run with `--resume` leaves for the next.
//!
//! ```text
//! .NAME.resume.partial     the output so far
//! .NAME.journal.partial    what of it is finished
//!
//! claim:  open, no links followed ── ours? ── lock ── still under that name? ── taken
//!             │ nothing there           │ no: a link, a pipe, another user's, two names
//!             └ create, exclusive       └ its name is removed, and a new file is made
//! ```
//!
//! The names have no random part, so that the next run finds them; whoever holds the lock owns the file.

use super::{AtomicFile, check_target, folder_of, partial_prefix, stale, write_error};
use crate::error::{Error, Result};
use crate::source_file::{FileStamp, SourceFile};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::{NamedTempFile, TempPath};

/// The end of the name of an output that is to be resumed.
pub(crate) const DATA: &str = "resume.partial";

/// The end of the name of a journal.
pub(crate) const JOURNAL: &str = "journal.partial";

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

/// The name of a kept file that belongs to the output `path`.
pub(crate) fn kept_path(path: &Path, ending: &str) -> Result<PathBuf> {
    let mut name = partial_prefix(path)?;
    name.push(ending);
    Ok(path.with_file_name(name))
}

/// Opens or creates a kept file and locks it. Nothing but a file of this user with this one name is opened.
pub(crate) fn claim(path: PathBuf) -> Result<Claim> {
    let (mut replaced, mut taken) = (false, None);
    for _ in 0..ATTEMPTS {
        let file = match open(&path)? {
            Standing::Ours(file) => file,
            Standing::Nothing => match create(&path)? {
                Some(file) => file,
                None => continue,
            },
            Standing::Foreign => {
                remove_name(&path)?;
                replaced = true;
                continue;
            }
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The process that had it may have removed it, or given it its final name, in the meantime.
            Ok(()) if has_name(&file, &path) => return Ok(Claim::Mine(KeptFile { file, path, replaced })),
            Ok(()) => taken = None,
            Err(Errno::WOULDBLOCK) => {
                taken = Some(file);
                std::thread::sleep(WAIT);
            }
            Err(errno) => {
                let problem = format!("cannot be locked, which --resume needs: {}", std::io::Error::from(errno));
                return Err(Error::new(path, problem).help("run without --resume, or write to another disk"));
            }
        }
    }
    taken.map(Claim::Taken).ok_or_else(|| {
        Error::new(path, "was removed by another process again and again").help("stop the other process")
    })
}

/// What a failed write to a kept file means.
pub(crate) fn fault(path: &Path, error: std::io::Error) -> Error {
    write_error(path, &folder_of(path), error, 0)
}

/// A kept file, locked; `None` when it is not there or someone has it locked.
pub(crate) fn lock_existing(path: &Path) -> Option<File> {
    // Nearly always there is none, and nothing is opened then.
    std::fs::symlink_metadata(path).ok().and_then(|_| stale::lock(path)).map(File::from)
}

/// Removes a kept file unless someone has it locked.
pub(crate) fn discard(path: &Path) {
    if let Some(_locked) = lock_existing(path) {
        let _ = std::fs::remove_file(path);
    }
}

impl AtomicFile {
    /// As [`AtomicFile::create`], but goes on with the partial file that an earlier run kept, if there is one, and
    /// keeps it when it is dropped.
    pub(crate) fn create_kept(path: &Path, inputs: &[&SourceFile]) -> Result<AtomicFile> {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let inputs: Vec<FileStamp> = inputs.iter().map(|input| input.stamp().clone()).collect();
        check_target(&path, &inputs)?;
        let folder = folder_of(&path);
        stale::remove(&folder, &partial_prefix(&path)?);
        let kept = match claim(kept_path(&path, DATA)?)? {
            Claim::Mine(kept) => kept,
            Claim::Taken(_) => {
                return Err(Error::new(&path, "another run with --resume is writing it").help("wait for it, or end it"));
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

    /// Removes the partial file when it is dropped, though it was to be kept.
    pub(crate) fn forget(&mut self) {
        self.partial.disable_cleanup(false);
    }
}

/// What stands at the name of a kept file.
enum Standing {
    Ours(File),
    Nothing,
    Foreign,
}

fn open(path: &Path) -> Result<Standing> {
    // Not blocked by a pipe, and no link followed: neither was made here.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let file = match rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())) {
        Ok(descriptor) => File::from(descriptor),
        Err(Errno::NOENT) => return Ok(Standing::Nothing),
        Err(Errno::LOOP | Errno::NXIO | Errno::ACCESS | Errno::ISDIR | Errno::NODEV | Errno::PERM) => {
            return Ok(Standing::Foreign);
        }
        Err(errno) => {
            return Err(Error::new(path, format!("cannot be opened: {}", std::io::Error::from(errno))));
        }
    };
    let facts = file.metadata().map_err(|error| Error::new(path, format!("cannot be opened: {error}")))?;
    Ok(match facts.nlink() {
        // Removed a moment ago.
        0 => Standing::Nothing,
        _ if is_ours(&facts) => Standing::Ours(file),
        _ => Standing::Foreign,
    })
}

fn is_ours(facts: &Metadata) -> bool {
    facts.is_file() && facts.nlink() == 1 && facts.uid() == rustix::process::geteuid().as_raw()
}

/// `None` when another process was faster.
fn create(path: &Path) -> Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).create_new(true).mode(0o666).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(write_error(path, &folder_of(path), error, 0)),
    }
}

fn remove_name(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let problem = format!("stands where a partial file goes and cannot be removed: {error}");
            Err(Error::new(path, problem).help("remove it"))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn has_name(file: &File, path: &Path) -> bool {
    let place = |facts: Metadata| (facts.dev(), facts.ino());
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => place(open) == place(named),
        (Ok(_) | Err(_), _) => false,
    }
}
