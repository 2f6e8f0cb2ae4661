//! A model file that is ready to compute: mapped, its graph's description checked, its tokenizer parsed.
//!
//! ```text
//! path ─ Gguf (validated, mapped) ─┬─ Model      numbers, types of weights
//!                                  ├─ Tokenizer  where the file has one
//!                                  └─ tensors    bytes in blocks; a split-scale pair NAME + NAME.scale is presented as one tensor
//! ```
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
use std::path::Path;
use trueup_blocks::SplitScale;
use trueup_formats::gguf::{Gguf, MappedGguf, Metadata};
use trueup_formats::{Checkpoint, Error as FileError, SplitScalePart, TensorInfo, quote, split_scale_parts};
use trueup_models::Model;
use trueup_tokenizer::{Tokenizer, Vocabulary};

/// The key without which a file has no tokenizer.
const KEY_TOKENIZER: &str = "tokenizer.ggml.model";

/// Blocks of the split-scale layout that are joined at a time.
const PIECE_BLOCKS: usize = 1 << 14;

/// An open model.
pub struct ModelFile {
    file: MappedGguf,
    model: Model,
    tokenizer: Option<Tokenizer>,
    tensors: Vec<TensorInfo>,
    /// Where each of them lies in the file.
    parts: Vec<SplitScalePart>,
    places: HashMap<String, usize>,
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
        let places = tensors.iter().enumerate().map(|(place, tensor)| (tensor.name.clone(), place)).collect();
        Ok(ModelFile { file: file.map()?, model, tokenizer, tensors, parts, places })
    }

    /// The file that was opened.
    pub fn path(&self) -> &Path {
        self.file.model().path()
    }

    /// The file's keys.
    pub fn metadata(&self) -> &Metadata {
        self.file.model().metadata()
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

    /// The bytes of a tensor, as its type says: a part of the mapped file, or joined from the split-scale layout.
    pub fn tensor_bytes(&self, name: &str) -> Result<Cow<'_, [u8]>> {
        let part = self.part(name)?;
        let values = self.file.tensor_bytes(part.values);
        let Some((scales, layout)) = part.scales else {
            return Ok(Cow::Borrowed(values));
        };
        let scales = self.file.tensor_bytes(scales);
        let blocks = scales.len() / SplitScale::SCALE_BYTES;
        let mut joined = vec![0; blocks.saturating_mul(layout.dtype().block_bytes())];
        layout.join(values, scales, &mut joined);
        Ok(Cow::Owned(joined))
    }

    /// Shows the same bytes in pieces, in their order: of the split-scale layout no more than one is joined at a time.
    pub fn each_piece(&self, name: &str, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let part = self.part(name)?;
        let values = self.file.tensor_bytes(part.values);
        let Some((scales, layout)) = part.scales else {
            show(values);
            return Ok(());
        };
        let scales = self.file.tensor_bytes(scales).chunks(PIECE_BLOCKS * SplitScale::SCALE_BYTES);
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

    /// Gives the memory back that reading a tensor of the mapped file took.
    pub fn release(&self, name: &str) -> Result<()> {
        let part = self.part(name)?;
        self.file.release(part.values);
        if let Some((scales, _)) = part.scales {
            self.file.release(scales);
        }
        Ok(())
    }

    fn part(&self, name: &str) -> Result<&SplitScalePart> {
        let missing =
            || FileError::new(self.path(), "the file has no such tensor").at(format!("tensor {}", quote(name)));
        Ok(self.places.get(name).and_then(|place| self.parts.get(*place)).ok_or_else(missing)?)
    }

    /// Fails when the file changed since it was opened: what was computed from it is then worth nothing.
    pub fn unchanged(&self) -> Result<()> {
        Ok(self.file.model().unchanged()?)
    }
}
