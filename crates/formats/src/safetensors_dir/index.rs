//! `model.safetensors.index.json`: which file of a model holds which tensor.

use super::file::SafetensorsFile;
use crate::error::{Error, Result, listed, quote};
use crate::fault::refuse;
use crate::json::{self, UniqueEntries};
use crate::source_file::SourceFile;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The largest index that is read, in bytes.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// Tensor to file, with file names known to be plain.
pub(super) struct WeightMap {
    path: PathBuf,
    files: Vec<(String, String)>,
    /// What the index claims all tensors take, in bytes.
    pub total_bytes: Option<u64>,
}

/// The part of the file that counts.
#[derive(serde::Deserialize)]
struct RawIndex {
    weight_map: UniqueEntries<String>,
    /// Of any form: nothing depends on it.
    #[serde(default)]
    metadata: serde_json::Value,
}

impl WeightMap {
    /// Reads and validates an index.
    pub fn read(source: &SourceFile) -> Result<WeightMap> {
        let raw: RawIndex = json::parse(source.path(), &source.read_all(INDEX_BYTES_MAX)?)?;
        let files = raw.weight_map.0;
        if let Some((tensor, file)) = files.iter().find(|(_, file)| !is_plain_name(file)) {
            return Err(Error::new(
                source.path(),
                format!("expected the plain name of a file, found \"{}\"", quote(file)),
            )
            .at(format!("tensor {}", quote(tensor)))
            .help("all files of a model must be in its directory"));
        }
        if files.is_empty() {
            return Err(Error::new(source.path(), "expected tensors, found none").at("weight_map"));
        }
        let total_bytes = raw.metadata.get("total_size").and_then(serde_json::Value::as_u64);
        Ok(WeightMap { path: source.path().to_owned(), files, total_bytes })
    }

    /// The files, each once, in order.
    pub fn file_names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(_, file)| file.as_str()).collect::<BTreeSet<_>>().into_iter()
    }

    /// The tensors that it lists.
    pub fn tensor_names(&self) -> HashSet<&str> {
        self.files.iter().map(|(tensor, _)| tensor.as_str()).collect()
    }

    /// Opens all files and compares them with the index, tensor by tensor.
    pub fn open_files(&self, folder: &Path) -> Result<Vec<SafetensorsFile>> {
        let mut files = Vec::new();
        let names = self.tensor_names();
        let is_listed = |name: &str| names.contains(name);
        for name in self.file_names() {
            let file = SafetensorsFile::open_part(&folder.join(name), &is_listed, &mut refuse)
                .map_err(|error| error.help("get all files of the model"))?;
            files.push((name.to_owned(), file));
        }
        self.check_files(&files, &|_| false)?;
        Ok(files.into_iter().map(|(_, file)| file).collect())
    }

    /// Compares open files with the index, tensor by tensor. Tensors of files that are not among them are no fault, nor
    /// are those that `is_left_out` for a fault of their own.
    pub fn check_files(&self, files: &[(String, SafetensorsFile)], is_left_out: &dyn Fn(&str) -> bool) -> Result<()> {
        let open: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let named = self.files.iter().map(|(name, file)| (name.as_str(), file.as_str()));
        let mut missing: HashMap<&str, &str> = named.filter(|(_, file)| open.contains(file)).collect();
        let mut faults = Vec::new();
        for (name, file) in files {
            for tensor in file.tensors() {
                match missing.remove(tensor.name.as_str()) {
                    Some(expected) if expected == name.as_str() => (),
                    Some(expected) => {
                        let (tensor, name, expected) = (quote(&tensor.name), quote(name), quote(expected));
                        faults.push(format!("{tensor} is in {name}, not in {expected}"));
                    }
                    None => {
                        let (tensor, name) = (quote(&tensor.name), quote(name));
                        faults.push(format!("{tensor} in {name} is missing from the index or stored in two files"));
                    }
                }
            }
        }
        let mut missing: Vec<_> = missing.into_iter().filter(|(name, _)| !is_left_out(name)).collect();
        missing.sort_unstable();
        faults.extend(missing.iter().map(|(name, file)| format!("{} is not in {}", quote(name), quote(file))));
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::new(&self.path, format!("the index and the files disagree: {}", listed(&faults, ", ")))
            .at("weight_map")
            .help("get all files of the model again"))
    }
}

/// A name that cannot lead out of its folder.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && !name.contains(['/', '\\', ':'])
        && !name.contains(|c: char| c.is_control())
}
