//! A GGUF model as far as it can be read: all files of a split set that are there, with what each says of itself.
//!
//! ```text
//! NAME-00002-of-00003.gguf ─ its name gives the set ─┬─ 1: part     2: part     3: missing
//!                                                    └─ Gguf of all tensors whose bytes are there
//! ```

use super::header::Header;
use super::split_name::SplitName;
use super::{KEY_SPLIT_COUNT, KEY_SPLIT_NUMBER, KEY_SPLIT_TENSORS, Metadata, reader::Gguf};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result, quote};
use crate::fault::{Fault, FaultKind, FaultList};
use crate::source_file::SourceFile;
use crate::survey::{FILES_MAX, SeenFiles};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// What one file of a model says of itself.
#[derive(Clone, Debug)]
pub struct GgufPart {
    /// The file.
    pub path: PathBuf,
    /// Version of the format.
    pub version: u32,
    /// What its tensors start at multiples of.
    pub alignment: u64,
    /// Its number in the set by its name, from 0; 0 for a file that is no part of one.
    pub named_number: u64,
    /// `split.no`, from 0.
    pub number: Option<u64>,
    /// `split.count`.
    pub count: Option<u64>,
    /// `split.tensors.count`: tensors of all files.
    pub all_tensors: Option<u64>,
    /// Tensors that were read of it.
    pub tensors: usize,
    /// All of its keys.
    pub metadata: Metadata,
    /// Bytes behind the last tensor and its padding.
    pub bytes_after: u64,
}

/// A model as far as it can be read.
#[derive(Debug)]
pub struct GgufSurvey {
    /// Keys of the first file that was read, and the tensors of all.
    pub model: Gguf,
    /// The files that were read.
    pub parts: Vec<GgufPart>,
    /// Files that the set needs and that are not there.
    pub missing: Vec<PathBuf>,
    /// Files beside these with the same beginning of their name, but of another set.
    pub strangers: Vec<PathBuf>,
    /// Tensors that a file has although an earlier one has them: name and file.
    pub twice: Vec<(String, PathBuf)>,
    /// What is wrong with single files and their tensors.
    pub faults: FaultList,
}

impl Gguf {
    /// Reads what can be read of a model, whichever of its files is named.
    ///
    /// # Errors
    /// No file of it is GGUF at all.
    pub fn survey(path: impl AsRef<Path>) -> Result<GgufSurvey> {
        let path = path.as_ref();
        let name =
            SplitName::parse(path).filter(|name| usize::try_from(name.count).is_ok_and(|count| count <= FILES_MAX));
        let mut faults = FaultList::default();
        let (mut read, mut missing, mut seen) = (Vec::new(), Vec::new(), SeenFiles::default());
        let files: Vec<(u64, PathBuf)> = match &name {
            None => vec![(0, path.to_owned())],
            Some(name) => (0..name.count).map(|number| (number, name.path(number))).collect(),
        };
        for (number, file) in files {
            if name.is_some() && file.symlink_metadata().is_err() {
                missing.push(file);
                continue;
            }
            let opened = seen.meet(&file).and_then(|()| SourceFile::open(&file)).and_then(|source| {
                let header = Header::read_with(&source, &mut |fault| {
                    faults.add(fault);
                    Ok(())
                })?;
                Ok((number, source, header))
            });
            match opened {
                Ok(opened) => read.push(opened),
                Err(error) if file == path => return Err(error),
                Err(error) => faults.add(Fault::new(FaultKind::FileUnreadable, error)),
            }
        }
        let strangers = name.map(|name| strangers(path, &name)).unwrap_or_default();
        let Some((_, _, first)) = read.first() else {
            return Err(Error::new(path, "no file of the model can be read"));
        };
        let model = Gguf::empty(path, first.version, first.metadata.clone());
        let survey = GgufSurvey { model, parts: Vec::new(), missing, strangers, twice: Vec::new(), faults };
        survey.with_parts(read)
    }
}

impl GgufSurvey {
    fn with_parts(mut self, read: Vec<(u64, SourceFile, Header)>) -> Result<GgufSurvey> {
        let mut names: HashSet<String> = HashSet::new();
        for (named_number, source, mut header) in read {
            self.parts.push(part(named_number, &source, &header));
            let pairs = std::mem::take(&mut header.tensors).into_iter().zip(std::mem::take(&mut header.ranges));
            for (tensor, range) in pairs {
                if names.insert(tensor.name.clone()) {
                    header.tensors.push(tensor);
                    header.ranges.push(range);
                } else {
                    self.twice.push((tensor.name, source.path().to_owned()));
                }
            }
            self.model.add(source, header);
        }
        self.model.index_names()?;
        self.model = self.model.without_file_keys();
        Ok(self)
    }

    /// The file that holds each tensor of [`GgufSurvey::model`], by its number.
    pub fn file_of(&self) -> HashMap<&str, &Path> {
        let tensors = self.model.tensors().iter().enumerate();
        let file = |number: usize| self.parts.get(self.model.place(number).file).map(|part| part.path.as_path());
        tensors.filter_map(|(number, tensor)| Some((tensor.name.as_str(), file(number)?))).collect()
    }
}

fn part(named_number: u64, source: &SourceFile, header: &Header) -> GgufPart {
    let number = |key: &str| header.metadata.u64(key).ok();
    let end = header.ranges.iter().map(|range| header.data_start.saturating_add(range.end)).max();
    let padded = end.and_then(|end| end.checked_next_multiple_of(header.alignment));
    GgufPart {
        path: source.path().to_owned(),
        version: header.version,
        alignment: header.alignment,
        named_number,
        number: number(KEY_SPLIT_NUMBER),
        count: number(KEY_SPLIT_COUNT),
        all_tensors: number(KEY_SPLIT_TENSORS),
        tensors: header.tensors.len(),
        metadata: header.metadata.clone(),
        bytes_after: padded.map_or(0, |padded| source.bytes().saturating_sub(padded)),
    }
}

/// Files of the folder that look like parts of a set of the same name but of another count, sorted.
fn strangers(path: &Path, name: &SplitName) -> Vec<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| path.with_file_name(entry.file_name()))
        .filter(|other| {
            let parsed = SplitName::parse(other);
            parsed.is_some_and(|other| other.count != name.count && other.is_of_same_model(name))
        })
        .collect();
    found.sort();
    found
}

impl std::fmt::Display for GgufPart {
    /// The file's own name, escaped.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&quote(&self.path.file_name().unwrap_or_default().to_string_lossy()))
    }
}
