//! Which files of a folder hold the weights, when the folder holds more than one set of them.
//!
//! ```text
//! named file                         that file; the index's files when the index names it
//! index, no model.safetensors        the index's files
//! index and model.safetensors:       the index names it          the index's files
//!                                    some of its files missing   model.safetensors: the index is of an earlier save
//!                                    all of its files there      two complete sets: compared; refused if they differ
//! model.safetensors alone            that file
//! neither                            model-00001-of-0000N.safetensors ... when all N are there
//! ```

use super::file::SafetensorsFile;
use super::index::WeightMap;
use super::same_weights::difference;
use super::{INDEX, SINGLE};
use crate::counted::counted;
use crate::error::{Error, Result, listed, quote};
use crate::foreign::{ADAPTER_CONFIG, adapter_name, names_in};
use std::path::{Path, PathBuf};

/// The files to read, and what is said about the others.
pub(super) struct Weights {
    /// The names of the files; empty when none can be meant.
    pub files: Vec<String>,
    /// Whether they are the index's.
    pub by_index: bool,
    /// Whether there are two complete sets: those of the index, and `model.safetensors`.
    pub has_two_sets: bool,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
    /// What else the folder holds.
    pub others: FolderOthers,
}

/// What a folder holds in addition to the model that was opened.
#[derive(Clone, Default, Debug)]
pub struct FolderOthers {
    /// A second complete set of weights, `model.safetensors` next to the files of an index.
    pub second_weights: Option<SecondWeights>,
    /// An index some of whose files are missing, next to a `model.safetensors` that is used, and one sentence about it.
    pub stale_index: Option<(PathBuf, String)>,
    /// The description of an adapter next to the model, and what it describes.
    pub adapter: Option<(PathBuf, String)>,
}

/// `model.safetensors` next to the files of an index.
#[derive(Clone, Debug)]
pub struct SecondWeights {
    /// Its path.
    pub path: PathBuf,
    /// How it compares with the files of the index.
    pub comparison: SetComparison,
}

/// How two sets of weights compare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetComparison {
    /// The same tensors, with equal samples.
    Equal,
    /// A difference, as the end of a sentence: `tensor a.weight (byte 12)`.
    Differ(String),
    /// Why they were not compared.
    NotCompared(String),
}

/// Decides which files are read. `named` is the file that the user named; `None` for the folder.
pub(super) fn choose(folder: &Path, named: Option<&str>, index: Option<&WeightMap>) -> Weights {
    let mut weights = match (named.filter(|name| *name != INDEX), index) {
        (Some(name), Some(map)) if map.file_names().any(|file| file == name) => of_index(map),
        (Some(name), _) => of_files(vec![name.to_owned()]),
        (None, Some(map)) if named.is_some() => of_index(map),
        (None, Some(map)) => with_index(folder, map),
        (None, None) => without_index(folder),
    };
    let is_pickle = |name: &String| name.starts_with("pytorch_model") && name.ends_with(".bin");
    let pickles: Vec<String> = names_in(folder).into_iter().filter(is_pickle).map(|name| quote(&name)).collect();
    if !pickles.is_empty() && !weights.files.is_empty() {
        let names = listed(&pickles, ", ");
        weights.notes.push(format!("ignored, because the directory has safetensors files: {names}"));
    }
    if folder.join(ADAPTER_CONFIG).is_file() {
        let adapter = adapter_name(folder);
        weights.notes.push(format!(
            "the directory also contains {adapter}; it is not applied; merge it into the model first to use it"
        ));
        weights.others.adapter = Some((folder.join(ADAPTER_CONFIG), adapter));
    }
    weights
}

fn of_files(files: Vec<String>) -> Weights {
    Weights { files, by_index: false, has_two_sets: false, notes: Vec::new(), others: FolderOthers::default() }
}

impl Weights {
    /// Compares the two sets, if there are two. `files` are those of the index, which are read.
    ///
    /// # Errors
    /// The sets differ.
    pub fn compare_sets(&mut self, folder: &Path, files: &[SafetensorsFile]) -> Result<()> {
        if !self.has_two_sets {
            return Ok(());
        }
        let listed = format!("the {} listed in {INDEX}", counted(files.len(), "file"));
        let difference = match second_set(folder, &files.iter().collect::<Vec<_>>()) {
            SetComparison::Equal => {
                self.notes.push(format!(
                    "{SINGLE} has the same tensors as {listed}, and samples of their values are equal; it is not read"
                ));
                return Ok(());
            }
            SetComparison::NotCompared(reason) => {
                self.notes.push(format!("{SINGLE} cannot be read ({reason}); {listed} are used"));
                return Ok(());
            }
            SetComparison::Differ(difference) => difference,
        };
        let problem =
            format!("expected one set of weights, found two: {SINGLE}, and {listed}; they differ in {difference}");
        let shown = quote(&folder.to_string_lossy());
        let help =
            format!("delete the set that you do not want, or choose one: pass {shown}/{SINGLE} or {shown}/{INDEX}");
        Err(Error::new(folder, problem).help(help))
    }
}

/// Compares `model.safetensors` with the files of an index.
pub(super) fn second_set(folder: &Path, files: &[&SafetensorsFile]) -> SetComparison {
    let compared = SafetensorsFile::open(folder.join(SINGLE)).and_then(|single| difference(files, &[&single]));
    match compared {
        Ok(None) => SetComparison::Equal,
        Ok(Some(difference)) => SetComparison::Differ(difference),
        Err(error) => SetComparison::NotCompared(error.problem),
    }
}

fn of_index(map: &WeightMap) -> Weights {
    Weights { by_index: true, ..of_files(map.file_names().map(str::to_owned).collect()) }
}

fn with_index(folder: &Path, map: &WeightMap) -> Weights {
    let is_there = |name: &str| folder.join(name).symlink_metadata().is_ok();
    if !is_there(SINGLE) || map.file_names().any(|name| name == SINGLE) {
        return of_index(map);
    }
    let missing: Vec<String> = map.file_names().filter(|name| !is_there(name)).map(quote).collect();
    let count = map.file_names().count();
    if missing.is_empty() {
        return Weights { has_two_sets: true, ..of_index(map) };
    }
    let verb = if missing.len() == 1 { "is" } else { "are" };
    let (lost, files) = (missing.len(), counted(count, "file"));
    let problem = format!("{lost} of its {files} {verb} missing ({}); {SINGLE} is used", listed(&missing, ", "));
    let mut weights = of_files(vec![SINGLE.to_owned()]);
    weights.notes.push(format!("{INDEX} is left over from an earlier save: {problem}"));
    weights.others.stale_index = Some((folder.join(INDEX), problem));
    weights
}

fn without_index(folder: &Path) -> Weights {
    if folder.join(SINGLE).symlink_metadata().is_ok() {
        return of_files(vec![SINGLE.to_owned()]);
    }
    let parts = names_in(folder).into_iter().filter(|name| part_numbers(name).is_some()).collect::<Vec<String>>();
    let counts: Vec<(u64, u64)> = parts.iter().filter_map(|name| part_numbers(name)).collect();
    let is_whole = counts
        .iter()
        .zip(1..)
        .all(|((number, count), place)| *number == place && usize::try_from(*count) == Ok(parts.len()));
    if parts.is_empty() || !is_whole {
        return of_files(Vec::new());
    }
    let mut weights = of_files(parts);
    weights.notes.push(format!("{INDEX} is missing; all {} are read", counted(weights.files.len(), "file")));
    weights
}

/// Number and count in the name of a part: 1 and 3 of `model-00001-of-00003.safetensors`.
pub(super) fn part_numbers(name: &str) -> Option<(u64, u64)> {
    let (number, count) = name.strip_prefix("model-")?.strip_suffix(".safetensors")?.split_once("-of-")?;
    let read = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    Some((read(number)?, read(count)?))
}
