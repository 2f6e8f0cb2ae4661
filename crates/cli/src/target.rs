//! Checks the output paths of a command: they must differ from each other and from every input file.

use crate::failure::{Failure, Result};
use crate::output;
use std::path::{Path, PathBuf};
use trueup::formats::{SourceFile, quote};

/// The output files and directories of a command.
#[derive(Default)]
pub struct Targets<'a> {
    files: Vec<&'a Path>,
    folders: &'a [(PathBuf, &'static str)],
}

impl<'a> Targets<'a> {
    /// Output files; `-` means stdout.
    pub fn files(files: impl IntoIterator<Item = &'a Path>) -> Targets<'a> {
        Targets { files: files.into_iter().collect(), folders: &[] }
    }

    /// Adds directories in which the command writes files with the given name endings.
    pub fn and_folders(self, folders: &'a [(PathBuf, &'static str)]) -> Targets<'a> {
        Targets { folders, ..self }
    }

    /// Checks the outputs before any work.
    ///
    /// Fails if an output cannot be written, if two outputs have the same path, or if an output would replace an input:
    /// one of the open files `sources` or the paths `read`.
    pub fn check(&self, sources: &[&SourceFile], read: &[&Path]) -> Result<()> {
        let mut taken: Vec<(PathBuf, &Path)> = Vec::new();
        let read_places: Vec<PathBuf> = read.iter().map(|path| place(path)).collect();
        for target in &self.files {
            output::check_target(target, sources)?;
            let (place, shown) = (place(target), shown(target));
            if let Some((_, other)) = taken.iter().find(|(known, _)| *known == place) {
                let same = match other == target {
                    true => "this path is given for two outputs".to_owned(),
                    false => format!("this output is the same file as {}", self::shown(other)),
                };
                return Err(Failure::new(format!("{shown}: {same}; choose another path for one of them")));
            }
            if *target != Path::new("-") && read_places.contains(&place) {
                return Err(Failure::new(format!(
                    "{shown}: the output path is also an input; choose another output path"
                )));
            }
            taken.push((place, target));
        }
        self.check_folders(&taken, sources, read)
    }

    /// Fails if an input or another output could be overwritten by a file in an output directory.
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
                    "{other}: this file could be overwritten in the output directory {folder}; choose another directory"
                )));
            }
        }
        Ok(())
    }
}

/// Whether two paths refer to the same file. Follows links.
pub fn is_same(a: &Path, b: &Path) -> bool {
    place(a) == place(b)
}

/// The canonical path of a file; for a file that does not exist, of its directory, joined with its name.
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
