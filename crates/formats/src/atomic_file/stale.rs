//! Partial files that a killed process left behind.

use super::RANDOM_CHARS;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The end of every partial file's name.
pub(super) const SUFFIX: &str = ".partial";

/// Removes the files `PREFIX RANDOM .partial` of a folder that nobody has locked. What cannot be removed stays: it
/// harms nobody.
pub(super) fn remove(folder: &Path, prefix: &OsStr) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| is_partial_name(&entry.file_name(), prefix)) {
        // The lock is held until the name is gone: whoever has just created the file sees one or the other.
        if let Some(_locked) = lock(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn is_partial_name(name: &OsStr, prefix: &OsStr) -> bool {
    let random = name.as_bytes().strip_prefix(prefix.as_bytes()).and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    random.is_some_and(|random| random.len() == RANDOM_CHARS && random.iter().all(u8::is_ascii_alphanumeric))
}

/// A regular file, not a link, whose lock nobody holds.
pub(super) fn lock(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let descriptor = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let facts = rustix::fs::fstat(&descriptor).ok()?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
        return None;
    }
    rustix::fs::flock(&descriptor, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(descriptor)
}
