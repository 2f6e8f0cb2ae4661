//! A model folder as Hugging Face lays it out: `config.json`, one or many safetensors files, the tokenizer's files.
//!
//! ```text
//! config.json                      hyper-parameters
//! model.safetensors                all tensors, or
//! model.safetensors.index.json     {"weight_map": {"NAME": "FILE.safetensors", ..}} and the files it names
//! tokenizer.json, tokenizer.model, tokenizer_config.json, ...
//! ```
//!
//! The index and the files must agree on every tensor. Links to regular files are followed: the download cache is made
//! of them.

mod file;
mod index;
mod survey;
mod tokenizer;

pub use file::SafetensorsFile;
pub use survey::{FolderSurvey, IndexFacts};

use crate::checkpoint::{Checkpoint, Description, TensorInfo, TokenizerFiles};
use crate::error::{Error, Result};
use crate::fault::refuse;
use crate::joined;
use crate::json;
use crate::name_index::NameIndex;
use crate::source_file::SourceFile;
use std::path::{Path, PathBuf};

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
    /// The tensor's first byte in that array.
    first_byte: u64,
}

impl SafetensorsDir {
    /// Opens a folder, or a single `.safetensors` file together with the other files of its folder. A file that the
    /// folder's index names stands for the folder.
    pub fn open(path: impl AsRef<Path>) -> Result<SafetensorsDir> {
        let path = path.as_ref();
        if path.is_dir() {
            return SafetensorsDir::open_files(path, path, None);
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name
            .ok_or_else(|| Error::new(path, "expected a file name in UTF-8, found another").help("rename the file"))?;
        SafetensorsDir::open_files(path, folder, Some(name))
    }

    fn open_files(path: &Path, folder: &Path, file_name: Option<&str>) -> Result<SafetensorsDir> {
        let mut others = Vec::new();
        let config = SourceFile::open(folder.join(CONFIG)).map_err(|error| error.help(NO_CONFIG))?;
        let config_map = json::read_object(&config)?;
        others.push(config);
        let index = tokenizer::open_if_there(&folder.join(INDEX))?;
        let index_map = index.as_ref().map(index::WeightMap::read).transpose()?;
        let by_index = index_map.filter(|map| file_name.is_none_or(|name| map.file_names().any(|named| named == name)));
        let files = match (&by_index, file_name) {
            (Some(map), _) => map.open_files(folder)?,
            (None, Some(name)) => vec![SafetensorsFile::open(folder.join(name))?],
            (None, None) => vec![open_single(folder)?],
        };
        others.extend(index);
        let tokenizer = tokenizer::read(folder, &mut others, &mut refuse)?;
        let model = SafetensorsDir::new(path, config_map, tokenizer, files, others);
        match model.names.len() == model.tensors.len() {
            true => Ok(model),
            false => NameIndex::of(path, &model.tensors).map(|_| model),
        }
    }

    /// All tensors of the files, in their order; those that are joined there, apart.
    fn new(
        path: &Path,
        config: serde_json::Map<String, serde_json::Value>,
        tokenizer: TokenizerFiles,
        files: Vec<SafetensorsFile>,
        others: Vec<SourceFile>,
    ) -> SafetensorsDir {
        let (mut tensors, mut places, mut joined_count) = (Vec::new(), Vec::new(), 0_usize);
        for (number, file) in files.iter().enumerate() {
            for (array, whole) in file.tensors().iter().enumerate() {
                let parts = joined::parts(whole, &config).and_then(Result::ok);
                joined_count = joined_count.saturating_add(usize::from(parts.is_some()));
                let mut first_byte = 0_u64;
                for tensor in parts.unwrap_or_else(|| vec![whole.clone()]) {
                    places.push(Place { file: number, array, first_byte });
                    first_byte = first_byte.saturating_add(tensor.bytes);
                    tensors.push(tensor);
                }
            }
        }
        let notes = joined::note(joined_count).into_iter().collect();
        let (names, _) = NameIndex::of_first(&tensors);
        SafetensorsDir { path: path.to_owned(), config, tokenizer, files, tensors, names, places, notes, others }
    }

    /// Takes the tokenizer from another file: `tokenizer.json`, `tokenizer.model`, or a `tokenizer.bin` of llama2.c
    /// with as many tokens as the configuration says.
    pub fn replace_tokenizer(&mut self, path: &Path) -> Result<()> {
        let vocabulary = self.config.get("vocab_size").and_then(serde_json::Value::as_u64);
        let source = self.tokenizer.replace(path, vocabulary)?;
        self.others.push(source);
        Ok(())
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
        file.read(place.array, place.first_byte.saturating_add(offset), out)
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

const NO_CONFIG: &str = "a model folder needs config.json beside its safetensors files";

/// The only file of a folder without an index, or why there is none.
fn open_single(folder: &Path) -> Result<SafetensorsFile> {
    let single = folder.join(SINGLE);
    if single.symlink_metadata().is_ok() {
        return SafetensorsFile::open(single);
    }
    let names = std::fs::read_dir(folder).map_err(|error| Error::new(folder, format!("cannot be listed: {error}")))?;
    let names: Vec<String> = names.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let has = |found: fn(&str) -> bool| names.iter().any(|name| found(name));
    let help = if has(|name| name.ends_with(".safetensors")) {
        "name the safetensors file that is meant, or add model.safetensors.index.json"
    } else if has(|name| name.starts_with("pytorch_model") || name.ends_with(".pth") || name.ends_with(".pt")) {
        "it has PyTorch pickles, which can hold programs and are not read; convert it to safetensors first, for example with \
         save_pretrained(..., safe_serialization=True)"
    } else if has(|name| name.ends_with(".gguf")) {
        "name the GGUF file itself"
    } else {
        "get the weights of the model"
    };
    Err(Error::new(folder, format!("expected {SINGLE} or {INDEX} in the folder, found neither")).help(help))
}
