//! Opens a model in any format that `trueup convert` reads: converts it to a temporary GGUF file first.

use crate::command::place::open_model;
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Bar;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::convert::{Options, convert};
use trueup::formats::{self, Checkpoint, Description, OpenOptions, TemporaryFile, free_disk_bytes, quote};
use trueup::runtime::ModelFile;

/// Name of the temporary file, in a directory made for it.
const TEMPORARY_NAME: &str = "trueup-model.gguf";

/// How a model is converted.
pub struct Conversion {
    /// Directory of the temporary file; by default that of the system.
    pub folder: Option<PathBuf>,
    /// Number of threads; by default one per core.
    pub threads: Option<usize>,
}

impl Conversion {
    /// Opens a GGUF file, or converts a model in another format. Every matrix keeps its type, as with `trueup convert`.
    ///
    /// The temporary file is removed as soon as the model is open.
    pub fn open(&self, path: &Path) -> Result<Arc<ModelFile>> {
        match formats::open(path, &OpenOptions::default()) {
            Ok(source) if matches!(source.description(), Description::Json(_)) => self.convert(path, source.as_ref()),
            Err(reason) if path.is_dir() => Err(reason.into()),
            // GGUF files, and the errors of files that are none.
            Ok(_) | Err(_) => open_model(path),
        }
    }

    /// Fails if the given directory does not exist, whether or not a model is converted.
    pub fn check(&self) -> Result<()> {
        match &self.folder {
            Some(folder) if !folder.is_dir() => Err(no_folder(folder)),
            Some(_) | None => Ok(()),
        }
    }

    fn convert(&self, path: &Path, source: &dyn Checkpoint) -> Result<Arc<ModelFile>> {
        let folder = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let shown_folder = quote(&folder.to_string_lossy());
        if !folder.is_dir() {
            return Err(no_folder(&folder));
        }
        let file = TemporaryFile::create(&folder, TEMPORARY_NAME)
            .map_err(|error| Failure::new(format!("{error}; pass another directory with --temp-dir DIR")))?;
        let options = Options { threads: self.threads, dry_run: true, ..Options::default() };
        let bytes = convert(source, file.path(), &options, &Bar::new("convert"))?.bytes;
        let shown = quote(&path.to_string_lossy());
        if let Some(free) = free_disk_bytes(&folder).filter(|free| *free < bytes) {
            return Err(Failure::new(format!(
                "{shown}: the temporary GGUF file needs {bytes} bytes, but {free} bytes are available in \
                 {shown_folder}; free some space, or pass a directory on another disk with --temp-dir DIR"
            )));
        }
        output::note(&format!("{shown} is converted to a temporary GGUF file of {bytes} bytes in {shown_folder}"));
        let report = convert(source, file.path(), &Options { dry_run: false, ..options }, &Bar::new("convert"))?;
        report.notes.iter().for_each(|note| output::note(note));
        let model = ModelFile::open_temporary(file, path)?;
        model.model().notes().iter().for_each(|note| output::note(note));
        Ok(Arc::new(model))
    }
}

fn no_folder(folder: &Path) -> Failure {
    let folder = quote(&folder.to_string_lossy());
    let problem = "expected a directory for the temporary GGUF file, found none";
    Failure::new(format!("{folder}: {problem}; pass another one with --temp-dir DIR"))
}
