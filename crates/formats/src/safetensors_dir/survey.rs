//! A model folder as far as it can be read: every file that is there, with what the index says of it.

use super::file::SafetensorsFile;
use super::index::WeightMap;
use super::weights::{self, FolderOthers, SecondWeights, SetComparison, part_numbers};
use super::{CONFIG, INDEX, SINGLE, SafetensorsDir, config, missing_config, modules, tokenizer};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::fault::{Fault, FaultKind, FaultList};
use crate::source_file::SourceFile;
use crate::survey::{FILES_MAX, SeenFiles};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// What an index claims.
#[derive(Clone, Debug)]
pub struct IndexFacts {
    /// The index.
    pub path: PathBuf,
    /// Bytes of all tensors together, where it says that.
    pub total_bytes: Option<u64>,
}

/// A model folder as far as it can be read.
#[derive(Debug)]
pub struct FolderSurvey {
    /// Description, tokenizer and the tensors of all files that could be read.
    pub model: SafetensorsDir,
    /// The index, where there is one that can be read.
    pub index: Option<IndexFacts>,
    /// Files with tensors that lie beside those of the model and belong to none of its parts.
    pub strangers: Vec<PathBuf>,
    /// What else the folder holds.
    pub others: FolderOthers,
    /// What is wrong with single files and their tensors.
    pub faults: FaultList,
}

impl SafetensorsDir {
    /// Reads what can be read of a folder, or of the folder of a file.
    ///
    /// # Errors
    /// There is neither a description nor a file with tensors that can be read.
    pub fn survey(path: impl AsRef<Path>) -> Result<FolderSurvey> {
        let path = path.as_ref();
        let beside = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (folder, name) = match path.is_dir() {
            true => (path, None),
            false => (beside, path.file_name().and_then(|name| name.to_str())),
        };
        let mut faults = FaultList::default();
        let mut others = Vec::new();
        let mut config = read_config(folder, &mut others, &mut faults);
        if let Some(config) = &mut config {
            match modules::read(folder, &mut others) {
                Ok(Some(modules)) => drop(config.insert(modules::MODULES.to_owned(), modules)),
                Ok(None) => {}
                Err(error) => faults.add(Fault::new(FaultKind::FileUnreadable, error)),
            }
        }
        let index = read_index(folder, &mut others, &mut faults);
        let weights = weights::choose(folder, name, index.as_ref());
        let by_index = index.as_ref().filter(|_| weights.by_index);
        let listed = file_names(folder);
        let wanted: Vec<String> = match weights.files.is_empty() {
            true => listed.iter().filter(|name| part_numbers(name).is_some()).cloned().collect(),
            false => weights.files,
        };
        let mut weights_others = weights.others;
        let faults_before = faults.kept().len();
        let files = open_files(folder, &wanted, by_index, &mut faults);
        if weights.has_two_sets {
            let are_whole = faults.kept().len() == faults_before;
            weights_others.second_weights = Some(second_weights(folder, &files, are_whole));
        }
        if let Some(Err(error)) = by_index.map(|map| map.check_files(&files, &|name| faults.has_tensor(name))) {
            faults.add(Fault::new(FaultKind::IndexDisagrees, error));
        }
        if config.is_none() && files.is_empty() {
            return Err(Error::new(path, "expected config.json or a safetensors file that can be read, found neither"));
        }
        let let_pass = |fault| {
            faults.add(fault);
            Ok(())
        };
        let tokenizer = tokenizer::read(folder, tokenizer::Vocabularies::Read, &mut others, &mut { let_pass })?;
        let wanted: HashSet<&String> = wanted.iter().collect();
        // A single file that was named is meant alone.
        let is_folder_whole = by_index.is_some() || name.is_none();
        let is_stranger = |name: &&String| part_numbers(name).is_some() && !wanted.contains(name);
        let strangers = listed.iter().filter(|name| is_folder_whole && is_stranger(name));
        let strangers = strangers.map(|name| folder.join(name)).collect();
        let index = by_index.map(|map| IndexFacts { path: folder.join(INDEX), total_bytes: map.total_bytes });
        let files = files.into_iter().map(|(_, file)| file).collect();
        let model = SafetensorsDir::new(path, config.unwrap_or_default(), tokenizer, files, others);
        Ok(FolderSurvey { model, index, strangers, others: weights_others, faults })
    }
}

impl FolderSurvey {
    /// The file that holds each tensor of [`FolderSurvey::model`].
    pub fn file_of(&self) -> HashMap<&str, &Path> {
        let pairs = self.model.tensors().iter().zip(&self.model.places);
        let file = |number: usize| self.model.files.get(number).map(|file| file.source().path());
        pairs.filter_map(|(tensor, place)| Some((tensor.name.as_str(), file(place.file)?))).collect()
    }
}

/// `model.safetensors` next to the files of an index. The sets are not compared if those files are damaged or missing.
fn second_weights(folder: &Path, files: &[(String, SafetensorsFile)], are_whole: bool) -> SecondWeights {
    let comparison = match are_whole {
        true => weights::second_set(folder, &files.iter().map(|(_, file)| file).collect::<Vec<_>>()),
        false => SetComparison::NotCompared(format!("files listed in {INDEX} are damaged or missing")),
    };
    SecondWeights { path: folder.join(SINGLE), comparison }
}

fn read_config(
    folder: &Path,
    others: &mut Vec<SourceFile>,
    faults: &mut FaultList,
) -> Option<serde_json::Map<String, serde_json::Value>> {
    let path = folder.join(CONFIG);
    let is_there = path.symlink_metadata().is_ok();
    let read = SourceFile::open(&path).and_then(|source| Ok((config::read(&source)?, source)));
    match read {
        Ok((config, source)) => {
            others.push(source);
            Some(config)
        }
        Err(error) => {
            faults.add(match is_there {
                true => Fault::new(FaultKind::FileUnreadable, error.help("get config.json of the model again")),
                false => Fault::new(FaultKind::FileMissing, missing_config(folder)),
            });
            None
        }
    }
}

fn read_index(folder: &Path, others: &mut Vec<SourceFile>, faults: &mut FaultList) -> Option<WeightMap> {
    let opened = tokenizer::open_if_there(&folder.join(INDEX));
    let read = opened.and_then(|source| source.map(|source| Ok((WeightMap::read(&source)?, source))).transpose());
    match read {
        Ok(read) => read.map(|(map, source)| {
            others.push(source);
            map
        }),
        Err(error) => {
            faults.add(Fault::new(FaultKind::FileUnreadable, error));
            None
        }
    }
}

fn open_files(
    folder: &Path,
    wanted: &[String],
    by_index: Option<&WeightMap>,
    faults: &mut FaultList,
) -> Vec<(String, SafetensorsFile)> {
    let (mut files, mut seen) = (Vec::new(), SeenFiles::default());
    let names = by_index.map(WeightMap::tensor_names).unwrap_or_default();
    let is_listed = |name: &str| names.contains(name);
    for name in wanted {
        let path = folder.join(name);
        if path.symlink_metadata().is_err() {
            let error = Error::new(&path, "the file is missing").help("get all files of the model");
            faults.add(Fault::new(FaultKind::FileMissing, error));
            continue;
        }
        let mut note = |fault| {
            faults.add(fault);
            Ok(())
        };
        let opened = seen.meet(&path).and_then(|()| SafetensorsFile::open_part(&path, &is_listed, &mut note));
        match opened {
            Ok(file) => files.push((name.clone(), file)),
            Err(error) => faults.add(Fault::new(FaultKind::FileUnreadable, error)),
        }
    }
    files
}

/// Plain names in the folder that end like files with tensors, sorted; so many at most.
fn file_names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".safetensors")).take(FILES_MAX).collect();
    names.sort();
    names
}
