//! A model file that is ready to compute: mapped, its graph's description checked, its tokenizer parsed.
//!
//! ```text
//! path ─ Gguf (validated, mapped) ─┬─ Model      numbers, types of weights
//!                                  ├─ Tokenizer  where the file has one
//!                                  └─ tensors    bytes in blocks; a split-scale pair NAME + NAME.scale is presented as one tensor
//! ```
//!
//! A model can also be made in memory ([`ModelFile::made`]): described as in a file, its tensors made when they are asked for.
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

use crate::error::Result;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use trueup_blocks::SplitScale;
use trueup_formats::gguf::{Gguf, MappedBytes, MappedGguf, Metadata};
use trueup_formats::{Checkpoint, Error as FileError, SplitScalePart, TensorInfo, quote, split_scale_parts};
use trueup_models::Model;
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
    tensors: Vec<TensorInfo>,
    places: HashMap<String, usize>,
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
        make: MakeTensor,
    },
}

impl ModelFile {
    /// Opens a GGUF file, for a split one its first. Everything is checked here: afterwards the model can be computed.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile> {
        let path = path.as_ref();
        let file = Gguf::open(path)?;
        let parts = split_scale_parts(&file)?;
        let tensors: Vec<TensorInfo> = parts.iter().map(|part| part.info.clone()).collect();
        let model = Model::from_gguf(file.metadata(), &tensors, path)?;
        let tokenizer = match file.metadata().contains(KEY_TOKENIZER) {
            true => Some(Tokenizer::new(Vocabulary::from_metadata(file.metadata(), path)?)?),
            false => None,
        };
        let source = Source::File { file: Box::new(file.map()?), parts };
        Ok(ModelFile { source, model, tokenizer, places: places(&tensors), tensors })
    }

    /// A model that is in no file: keys and tensors as a GGUF file would have them, without a tokenizer, and what makes the tensors' bytes.
    /// `name` stands for the path in messages. Fails where keys and tensors are no model.
    pub fn made(
        name: impl Into<PathBuf>,
        metadata: Metadata,
        tensors: Vec<TensorInfo>,
        make: MakeTensor,
    ) -> Result<ModelFile> {
        let name = name.into();
        let model = Model::from_gguf(&metadata, &tensors, &name)?;
        let source = Source::Made { name, metadata, make };
        Ok(ModelFile { source, model, tokenizer: None, places: places(&tensors), tensors })
    }

    /// The file that was opened, or the name of a model that is in none.
    pub fn path(&self) -> &Path {
        match &self.source {
            Source::File { file, .. } => file.model().path(),
            Source::Made { name, .. } => name,
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
            let error = FileError::new(self.path(), "the file holds no tokenizer").at(format!("key {KEY_TOKENIZER}"));
            error.help("give token ids instead of text, or convert the model again with its tokenizer")
        };
        Ok(self.tokenizer.as_ref().ok_or_else(missing)?)
    }

    /// All tensors, in the order of the file, quantized ones in blocks.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The bytes of a tensor, as its type says: a part of the mapped file, joined from the split-scale layout, or made.
    pub fn tensor_bytes(&self, name: &str) -> Result<Cow<'_, [u8]>> {
        let (file, part) = match self.found(name)? {
            Found::Stored(file, part) => (file, part),
            Found::Made(bytes) => return Ok(Cow::Owned(bytes)),
        };
        let values = file.tensor_bytes(part.values);
        let Some((scales, layout)) = part.scales else {
            return Ok(Cow::Borrowed(values));
        };
        let scales = file.tensor_bytes(scales);
        let blocks = scales.len() / SplitScale::SCALE_BYTES;
        let mut joined = vec![0; blocks.saturating_mul(layout.dtype().block_bytes())];
        layout.join(values, scales, &mut joined);
        Ok(Cow::Owned(joined))
    }

    /// Shows the same bytes in pieces, in their order: of the split-scale layout no more than one is joined at a time.
    pub fn each_piece(&self, name: &str, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (file, part) = match self.found(name)? {
            Found::Stored(file, part) => (file, part),
            Found::Made(bytes) => {
                show(&bytes);
                return Ok(());
            }
        };
        let values = file.tensor_bytes(part.values);
        let Some((scales, layout)) = part.scales else {
            show(values);
            return Ok(());
        };
        let scales = file.tensor_bytes(scales).chunks(PIECE_BLOCKS * SplitScale::SCALE_BYTES);
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

    /// A tensor's bytes where the file is mapped, to be kept; `None` where they are joined from the split-scale layout, or made.
    pub fn mapped(&self, name: &str) -> Option<MappedBytes> {
        let Source::File { file, parts } = &self.source else { return None };
        let part = parts.get(*self.places.get(name)?)?;
        part.scales.is_none().then(|| file.tensor(part.values))
    }

    /// Gives the memory back that reading a tensor of the mapped file took.
    pub fn release(&self, name: &str) {
        let Source::File { file, parts } = &self.source else { return };
        if let Some(part) = self.places.get(name).and_then(|place| parts.get(*place)) {
            file.release(part.values);
            if let Some((scales, _)) = part.scales {
                file.release(scales);
            }
        }
    }

    /// Where a tensor lies, or its bytes where it lies nowhere.
    fn found(&self, name: &str) -> Result<Found<'_>> {
        let place = self.places.get(name);
        let missing =
            || FileError::new(self.path(), "the file has no such tensor").at(format!("tensor {}", quote(name)));
        match &self.source {
            Source::File { file, parts } => {
                let part = place.and_then(|place| parts.get(*place)).ok_or_else(missing)?;
                Ok(Found::Stored(file, part))
            }
            Source::Made { make, .. } => {
                let tensor = place.and_then(|place| self.tensors.get(*place)).ok_or_else(missing)?;
                let bytes = make(tensor);
                if u64::try_from(bytes.len()) != Ok(tensor.bytes) {
                    let problem = format!("expected {} bytes, {} were made", tensor.bytes, bytes.len());
                    return Err(FileError::new(self.path(), problem).at(format!("tensor {}", quote(name))).into());
                }
                Ok(Found::Made(bytes))
            }
        }
    }

    /// Fails when the contents of the file were written to since it was opened: what was computed from its map is then worth nothing.
    pub fn unwritten(&self) -> Result<()> {
        match &self.source {
            Source::File { file, .. } => Ok(file.unwritten()?),
            Source::Made { .. } => Ok(()),
        }
    }

    /// Fails when the file, or what its name leads to, changed since it was opened.
    pub fn unchanged(&self) -> Result<()> {
        match &self.source {
            Source::File { file, .. } => Ok(file.model().unchanged()?),
            Source::Made { .. } => Ok(()),
        }
    }
}

/// A tensor in a file, or as it was made.
enum Found<'a> {
    Stored(&'a MappedGguf, &'a SplitScalePart),
    Made(Vec<u8>),
}

fn places(tensors: &[TensorInfo]) -> HashMap<String, usize> {
    tensors.iter().enumerate().map(|(place, tensor)| (tensor.name.clone(), place)).collect()
}
