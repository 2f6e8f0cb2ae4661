//! An open GGUF model, in one file or several, that reads by place.

use super::header::Header;
use super::split_name::SplitName;
use super::{FILE_KEYS, KEY_SPLIT_COUNT, KEY_SPLIT_NUMBER, KEY_SPLIT_TENSORS, Metadata};
use crate::checkpoint::{Checkpoint, Description, TensorInfo, TokenizerFiles, range_to_read};
use crate::error::{Error, Result};
use crate::source_file::SourceFile;
use crate::tensor_range::check_unique;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A GGUF model whose header is validated.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    format: String,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    places: Vec<Place>,
    sources: Vec<SourceFile>,
    no_files: TokenizerFiles,
}

/// Where a tensor's bytes stand.
#[derive(Debug)]
pub(super) struct Place {
    /// Number of the file.
    pub source: usize,
    /// Bytes in that file.
    pub range: Range<u64>,
}

impl Gguf {
    /// Opens a model; for a split one, its first file, which leads to the others beside it.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf> {
        let path = path.as_ref();
        let source = SourceFile::open(path)?;
        let mut header = Header::read(&source)?;
        let metadata = std::mem::take(&mut header.metadata);
        let others = split_files(path, &metadata)?;
        let mut model = Gguf::empty(path, header.version, metadata);
        model.add(source, header);
        for (number, path) in (1..).zip(&others) {
            let source = SourceFile::open(path)
                .map_err(|error| error.help("all files of a split model must be in one folder"))?;
            let header = Header::read(&source)?;
            check_part(path, &header.metadata, number, model.metadata.u64(KEY_SPLIT_COUNT).unwrap_or_default())?;
            model.add(source, header);
        }
        if !others.is_empty() {
            model.check_split()?;
        }
        Ok(model.without_file_keys())
    }

    /// A model without tensors yet.
    pub(super) fn empty(path: &Path, version: u32, metadata: Metadata) -> Gguf {
        Gguf {
            path: path.to_owned(),
            format: format!("GGUF v{version}"),
            metadata,
            tensors: Vec::new(),
            places: Vec::new(),
            sources: Vec::new(),
            no_files: TokenizerFiles::default(),
        }
    }

    /// The same without the keys that describe the files.
    pub(super) fn without_file_keys(mut self) -> Gguf {
        FILE_KEYS.iter().for_each(|key| drop(self.metadata.remove(key)));
        self
    }

    /// All keys but those that describe the file itself: alignment and splitting.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// How many files hold the model.
    pub fn file_count(&self) -> usize {
        self.sources.len()
    }

    pub(super) fn sources_open(&self) -> &[SourceFile] {
        &self.sources
    }

    pub(super) fn place(&self, tensor: usize) -> &Place {
        let Some(place) = self.places.get(tensor) else {
            unreachable!("tensor number {tensor} of {}", self.places.len());
        };
        place
    }

    pub(super) fn add(&mut self, source: SourceFile, header: Header) {
        let number = self.sources.len();
        self.places.extend(header.ranges.into_iter().map(|range| Place { source: number, range }));
        self.tensors.extend(header.tensors);
        self.sources.push(source);
    }

    /// What only all files together can show: names that are there twice, and files that are too short of tensors.
    fn check_split(&self) -> Result<()> {
        check_unique(&self.path, self.tensors.iter().map(|tensor| tensor.name.as_str()))?;
        let expected = self.metadata.u64(KEY_SPLIT_TENSORS).map_err(|error| error.in_file(&self.path))?;
        if u64::try_from(self.tensors.len()) != Ok(expected) {
            let problem = format!("expected {expected} tensors in all files, found {}", self.tensors.len());
            return Err(Error::new(&self.path, problem)
                .at(format!("key {KEY_SPLIT_TENSORS}"))
                .help("the files belong to different models; get them again"));
        }
        Ok(())
    }
}

impl Checkpoint for Gguf {
    fn format(&self) -> &str {
        &self.format
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn description(&self) -> Description<'_> {
        Description::Gguf(&self.metadata)
    }

    fn tokenizer(&self) -> &TokenizerFiles {
        &self.no_files
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn read(&self, tensor: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        let Place { source, range } = self.place(tensor);
        let start = range_to_read(range, offset, out.len());
        match self.sources.get(*source) {
            Some(source) => source.read_at(start, out),
            None => unreachable!("file number {source} of {}", self.sources.len()),
        }
    }

    fn unchanged(&self) -> Result<()> {
        self.sources.iter().try_for_each(SourceFile::unchanged)
    }

    fn sources(&self) -> Vec<&SourceFile> {
        self.sources.iter().collect()
    }
}

/// The files after the first, when the first says that there are others.
fn split_files(path: &Path, metadata: &Metadata) -> Result<Vec<PathBuf>> {
    if !metadata.contains(KEY_SPLIT_COUNT) {
        return Ok(Vec::new());
    }
    let count = metadata.u64(KEY_SPLIT_COUNT).map_err(|error| error.in_file(path))?;
    if count <= 1 {
        return Ok(Vec::new());
    }
    let number = metadata.u64(KEY_SPLIT_NUMBER).map_err(|error| error.in_file(path))?;
    let Some(name) = SplitName::parse(path).filter(|name| (name.number, name.count) == (number, count)) else {
        let expected = SplitName::new(path, number, count).path(number);
        let expected = expected.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Err(Error::new(
            path,
            format!("the file says it is part {number} (from 0) of {count}, its name does not"),
        )
        .at(format!("key {KEY_SPLIT_NUMBER}"))
        .help(format!("give it the name it was made with, like {}", crate::quote(&expected))));
    };
    if number != 0 {
        return Err(Error::new(path, format!("this is not the first file of a model in {count} files"))
            .at(format!("key {KEY_SPLIT_NUMBER}"))
            .help(format!("name {}", crate::quote(&name.path(0).to_string_lossy()))));
    }
    Ok((1..count).map(|number| name.path(number)).collect())
}

/// Whether a later file says of itself what the first one says of it.
fn check_part(path: &Path, metadata: &Metadata, number: u64, count: u64) -> Result<()> {
    for (key, expected) in [(KEY_SPLIT_NUMBER, number), (KEY_SPLIT_COUNT, count)] {
        let found = metadata.u64(key).map_err(|error| error.in_file(path))?;
        if found != expected {
            return Err(Error::new(path, format!("expected {expected}, found {found}"))
                .at(format!("key {key}"))
                .help("the files belong to different models; get them again"));
        }
    }
    Ok(())
}
