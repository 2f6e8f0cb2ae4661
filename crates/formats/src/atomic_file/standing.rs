//! What stands at the name of a partial file: looked at without waiting for it, following it, or trusting it.

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What has a name.
pub(super) enum Standing {
    /// A regular file, opened.
    Regular(File),
    /// A link, a pipe, a folder, a device or a socket.
    Other,
    Nothing,
}

/// Opens what stands at a name, with the given access. An error where that is a regular file that cannot be opened.
pub(super) fn look(path: &Path, access: OFlags) -> io::Result<Standing> {
    // Not blocked by a pipe, and no link followed: neither was made here.
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
    match rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())) {
        Ok(descriptor) => {
            let file = File::from(descriptor);
            let is_file = file.metadata()?.is_file();
            Ok(if is_file { Standing::Regular(file) } else { Standing::Other })
        }
        Err(Errno::NOENT) => Ok(Standing::Nothing),
        Err(errno) => match std::fs::symlink_metadata(path) {
            Ok(facts) if !facts.is_file() => Ok(Standing::Other),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Standing::Nothing),
            Ok(_) | Err(_) => Err(errno.into()),
        },
    }
}

/// Opens a directory, but not through a link.
pub(super) fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(File::from(rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?))
}

/// Whether the lock of a file could be had; `false` when someone else has it.
pub(super) fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// A regular file whose lock nobody had, locked now.
pub(super) fn lock_regular(path: &Path) -> Option<File> {
    match look(path, OFlags::RDONLY) {
        Ok(Standing::Regular(file)) => try_lock(&file).is_ok_and(|locked| locked).then_some(file),
        Ok(Standing::Other | Standing::Nothing) | Err(_) => None,
    }
}

/// Whether a name leads to an open file itself, and not by a link.
pub(super) fn has_name(file: &File, path: &Path) -> bool {
    let place = |facts: Metadata| (facts.dev(), facts.ino());
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => place(open) == place(named),
        (Ok(_) | Err(_), _) => false,
    }
}

/// Removes the name of an open file where it still leads to that file.
pub(super) fn remove_own(file: &File, path: &Path) {
    if has_name(file, path) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::{Standing, look};
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    /// What stands there, in a word.
    fn seen(path: &Path, access: OFlags) -> &'static str {
        match look(path, access) {
            Ok(Standing::Regular(_)) => "regular",
            Ok(Standing::Other) => "other",
            Ok(Standing::Nothing) => "nothing",
            Err(_) => "refused",
        }
    }

    #[test]
    fn whatever_has_a_name_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "x").unwrap();
        fs::create_dir(path("folder")).unwrap();
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("none"), path("broken")).unwrap();
        let cases = [
            ("file", "regular"),
            ("folder", "other"),
            ("pipe", "other"),
            ("link", "other"),
            ("broken", "other"),
            ("none", "nothing"),
            // Nobody knows what stands below a file, or below a folder that is not there.
            ("file/below", "refused"),
            ("none/below", "nothing"),
        ];
        for (name, expected) in cases {
            for access in [OFlags::RDONLY, OFlags::RDWR] {
                assert_eq!(seen(&path(name), access), expected, "{name} {access:?}");
            }
        }
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_refused_and_not_called_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::copy("/bin/sleep", &path).unwrap();
        // Nobody may write to a program that runs, root neither.
        let mut running = Command::new(&path).arg("60").spawn().unwrap();
        let found = (seen(&path, OFlags::RDWR), seen(&path, OFlags::RDONLY));
        running.kill().and_then(|()| running.wait()).unwrap();
        assert_eq!(found, ("refused", "regular"));
    }
}
