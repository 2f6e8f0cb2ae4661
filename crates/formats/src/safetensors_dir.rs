//! A model folder as Hugging Face lays it out: `config.json`, one or many safetensors files, the tokenizer's files.
//!
//! ```text
//! config.json                      hyper-parameters
//! model.safetensors                all tensors, or
//! model.safetensors.index.json     {"weight_map": {"NAME": "FILE.safetensors", ..}} and the files it names
//! modules.json                     what sentence-transformers applies after the model
//! tokenizer.json, tokenizer.model, tokenizer_config.json, ...
//! ```
//!
//! The index and the files must agree on every tensor. Links to regular files are followed: the download cache is made
//! of them. `weights` decides which files are read when the folder holds more than one set.

mod config;
mod file;
mod index;
mod modules;
mod same_weights;
mod survey;
mod tokenizer;
mod weights;

pub use file::SafetensorsFile;
pub use survey::{FolderSurvey, IndexFacts};
pub use weights::{FolderOthers, SecondWeights, SetComparison};

use crate::checkpoint::{Checkpoint, Description, TensorInfo, TokenizerFiles};
use crate::counted::counted;
use crate::error::{Error, Result, quote};
use crate::fault::refuse;
use crate::foreign;
use crate::name_index::NameIndex;
use crate::source_file::SourceFile;
use std::path::{Path, PathBuf};
use tokenizer::Vocabularies;

const CONFIG: &str = "config.json";
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// A model folder whose files are open and validated.
#[derive(Debug)]
pub struct SafetensorsDir {
    path: PathBuf,
    config: serde_json::Map<String, serde_json::Value>,
    tokenizer: TokenizerFiles,
    files: Vec<SafetensorsFile>,
    tensors: Vec<TensorInfo>,
    /// The first tensor of each name.
    names: NameIndex,
    places: Vec<Place>,
    notes: Vec<String>,
    /// Files that hold no tensors.
    others: Vec<SourceFile>,
}

/// Where a tensor's bytes stand.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The file's number.
    file: usize,
    /// The array's number in that file.
    array: usize,
}

impl SafetensorsDir {
    /// Opens a folder, or a single `.safetensors` file together with the other files of its folder. The folder's index,
    /// or a file that it names, stands for the folder.
    pub fn open(path: impl AsRef<Path>) -> Result<SafetensorsDir> {
        SafetensorsDir::open_at(path.as_ref(), Vocabularies::Read)
    }

    /// Opens a folder as [`SafetensorsDir::open`] does, with the tokenizer of another file: `tokenizer.json`,
    /// `tokenizer.model`, or a `tokenizer.bin` of llama2.c with as many tokens as the configuration says. The
    /// vocabularies of the folder are not read.
    pub fn open_with_tokenizer(path: impl AsRef<Path>, tokenizer: &Path) -> Result<SafetensorsDir> {
        let mut model = SafetensorsDir::open_at(path.as_ref(), Vocabularies::Skip)?;
        let vocabulary = model.config.get("vocab_size").and_then(serde_json::Value::as_u64);
        let source = model.tokenizer.replace(tokenizer, vocabulary)?;
        model.others.push(source);
        Ok(model)
    }

    fn open_at(path: &Path, vocabularies: Vocabularies) -> Result<SafetensorsDir> {
        if path.is_dir() {
            return SafetensorsDir::open_files(path, path, None, vocabularies);
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| {
            Error::new(path, "expected a file name in UTF-8, found other bytes").help("rename the file")
        })?;
        SafetensorsDir::open_files(path, folder, Some(name), vocabularies)
    }

    fn open_files(
        path: &Path,
        folder: &Path,
        file_name: Option<&str>,
        vocabularies: Vocabularies,
    ) -> Result<SafetensorsDir> {
        let mut others = Vec::new();
        if let Some(name) = file_name.filter(|name| *name != INDEX) {
            refuse_adapter(&SafetensorsFile::open(folder.join(name))?)?;
        }
        let config = open_config(folder)?;
        let mut config_map = config::read(&config)?;
        if config_map.contains_key("peft_type")
            && let Some(error) = foreign::of_folder(folder)
        {
            return Err(error);
        }
        others.push(config);
        if let Some(modules) = modules::read(folder, &mut others)? {
            config_map.insert(modules::MODULES.to_owned(), modules);
        }
        let index = tokenizer::open_if_there(&folder.join(INDEX))?;
        let index_map = index.as_ref().map(index::WeightMap::read).transpose()?;
        let mut weights = weights::choose(folder, file_name, index_map.as_ref());
        let files = match (&index_map, weights.by_index) {
            (Some(map), true) => map.open_files(folder)?,
            _ => open_all(folder, &weights.files)?,
        };
        weights.compare_sets(folder, &files)?;
        others.extend(index);
        let tokenizer = tokenizer::read(folder, vocabularies, &mut others, &mut refuse)?;
        let mut model = SafetensorsDir::new(path, config_map, tokenizer, files, others);
        model.notes.extend(weights.notes);
        match model.names.len() == model.tensors.len() {
            true => Ok(model),
            false => NameIndex::of(path, &model.tensors).map(|_| model),
        }
    }

    /// All tensors of the files, in their order.
    fn new(
        path: &Path,
        config: serde_json::Map<String, serde_json::Value>,
        tokenizer: TokenizerFiles,
        files: Vec<SafetensorsFile>,
        others: Vec<SourceFile>,
    ) -> SafetensorsDir {
        let (mut tensors, mut places) = (Vec::new(), Vec::new());
        for (number, file) in files.iter().enumerate() {
            for (array, tensor) in file.tensors().iter().enumerate() {
                places.push(Place { file: number, array });
                tensors.push(tensor.clone());
            }
        }
        let (names, _) = NameIndex::of_first(&tensors);
        SafetensorsDir {
            path: path.to_owned(),
            config,
            tokenizer,
            files,
            tensors,
            names,
            places,
            notes: Vec::new(),
            others,
        }
    }

    /// How many files hold the tensors.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }
}

impl Checkpoint for SafetensorsDir {
    fn format(&self) -> &str {
        "safetensors"
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn description(&self) -> Description<'_> {
        Description::Json(&self.config)
    }

    fn tokenizer(&self) -> &TokenizerFiles {
        &self.tokenizer
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.names.find(&self.tensors, name)
    }

    fn read(&self, tensor: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        let place = self.places.get(tensor).and_then(|place| Some((self.files.get(place.file)?, place)));
        let Some((file, place)) = place else { unreachable!("tensor number {tensor} of {}", self.places.len()) };
        file.read(place.array, offset, out)
    }

    fn unchanged(&self) -> Result<()> {
        self.sources().into_iter().try_for_each(SourceFile::unchanged)
    }

    fn sources(&self) -> Vec<&SourceFile> {
        self.files.iter().map(SafetensorsFile::source).chain(&self.others).collect()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Whether a path is that of an index, which stands for its folder.
pub(crate) fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == INDEX) && path.is_file()
}

/// Opens `config.json`; without one, the error says what the folder is.
fn open_config(folder: &Path) -> Result<SourceFile> {
    let path = folder.join(CONFIG);
    SourceFile::open(&path).map_err(|error| match path.symlink_metadata().is_ok() || !folder.is_dir() {
        true => error,
        false => foreign::of_folder(folder).unwrap_or_else(|| without_config(folder)),
    })
}

/// The error for a model folder without `config.json`.
fn missing_config(folder: &Path) -> Error {
    Error::new(folder.join(CONFIG), "expected the configuration of the model, found no such file")
        .help("get config.json of the model, and put it next to the safetensors files")
}

/// The error for a folder without `config.json` that is not recognized in any other way.
fn without_config(folder: &Path) -> Error {
    if foreign::names_in(folder).iter().any(|name| name.ends_with(".safetensors")) {
        return missing_config(folder);
    }
    Error::new(folder, format!("expected a model directory, found no {CONFIG} and no safetensors files in it"))
        .help("pass a model file, or a directory in the Hugging Face layout")
}

/// The files of a folder without an index, or why there are none.
fn open_all(folder: &Path, names: &[String]) -> Result<Vec<SafetensorsFile>> {
    if !names.is_empty() {
        return names.iter().map(|name| SafetensorsFile::open(folder.join(name))).collect();
    }
    std::fs::read_dir(folder).map_err(|error| Error::new(folder, format!("cannot be listed: {error}")))?;
    let named: Vec<String> =
        foreign::names_in(folder).into_iter().filter(|name| name.ends_with(".safetensors")).collect();
    let parts: Vec<&String> = named.iter().filter(|name| weights::part_numbers(name).is_some()).collect();
    let problem = format!("expected {SINGLE} or {INDEX} in the directory, found neither");
    let help = match (parts.first(), named.first()) {
        (Some(part), _) => {
            let count = weights::part_numbers(part).map_or(0, |(_, count)| count);
            format!("get all {count} files of the model, and {INDEX}")
        }
        (None, Some(file)) => {
            let file = quote(file);
            match foreign::of_folder(folder) {
                Some(other) => {
                    let help = format!("{}; if {file} holds the weights, pass it instead", other.help);
                    return Err(other.help(help));
                }
                None => format!("pass the safetensors file to read, for example {file}"),
            }
        }
        (None, None) => {
            return Err(foreign::of_folder(folder)
                .unwrap_or_else(|| Error::new(folder, problem).help("get the weights of the model")));
        }
    };
    Err(Error::new(folder, problem).help(help))
}

/// Fails when all tensors of a file are those of a LoRA adapter.
fn refuse_adapter(file: &SafetensorsFile) -> Result<()> {
    let tensors = file.tensors();
    let is_lora = |name: &str| LORA_NAMES.iter().any(|part| name.contains(part));
    if tensors.is_empty() || !tensors.iter().all(|tensor| is_lora(&tensor.name)) {
        return Ok(());
    }
    let problem = format!("expected a model, found a LoRA adapter ({})", counted(tensors.len(), "tensor"));
    Err(Error::new(file.source().path(), problem).help(foreign::MERGE_HELP))
}

/// What names of a LoRA adapter's tensors contain, by PEFT and by programs for image models.
const LORA_NAMES: [&str; 8] = [
    ".lora_A",
    ".lora_B",
    ".lora_embedding_",
    ".lora_magnitude_",
    "lora_down",
    "lora_up",
    ".lora.",
    "modules_to_save.",
];
