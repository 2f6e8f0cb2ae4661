//! An open GGUF model, in one file or several, that reads by place.

use super::header::Header;
use super::split_name::SplitName;
use super::{FILE_KEYS, KEY_SPLIT_COUNT, KEY_SPLIT_NUMBER, KEY_SPLIT_TENSORS, Metadata};
use crate::checkpoint::{Checkpoint, Description, TensorInfo, TokenizerFiles, range_to_read};
use crate::error::{Error, Result};
use crate::name_index::NameIndex;
use crate::source_file::SourceFile;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A GGUF model whose header is validated.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    format: String,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    names: NameIndex,
    files: Vec<OpenFile>,
    no_files: TokenizerFiles,
    notes: Vec<String>,
}

/// One file of the model.
#[derive(Debug)]
struct OpenFile {
    source: SourceFile,
    /// Number of its first tensor.
    first: usize,
    /// Where its data starts.
    data_start: u64,
    /// Where its tensors stand in the data.
    ranges: Vec<Range<u64>>,
}

/// Where a tensor's bytes stand.
#[derive(Debug)]
pub(super) struct Place<'a> {
    /// Number of the file.
    pub file: usize,
    /// The file.
    pub source: &'a SourceFile,
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
                .map_err(|error| error.help("all files of a split model must be in one directory"))?;
            let header = Header::read(&source)?;
            check_part(path, &header.metadata, number, &model.metadata)?;
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
            names: NameIndex::default(),
            files: Vec::new(),
            no_files: TokenizerFiles::default(),
            notes: Vec::new(),
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
        self.files.len()
    }

    pub(super) fn place(&self, tensor: usize) -> Place<'_> {
        let behind = self.files.partition_point(|file| file.first <= tensor);
        let place = behind.checked_sub(1).and_then(|number| {
            let OpenFile { source, first, data_start, ranges } = self.files.get(number)?;
            let range = ranges.get(tensor.checked_sub(*first)?)?;
            let range = data_start.checked_add(range.start)?..data_start.checked_add(range.end)?;
            Some(Place { file: number, source, range })
        });
        place.unwrap_or_else(|| unreachable!("tensor number {tensor} of {}", self.tensors.len()))
    }

    /// Adds a file and its tensors. The names of those behind the first file are looked at by [`Gguf::index_names`].
    pub(super) fn add(&mut self, source: SourceFile, header: Header) {
        let Header { data_start, ranges, notes, .. } = header;
        self.notes.extend(notes);
        self.files.push(OpenFile { source, first: self.tensors.len(), data_start, ranges });
        if self.tensors.is_empty() {
            (self.tensors, self.names) = (header.tensors, header.names);
        } else {
            self.tensors.extend(header.tensors);
        }
    }

    /// Makes the tensors of all files known by their names. Fails when a name is there twice.
    pub(super) fn index_names(&mut self) -> Result<()> {
        self.names = NameIndex::of(&self.path, &self.tensors)?;
        Ok(())
    }

    /// What only all files together can show: names that are there twice, and that they are short of tensors.
    fn check_split(&mut self) -> Result<()> {
        self.index_names()?;
        let expected = self.metadata.u64(KEY_SPLIT_TENSORS).map_err(|error| error.in_file(&self.path))?;
        if u64::try_from(self.tensors.len()) != Ok(expected) {
            let problem = format!("expected {expected} tensors in all files, found {}", self.tensors.len());
            return Err(Error::new(&self.path, problem)
                .at(format!("key {KEY_SPLIT_TENSORS}"))
                .help("the files belong to different models; get new copies"));
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

    fn find(&self, name: &str) -> Option<usize> {
        self.names.find(&self.tensors, name)
    }

    fn read(&self, tensor: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        let Place { source, range, .. } = self.place(tensor);
        source.read_at(range_to_read(&range, offset, out.len()), out)
    }

    fn unchanged(&self) -> Result<()> {
        self.files.iter().try_for_each(|file| file.source.unchanged())
    }

    fn sources(&self) -> Vec<&SourceFile> {
        self.files.iter().map(|file| &file.source).collect()
    }

    fn notes(&self) -> &[String] {
        &self.notes
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
        // The rest of the original name is not known.
        let start = expected.rmatch_indices('-').nth(2).map_or(0, |(place, _)| place);
        let ending = expected.get(start..).unwrap_or(&expected);
        let found = path.file_name().unwrap_or_default().to_string_lossy();
        let problem =
            format!("expected a file name ending in {}, found {}", crate::quote(ending), crate::quote(&found));
        return Err(Error::new(path, problem).at(format!("key {KEY_SPLIT_NUMBER}")).help("restore the original name"));
    };
    if number != 0 {
        return Err(Error::new(
            path,
            format!("expected the first file of a model in {count} files, found a later one"),
        )
        .at(format!("key {KEY_SPLIT_NUMBER}"))
        .help(format!("pass {}", crate::quote(&name.path(0).to_string_lossy()))));
    }
    Ok((1..count).map(|number| name.path(number)).collect())
}

/// Whether a later file says of itself what the first one says of it. The number of all tensors may be missing in it.
fn check_part(path: &Path, metadata: &Metadata, number: u64, first: &Metadata) -> Result<()> {
    for key in [KEY_SPLIT_NUMBER, KEY_SPLIT_COUNT, KEY_SPLIT_TENSORS] {
        let expected = match key {
            KEY_SPLIT_NUMBER => number,
            KEY_SPLIT_TENSORS if !metadata.contains(key) || !first.contains(key) => continue,
            _ => first.u64(key).map_err(|error| error.in_file(path))?,
        };
        let found = metadata.u64(key).map_err(|error| error.in_file(path))?;
        if found != expected {
            return Err(Error::new(path, format!("expected {expected}, found {found}"))
                .at(format!("key {key}"))
                .help("the files belong to different models; get new copies"));
        }
    }
    Ok(())
}
