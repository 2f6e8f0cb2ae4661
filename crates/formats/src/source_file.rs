//! One input file: opened so that nothing can block or surprise, and watched for changes.
//!
//! ```text
//! open ── non-blocking, links followed ── regular? ── stamp: device, inode, size, times ── reads by place (pread)
//!                                            │                                                 │
//!                                        else refused                        unchanged(): the name still has the stamp
//! ```

use crate::error::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A regular file, open for reading by place.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    stamp: FileStamp,
}

/// What a file was when it was opened: its name and what the file system says about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStamp {
    path: PathBuf,
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds of the last change to the contents.
    modified: (i64, i64),
    /// The same of the last change to anything about it, which nobody can set back.
    changed: (i64, i64),
}

impl SourceFile {
    /// Opens a regular file, through links. Directories, pipes, sockets and devices are refused without waiting for
    /// them.
    pub fn open(path: impl AsRef<Path>) -> Result<SourceFile> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let descriptor = rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(|errno| open_error(path, errno.into()))?;
        let file = File::from(descriptor);
        let facts = file.metadata().map_err(|error| open_error(path, error))?;
        if !facts.is_file() {
            return Err(
                Error::new(path, format!("expected a regular file, found {}", kind_name(&facts))).help("pass a file")
            );
        }
        Ok(SourceFile { file, stamp: FileStamp::new(path, &facts) })
    }

    /// The name it was opened by.
    pub fn path(&self) -> &Path {
        &self.stamp.path
    }

    /// Its size when it was opened.
    pub fn bytes(&self) -> u64 {
        self.stamp.bytes
    }

    /// What it was when it was opened.
    pub fn stamp(&self) -> &FileStamp {
        &self.stamp
    }

    /// What tells this state of the file from every other: inode, size, times of the last change to the contents and to
    /// anything. Not the device, whose number may be another after a restart.
    pub(crate) fn identity(&self) -> Vec<u8> {
        let (inode, bytes) = (self.stamp.inode.to_le_bytes(), self.stamp.bytes.to_le_bytes());
        let (modified, changed) = (self.stamp.modified, self.stamp.changed);
        let times = [modified.0, modified.1, changed.0, changed.1].map(i64::to_le_bytes);
        [inode, bytes].concat().into_iter().chain(times.into_iter().flatten()).collect()
    }

    /// Fails when the file changed since it was opened.
    pub fn unchanged(&self) -> Result<()> {
        self.stamp.unchanged()
    }

    /// Fails when the contents were written to since it was opened, whatever its name leads to now.
    pub fn unwritten(&self) -> Result<()> {
        let facts = self.file.metadata().map_err(|error| open_error(self.path(), error))?;
        self.stamp.unwritten(&FileStamp::new(self.path(), &facts))
    }

    /// Fills `out` with the bytes from `offset` on; an end of file before that is an error.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|error| {
            let place = format!("{} bytes from byte {offset}", out.len());
            if error.kind() == std::io::ErrorKind::UnexpectedEof {
                Error::new(
                    self.path(),
                    format!("the file had {} bytes when it was opened and is shorter now", self.bytes()),
                )
                .at(place)
                .help("do not change a model while it is in use")
            } else {
                Error::new(self.path(), format!("cannot be read: {error}")).at(place)
            }
        })
    }

    /// The whole file, when it has at most `bytes_max` bytes.
    pub fn read_all(&self, bytes_max: u64) -> Result<Vec<u8>> {
        let size = usize::try_from(self.bytes()).ok().filter(|_| self.bytes() <= bytes_max).ok_or_else(|| {
            Error::new(
                self.path(),
                format!("expected at most {bytes_max} bytes for this kind of file, found {}", self.bytes()),
            )
        })?;
        let mut bytes = vec![0; size];
        self.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// The descriptor, for mapping.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl FileStamp {
    fn new(path: &Path, facts: &Metadata) -> FileStamp {
        let modified = (facts.mtime(), facts.mtime_nsec());
        let changed = (facts.ctime(), facts.ctime_nsec());
        let (device, inode, bytes) = (facts.dev(), facts.ino(), facts.size());
        FileStamp { path: path.to_owned(), device, inode, bytes, modified, changed }
    }

    /// Whether `facts` belong to the same file, whatever its name or contents.
    pub fn is_same_file(&self, facts: &Metadata) -> bool {
        (self.device, self.inode) == (facts.dev(), facts.ino())
    }

    /// Fails when the name no longer leads to the same file with the same size and times.
    pub fn unchanged(&self) -> Result<()> {
        let facts = match std::fs::metadata(&self.path) {
            Ok(facts) => facts,
            Err(error) => return Err(self.change(format!("it was removed ({error})"))),
        };
        let now = FileStamp::new(&self.path, &facts);
        if !self.is_same_file(&facts) {
            return Err(self.change("it was replaced by another file".to_owned()));
        }
        self.unwritten(&now)?;
        if self.changed != now.changed {
            return Err(self.change("its contents or attributes were modified".to_owned()));
        }
        Ok(())
    }

    /// Fails when the contents are others by size or time.
    fn unwritten(&self, now: &FileStamp) -> Result<()> {
        if self.bytes != now.bytes {
            return Err(self.change(format!("it had {} bytes and has {} now", self.bytes, now.bytes)));
        }
        if self.modified != now.modified {
            return Err(self.change("its modification time changed".to_owned()));
        }
        Ok(())
    }

    fn change(&self, what: String) -> Error {
        Error::new(&self.path, format!("the file changed while it was in use: {what}"))
            .help("run again when no other program is writing to it")
    }
}

/// Whether a file was not opened because this process, or the machine, may open no more: that says nothing of the file.
pub fn is_out_of_descriptors(error: &Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.problem == open_error(&error.path, (*errno).into()).problem)
}

fn open_error(path: &Path, error: std::io::Error) -> Error {
    Error::new(path, format!("cannot be opened: {error}"))
}

/// What stands at a name where a regular file was expected.
pub(crate) fn kind_name(facts: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = facts.file_type();
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else {
        "something else"
    }
}
