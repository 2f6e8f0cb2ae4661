//! Reads a model of any format as far as possible, while opening stops at the first fault. Both use the same header
//! reader. Only the doctor uses surveys; a surveyed model is never executed.

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result, quote};
use crate::fault::FaultList;
use crate::flm::Completion;
use crate::gguf::{self, Gguf, GgufPart};
use crate::hub_cache;
use crate::open::{OpenOptions, open_with};
use crate::safetensors_dir::{FolderOthers, IndexFacts, SafetensorsDir, is_index};
use crate::source_file::SourceFile;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files of one model that are read; a set of more is not believed.
pub(crate) const FILES_MAX: usize = 4096;

/// Files of one model that were met, by device and inode. A link is small, and what is read through it may not be: each
/// file is read once.
#[derive(Default)]
pub(crate) struct SeenFiles(HashMap<(u64, u64), PathBuf>);

impl SeenFiles {
    /// Fails where the same file was met under another name.
    pub fn meet(&mut self, path: &Path) -> Result<()> {
        // Opening says what is wrong with it.
        let Ok(facts) = path.metadata() else { return Ok(()) };
        let Some(earlier) = self.0.insert((facts.dev(), facts.ino()), path.to_owned()) else { return Ok(()) };
        let name = earlier.file_name().unwrap_or_default().to_string_lossy();
        Err(Error::new(path, format!("it is the same file as {}, under another name", quote(&name))))
    }
}

/// A model as far as it can be read.
pub struct Survey {
    /// Its description, its tokenizer, and those of its tensors whose bytes are there.
    pub checkpoint: Box<dyn Checkpoint>,
    /// What is wrong with its files.
    pub faults: FaultList,
    /// The file that holds each tensor; empty where there is only one.
    pub file_of: HashMap<String, PathBuf>,
    /// What only formats of several files have.
    pub facts: Facts,
}

/// What the files of one model say of each other.
#[derive(Debug)]
pub enum Facts {
    /// One file that stands for itself.
    Single,
    /// Files of a GGUF model.
    Gguf {
        /// Those that were read, in order.
        parts: Vec<GgufPart>,
        /// Those that are not there.
        missing: Vec<PathBuf>,
        /// Those of another set that lie beside them.
        strangers: Vec<PathBuf>,
        /// Tensors that a second file has too.
        twice: Vec<(String, PathBuf)>,
    },
    /// Files of a folder.
    Folder {
        /// The index.
        index: Option<IndexFacts>,
        /// Parts of a model that the model which was opened does not have.
        strangers: Vec<PathBuf>,
        /// What else the folder holds.
        others: FolderOthers,
    },
}

/// Reads what can be read of a model file or folder, told apart as [`open`] does.
///
/// # Errors
/// Nothing of a model can be read there, and that this process may open no more files.
pub fn survey(path: impl AsRef<Path>) -> Result<Survey> {
    survey_with(path, |_, _| None)
}

/// The same; `completion` describes `.flm` files that do not name their kind of model.
///
/// # Errors
/// As [`survey`].
pub fn survey_with(path: impl AsRef<Path>, completion: Completion) -> Result<Survey> {
    let survey = survey_any(path.as_ref(), completion)?;
    match survey.faults.of_run() {
        Some(error) => Err(error.clone()),
        None => Ok(survey),
    }
}

fn survey_any(path: &Path, completion: Completion) -> Result<Survey> {
    let is_safetensors = path.extension().is_some_and(|extension| extension == "safetensors");
    if path.is_dir() || is_safetensors || is_index(path) {
        return survey_folder(&hub_cache::snapshot(path)?);
    }
    let source = SourceFile::open(path)?;
    let mut magic = gguf::MAGIC.map(|_| 0);
    let is_gguf = source.read_at(0, &mut magic).is_ok() && magic == gguf::MAGIC;
    if !is_gguf {
        let (checkpoint, faults) = (open_with(path, &OpenOptions::default(), completion)?, FaultList::default());
        return Ok(Survey { checkpoint, faults, file_of: HashMap::new(), facts: Facts::Single });
    }
    let survey = Gguf::survey(path)?;
    let file_of = if survey.parts.len() > 1 { owned(survey.file_of()) } else { HashMap::new() };
    let facts =
        Facts::Gguf { parts: survey.parts, missing: survey.missing, strangers: survey.strangers, twice: survey.twice };
    Ok(Survey { checkpoint: Box::new(survey.model), faults: survey.faults, file_of, facts })
}

fn survey_folder(path: &Path) -> Result<Survey> {
    let survey = SafetensorsDir::survey(path)?;
    let file_of = if survey.model.file_count() > 1 { owned(survey.file_of()) } else { HashMap::new() };
    let facts = Facts::Folder { index: survey.index, strangers: survey.strangers, others: survey.others };
    Ok(Survey { checkpoint: Box::new(survey.model), faults: survey.faults, file_of, facts })
}

fn owned(files: HashMap<&str, &Path>) -> HashMap<String, PathBuf> {
    files.into_iter().map(|(name, path)| (name.to_owned(), path.to_owned())).collect()
}
