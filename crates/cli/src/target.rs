//! Where the outputs of one command go: each to a place of its own, none over a file that is read.

use crate::failure::{Failure, Result};
use crate::output;
use std::path::{Path, PathBuf};
use trueup::formats::{SourceFile, quote};

/// What one command writes beside stdout.
#[derive(Default)]
pub struct Targets<'a> {
    files: Vec<&'a Path>,
    folders: &'a [(PathBuf, &'static str)],
}

impl<'a> Targets<'a> {
    /// These files; `-` is stdout.
    pub fn files(files: impl IntoIterator<Item = &'a Path>) -> Targets<'a> {
        Targets { files: files.into_iter().collect(), folders: &[] }
    }

    /// The same and, in each of these folders, files whose names end like this.
    pub fn and_folders(self, folders: &'a [(PathBuf, &'static str)]) -> Targets<'a> {
        Targets { folders, ..self }
    }

    /// Fails before any work where an output has nowhere to go, two go to one place, or one would replace a file that is read: one of
    /// `sources`, which are open, or of the files `read`.
    pub fn check(&self, sources: &[&SourceFile], read: &[&Path]) -> Result<()> {
        let mut taken: Vec<(PathBuf, &Path)> = Vec::new();
        let read_places: Vec<PathBuf> = read.iter().map(|path| place(path)).collect();
        for target in &self.files {
            output::check_target(target, sources)?;
            let (place, shown) = (place(target), shown(target));
            if let Some((_, other)) = taken.iter().find(|(known, _)| *known == place) {
                let other =
                    if other == target { String::new() } else { format!(", which {} is too", self::shown(other)) };
                return Err(Failure::new(format!(
                    "{shown}: two outputs cannot go to one place{other}; choose another name for one"
                )));
            }
            if *target != Path::new("-") && read_places.contains(&place) {
                return Err(Failure::new(format!(
                    "{shown}: is read by this command; choose another name for the output"
                )));
            }
            taken.push((place, target));
        }
        self.check_folders(&taken, sources, read)
    }

    /// Fails where a file in a folder could be one of the others.
    fn check_folders(&self, taken: &[(PathBuf, &Path)], sources: &[&SourceFile], read: &[&Path]) -> Result<()> {
        let opened = sources.iter().map(|source| source.path());
        let read = opened.chain(read.iter().copied()).map(|path| (place(path), path));
        let others: Vec<(PathBuf, &Path)> = taken.iter().cloned().chain(read).collect();
        for (folder, ending) in self.folders {
            let own = place(folder);
            let inside = |path: &Path| {
                let name = path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending));
                name && path.parent() == Some(&own)
            };
            if let Some((_, other)) = others.iter().find(|(place, _)| inside(place)) {
                let (other, folder) = (shown(other), shown(folder));
                return Err(Failure::new(format!(
                    "{other}: lies in {folder}, where this command writes files of such names; choose another folder"
                )));
            }
        }
        Ok(())
    }
}

/// Whether two names are one place, links followed.
pub fn is_same(a: &Path, b: &Path) -> bool {
    place(a) == place(b)
}

/// One name for a place, links followed: of a file that is not there yet, its folder's and its own.
fn place(path: &Path) -> PathBuf {
    if path == Path::new("-") {
        return path.to_owned();
    }
    if let Ok(whole) = path.canonicalize() {
        return whole;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        (Ok(_) | Err(_), _) => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

fn shown(path: &Path) -> String {
    quote(&path.to_string_lossy())
}
