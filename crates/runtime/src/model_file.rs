//! A model file that is ready to compute: mapped, model config validated, tokenizer parsed.
//!
//! ```text
//! path ─ Gguf (validated, mapped) ─┬─ Model      dimensions, weight types
//!                                  ├─ Tokenizer  if the file has one
//!                                  └─ tensors    bytes in blocks
//! ```
//!
//! A split-scale pair (NAME and NAME.scale) appears as one tensor. A stored tensor that joins several (attn_qkv;
//! ffn_up with gate and up) appears as its parts: row ranges of the mapped tensor.
//!
//! A model can also be made in memory ([`ModelFile::made`]); its tensors are generated on demand.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

use crate::error::{Error, Result};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use trueup_blocks::SplitScale;
use trueup_formats::gguf::{Gguf, MappedBytes, MappedGguf, Metadata};
use trueup_formats::{
    Checkpoint, Error as FileError, SplitScalePart, TemporaryFile, TensorInfo, quote, split_scale_parts,
};
use trueup_models::{Model, Slice};
use trueup_tokenizer::{Tokenizer, Vocabulary};

/// The key without which a file has no tokenizer.
const KEY_TOKENIZER: &str = "tokenizer.ggml.model";

/// Blocks of the split-scale layout that are joined at a time.
const PIECE_BLOCKS: usize = 1 << 14;

/// Makes the bytes of a tensor of a model that is in no file: [`TensorInfo::bytes`] of them, the same each time.
pub type MakeTensor = Box<dyn Fn(&TensorInfo) -> Vec<u8> + Send + Sync>;

/// An open model.
pub struct ModelFile {
    source: Source,
    model: Model,
    tokenizer: Option<Tokenizer>,
    /// Why the tokenizer of the file could not be read.
    refused_tokenizer: Option<FileError>,
    tensors: Vec<TensorInfo>,
    /// Where each is, by its name.
    places: HashMap<String, Stored>,
    /// If the file was temporary: the model that it was made from. The file is mapped and has no name any more.
    temporary: Option<PathBuf>,
}

/// A tensor, or some rows of one, of the file.
#[derive(Clone, Debug)]
struct Stored {
    /// Its number there.
    tensor: usize,
    /// Its bytes, in blocks.
    range: Range<usize>,
}

/// Where tensors come from.
enum Source {
    File {
        file: Box<MappedGguf>,
        /// Where each tensor lies in the file.
        parts: Vec<SplitScalePart>,
    },
    Made {
        name: PathBuf,
        metadata: Metadata,
        /// As a file would have them.
        tensors: Vec<TensorInfo>,
        make: MakeTensor,
    },
}

impl ModelFile {
    /// Opens a GGUF file, for a split one its first. Everything is checked here: afterwards the model can be computed.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile> {
        let file = ModelFile::open_for_other_tokenizer(path)?;
        match &file.refused_tokenizer {
            Some(error) => Err(error.clone().into()),
            None => Ok(file),
        }
    }

    /// Opens a GGUF file as [`ModelFile::open`] does, even if its tokenizer cannot be read: another one takes its
    /// place. [`ModelFile::tokenizer`] says then why it was not read.
    pub fn open_for_other_tokenizer(path: impl AsRef<Path>) -> Result<ModelFile> {
        let path = path.as_ref();
        let file = Gguf::open(path)?;
        let parts = split_scale_parts(&file)?;
        let tensors: Vec<TensorInfo> = parts.iter().map(|part| part.info.clone()).collect();
        let model = Model::from_gguf(file.metadata(), &tensors, path)?;
        let read = || Vocabulary::from_metadata(file.metadata(), path).and_then(Tokenizer::new);
        let (tokenizer, refused_tokenizer) = match Vocabulary::is_in(file.metadata()).then(read) {
            Some(Ok(tokenizer)) => (Some(tokenizer), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        let source = Source::File { file: Box::new(file.map()?), parts };
        let (tensors, places) = shown(&model, &tensors);
        Ok(ModelFile { source, model, tokenizer, refused_tokenizer, places, tensors, temporary: None })
    }

    /// A model that is in no file: keys and tensors as a GGUF file would have them, without a tokenizer, and what makes
    /// the tensors' bytes. `name` stands for the path in messages. Fails where keys and tensors are no model.
    pub fn made(
        name: impl Into<PathBuf>,
        metadata: Metadata,
        tensors: Vec<TensorInfo>,
        make: MakeTensor,
    ) -> Result<ModelFile> {
        let name = name.into();
        let model = Model::from_gguf(&metadata, &tensors, &name)?;
        let (shown, places) = shown(&model, &tensors);
        let source = Source::Made { name, metadata, tensors, make };
        Ok(ModelFile {
            source,
            model,
            tokenizer: None,
            refused_tokenizer: None,
            places,
            tensors: shown,
            temporary: None,
        })
    }

    /// Opens a temporary file as [`ModelFile::open_for_other_tokenizer`] does, and removes it: the model needs only the
    /// map, and a process that is killed leaves nothing. [`ModelFile::path`] and messages name `source`, the model that
    /// the file was made from.
    pub fn open_temporary(file: TemporaryFile, source: impl Into<PathBuf>) -> Result<ModelFile> {
        let opened = ModelFile::open_for_other_tokenizer(file.path())?;
        drop(file);
        Ok(ModelFile { temporary: Some(source.into()), ..opened })
    }

    /// The file that was opened, or the name of a model that is in none.
    pub fn path(&self) -> &Path {
        match (&self.temporary, &self.source) {
            (Some(path), _) => path,
            (None, Source::File { file, .. }) => file.model().path(),
            (None, Source::Made { name, .. }) => name,
        }
    }

    /// The file's keys.
    pub fn metadata(&self) -> &Metadata {
        match &self.source {
            Source::File { file, .. } => file.model().metadata(),
            Source::Made { metadata, .. } => metadata,
        }
    }

    /// The architecture and its numbers.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokenizer; an error where the file has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        let missing = || {
            let error =
                FileError::new(self.path(), "expected a tokenizer, found none").at(format!("key {KEY_TOKENIZER}"));
            error.help("pass a tokenizer file, or token IDs instead of text")
        };
        let refused = || self.refused_tokenizer.clone().unwrap_or_else(missing);
        Ok(self.tokenizer.as_ref().ok_or_else(refused)?)
    }

    /// All tensors as graphs know them, in the order of the file, quantized ones in blocks.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The bytes of a tensor, as its type says: a part of the mapped file, joined from the split-scale layout, or made.
    pub fn tensor_bytes(&self, name: &str) -> Result<Cow<'_, [u8]>> {
        let planes = match self.found(name)? {
            Found::Stored(planes) => planes,
            Found::Made(bytes) => return Ok(Cow::Owned(bytes)),
        };
        let Planes { values, scales: Some((scales, layout)) } = planes else {
            return Ok(Cow::Borrowed(planes.values));
        };
        let blocks = scales.len() / SplitScale::SCALE_BYTES;
        let mut joined = vec![0; blocks.saturating_mul(layout.dtype().block_bytes())];
        layout.join(values, scales, &mut joined);
        Ok(Cow::Owned(joined))
    }

    /// Shows the same bytes in pieces, in their order: of the split-scale layout no more than one is joined at a time.
    pub fn each_piece(&self, name: &str, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let planes = match self.found(name)? {
            Found::Stored(planes) => planes,
            Found::Made(bytes) => {
                show(&bytes);
                return Ok(());
            }
        };
        let Planes { values, scales: Some((scales, layout)) } = planes else {
            show(planes.values);
            return Ok(());
        };
        let scales = scales.chunks(PIECE_BLOCKS * SplitScale::SCALE_BYTES);
        let mut joined = vec![0; PIECE_BLOCKS.saturating_mul(layout.dtype().block_bytes())];
        for (values, scales) in values.chunks(PIECE_BLOCKS.saturating_mul(layout.value_bytes())).zip(scales) {
            let blocks = scales.len() / SplitScale::SCALE_BYTES;
            let bytes = blocks.saturating_mul(layout.dtype().block_bytes());
            let Some(joined) = joined.get_mut(..bytes) else {
                unreachable!("a piece has {PIECE_BLOCKS} blocks at most")
            };
            layout.join(values, scales, joined);
            show(joined);
        }
        Ok(())
    }

    /// A tensor's bytes where the file is mapped, to be kept; `None` where they are joined from the split-scale layout,
    /// or made.
    pub fn mapped(&self, name: &str) -> Option<MappedBytes> {
        let Source::File { file, parts } = &self.source else { return None };
        let stored = self.places.get(name)?;
        let part = parts.get(stored.tensor).filter(|part| part.scales.is_none())?;
        file.tensor(part.values).part(stored.range.clone())
    }

    /// Gives the memory back that reading a tensor of the mapped file took.
    pub fn release(&self, name: &str) {
        let Source::File { file, parts } = &self.source else { return };
        if let Some(part) = self.places.get(name).and_then(|stored| parts.get(stored.tensor)) {
            file.release(part.values);
            if let Some((scales, _)) = part.scales {
                file.release(scales);
            }
        }
    }

    /// Where a tensor lies, or its bytes where it lies nowhere.
    fn found(&self, name: &str) -> Result<Found<'_>> {
        let missing =
            || FileError::new(self.path(), "the file has no such tensor").at(format!("tensor {}", quote(name)));
        let Stored { tensor, range } = self.places.get(name).ok_or_else(missing)?;
        match &self.source {
            Source::File { file, parts } => {
                let part = parts.get(*tensor).ok_or_else(missing)?;
                Ok(Found::Stored(planes(file, part, range).ok_or_else(missing)?))
            }
            Source::Made { tensors, make, .. } => {
                let tensor = tensors.get(*tensor).ok_or_else(missing)?;
                let mut bytes = make(tensor);
                if u64::try_from(bytes.len()) != Ok(tensor.bytes) {
                    let problem = format!("expected {} bytes, found {}", tensor.bytes, bytes.len());
                    return Err(FileError::new(self.path(), problem).at(format!("tensor {}", quote(name))).into());
                }
                bytes.truncate(range.end);
                Ok(Found::Made(bytes.split_off(range.start)))
            }
        }
    }

    /// Fails when the contents of the file were written to since it was opened: what was computed from its map is then
    /// worth nothing.
    pub fn unwritten(&self) -> Result<()> {
        match &self.source {
            Source::File { file, .. } => Ok(file.unwritten()?),
            Source::Made { .. } => Ok(()),
        }
    }

    /// Fails where an id is none of the vocabulary's.
    pub(crate) fn expect_token(&self, token: u32) -> Result<()> {
        let vocabulary = self.model().spec().vocabulary_size();
        if usize::try_from(token).is_ok_and(|token| token < vocabulary) {
            return Ok(());
        }
        let last = vocabulary.saturating_sub(1);
        Err(Error::Request(format!("expected token IDs from 0 to {last}, found {token}; use IDs of this model")))
    }

    /// Fails for a model that computes vectors and no logits.
    ///
    /// # Errors
    /// The model is an encoder.
    pub fn expect_generation(&self) -> Result<()> {
        let spec = self.model().spec();
        if spec.has_logits() {
            return Ok(());
        }
        let (path, name) = (quote(&self.path().display().to_string()), spec.architecture().gguf_name);
        Err(Error::Request(format!(
            "{path}: expected a model that generates text, found an encoder ({name}); compute its embeddings \
             with `trueup run --logits FILE`"
        )))
    }

    /// Fails for an encoder-decoder model, which `what` does not support; `help` says what to do.
    ///
    /// # Errors
    /// An encoder reads a text before the model writes.
    pub fn expect_no_encoder(&self, what: &str, help: &str) -> Result<()> {
        let spec = self.model().spec();
        if !spec.has_encoder() {
            return Ok(());
        }
        let (path, name) = (quote(&self.path().display().to_string()), spec.architecture().gguf_name);
        Err(Error::Request(format!("{path}: {what} does not support encoder-decoder models ({name}); {help}")))
    }

    /// Fails when the file, or what its name leads to, changed since it was opened.
    pub fn unchanged(&self) -> Result<()> {
        match &self.source {
            // It has no name, so only its contents can be looked at.
            Source::File { file, .. } if self.temporary.is_some() => Ok(file.unwritten()?),
            Source::File { file, .. } => Ok(file.model().unchanged()?),
            Source::Made { .. } => Ok(()),
        }
    }
}

/// A tensor in a file, or as it was made.
enum Found<'a> {
    Stored(Planes<'a>),
    Made(Vec<u8>),
}

/// A tensor's bytes in a file: its blocks, or of the split-scale layout its values, and its scales with the layout.
struct Planes<'a> {
    values: &'a [u8],
    scales: Option<(&'a [u8], SplitScale)>,
}

/// Where a range of the bytes of blocks lies; whole blocks, for it is of rows.
fn planes<'a>(file: &'a MappedGguf, part: &SplitScalePart, range: &Range<usize>) -> Option<Planes<'a>> {
    let values = file.tensor_bytes(part.values);
    let Some((scales, layout)) = part.scales else {
        return Some(Planes { values: values.get(range.clone())?, scales: None });
    };
    let block = layout.dtype().block_bytes();
    let of_blocks = |bytes: usize| {
        Some(range.start.checked_div(block)?.checked_mul(bytes)?..range.end.checked_div(block)?.checked_mul(bytes)?)
    };
    let values = values.get(of_blocks(layout.value_bytes())?)?;
    let scales = file.tensor_bytes(scales).get(of_blocks(SplitScale::SCALE_BYTES)?)?;
    Some(Planes { values, scales: Some((scales, layout)) })
}

/// The tensors of a file as graphs know them, and where each is: where the model has slices of one, these stand in its
/// place.
fn shown(model: &Model, tensors: &[TensorInfo]) -> (Vec<TensorInfo>, HashMap<String, Stored>) {
    let mut slices: HashMap<&str, Vec<&Slice>> = HashMap::new();
    for slice in model.slices() {
        slices.entry(&slice.stored).or_default().push(slice);
    }
    let (mut all, mut places) = (Vec::new(), HashMap::new());
    for (number, tensor) in tensors.iter().enumerate() {
        let whole = usize::try_from(tensor.bytes).unwrap_or(usize::MAX);
        let Some(slices) = slices.get(tensor.name.as_str()) else {
            places.insert(tensor.name.clone(), Stored { tensor: number, range: 0..whole });
            all.push(tensor.clone());
            continue;
        };
        // One behind the other, from the first row to the last.
        let mut start = 0usize;
        for Slice { name, ty, .. } in slices {
            let end = start.saturating_add(ty.bytes());
            places.insert(name.clone(), Stored { tensor: number, range: start..end });
            let sizes = ty.shape.sizes();
            let shape = sizes.iter().take(tensor.shape.len()).map(|size| u64::try_from(*size).unwrap_or(u64::MAX));
            let bytes = u64::try_from(ty.bytes()).unwrap_or(u64::MAX);
            all.push(TensorInfo { name: name.clone(), shape: shape.collect(), dtype: tensor.dtype, bytes });
            start = end;
        }
    }
    (all, places)
}
