//! Partial files that a killed process left behind.

use super::standing::{has_name, lock_regular, open_folder, remove_own, try_lock};
use super::{NAME_BYTES_MAX, RANDOM_CHARS};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The end of every partial file's name.
pub(super) const SUFFIX: &str = ".partial";

/// What follows the stem in the name of one file of a split model; `d` is a digit.
const OF_SPLIT: &[u8] = b"-ddddd-of-ddddd.gguf";

/// Removes the files `PREFIX RANDOM .partial` of a folder that nobody has locked. What cannot be removed stays: it
/// harms nobody.
pub(super) fn remove(folder: &Path, prefix: &OsStr) {
    remove_where(folder, |name| name.strip_prefix(prefix.as_bytes()).is_some_and(is_random));
}

/// The same of all files that a split model of this stem may have had, whatever their count.
pub(super) fn remove_split(folder: &Path, stem: &OsStr) {
    remove_where(folder, |name| is_split_partial(name, stem.as_bytes()));
}

/// Removes the temporary directories `PREFIX RANDOM .partial` of a folder that belong to this user and are not locked.
pub(super) fn remove_folders(folder: &Path, prefix: &OsStr) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let is_meant = |name: &OsStr| {
        let random = name.as_bytes().strip_prefix(prefix.as_bytes());
        random.and_then(|random| random.strip_suffix(SUFFIX.as_bytes())).is_some_and(is_random)
    };
    for path in entries.flatten().filter(|entry| is_meant(&entry.file_name())).map(|entry| entry.path()) {
        let Ok(open) = open_folder(&path) else { continue };
        let is_ours = open.metadata().is_ok_and(|facts| facts.uid() == rustix::process::geteuid().as_raw());
        if is_ours && try_lock(&open).is_ok_and(|locked| locked) && has_name(&open, &path) {
            remove_folder(&path);
        }
    }
}

/// Removes a temporary directory with its files. A directory in which there are other directories stays.
pub(super) fn remove_folder(path: &Path) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let _ = std::fs::remove_file(entry.path());
    }
    let _ = std::fs::remove_dir(path);
}

fn remove_where(folder: &Path, is_meant: impl Fn(&[u8]) -> bool) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let is_meant = |name: &OsStr| name.as_bytes().strip_suffix(SUFFIX.as_bytes()).is_some_and(&is_meant);
    for entry in entries.flatten().filter(|entry| is_meant(&entry.file_name())) {
        // The lock is held until the name is gone: whoever has just created the file sees one or the other.
        if let Some(locked) = lock_regular(&entry.path()) {
            remove_own(&locked, &entry.path());
        }
    }
}

fn is_random(part: &[u8]) -> bool {
    part.len() == RANDOM_CHARS && part.iter().all(u8::is_ascii_alphanumeric)
}

/// `.STEM-ddddd-of-ddddd.gguf.RANDOM`, the part between the dots cut as in any partial file.
fn is_split_partial(name: &[u8], stem: &[u8]) -> bool {
    let Some((shown, random)) = name.len().checked_sub(RANDOM_CHARS).and_then(|end| name.split_at_checked(end)) else {
        return false;
    };
    let Some(shown) = shown.strip_prefix(b".").and_then(|shown| shown.strip_suffix(b".")) else { return false };
    let stem = stem.get(..NAME_BYTES_MAX).unwrap_or(stem);
    let Some(rest) = shown.strip_prefix(stem) else { return false };
    let expected = OF_SPLIT.len().min(NAME_BYTES_MAX.saturating_sub(stem.len()));
    let fits = |(found, form): (&u8, &u8)| if *form == b'd' { found.is_ascii_digit() } else { found == form };
    is_random(random) && rest.len() == expected && rest.iter().zip(OF_SPLIT).all(fits)
}
