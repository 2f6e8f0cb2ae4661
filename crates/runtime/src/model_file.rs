//! A model file that is ready to compute: mapped, its graph's description checked, its tokenizer parsed.
//!
//! ```text
//! path ─ Gguf (validated, mapped) ─┬─ Model      numbers, types of weights
//!                                  ├─ Tokenizer  where the file has one
//!                                  └─ tensors    bytes in blocks; a split-scale pair NAME + NAME.scale is presented as one tensor
//! ```

use crate::error::Result;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use trueup_blocks::{DType, SplitScale};
use trueup_formats::gguf::{Gguf, MappedGguf, Metadata};
use trueup_formats::{Checkpoint, Error as FileError, TensorInfo, quote};
use trueup_models::Model;
use trueup_tokenizer::{Tokenizer, Vocabulary};

/// The key that says how quantized tensors are laid out, and its one value other than absence.
const KEY_LAYOUT: &str = "trueup.layout";
const LAYOUT_SPLIT_SCALE: &str = "split-scale";

/// What a tensor of scales is called: the name of its values and this.
const SCALE_SUFFIX: &str = ".scale";

/// The key without which a file has no tokenizer.
const KEY_TOKENIZER: &str = "tokenizer.ggml.model";

/// An open model.
pub struct ModelFile {
    file: MappedGguf,
    model: Model,
    tokenizer: Option<Tokenizer>,
    tensors: Vec<TensorInfo>,
    sources: Vec<TensorSource>,
    places: HashMap<String, usize>,
}

/// The tensors of the file that a presented tensor is made of.
#[derive(Clone, Copy, Debug)]
enum TensorSource {
    /// As it stands.
    Whole(usize),
    /// Values and scales apart.
    Split { layout: SplitScale, values: usize, scales: usize },
}

impl ModelFile {
    /// Opens a GGUF file, for a split one its first. Everything is checked here: afterwards the model can be computed.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile> {
        let path = path.as_ref();
        let file = Gguf::open(path)?;
        let (tensors, sources) = present(&file)?;
        let model = Model::from_gguf(file.metadata(), &tensors, path)?;
        let tokenizer = match file.metadata().contains(KEY_TOKENIZER) {
            true => Some(Tokenizer::new(Vocabulary::from_metadata(file.metadata(), path)?)?),
            false => None,
        };
        let places = tensors.iter().enumerate().map(|(place, tensor)| (tensor.name.clone(), place)).collect();
        Ok(ModelFile { file: file.map()?, model, tokenizer, tensors, sources, places })
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
        let missing = || FileError::new(self.path(), "the file has no such tensor").at(format!("tensor {}", quote(name)));
        let place = *self.places.get(name).ok_or_else(missing)?;
        Ok(match self.sources[place] {
            TensorSource::Whole(tensor) => Cow::Borrowed(self.file.tensor_bytes(tensor)),
            TensorSource::Split { layout, values, scales } => {
                let (values, scales) = (self.file.tensor_bytes(values), self.file.tensor_bytes(scales));
                let blocks = scales.len() / SplitScale::SCALE_BYTES;
                let mut joined = vec![0; blocks * layout.dtype().block_bytes()];
                layout.join(values, scales, &mut joined);
                Cow::Owned(joined)
            }
        })
    }

    /// Fails when the file changed since it was opened: what was computed from it is then worth nothing.
    pub fn unchanged(&self) -> Result<()> {
        Ok(self.file.model().unchanged()?)
    }
}

/// The tensors as the model knows them.
fn present(file: &Gguf) -> std::result::Result<(Vec<TensorInfo>, Vec<TensorSource>), FileError> {
    let stored = file.tensors();
    if !is_split(file)? {
        return Ok((stored.to_vec(), (0..stored.len()).map(TensorSource::Whole).collect()));
    }
    let places: HashMap<&str, usize> = stored.iter().enumerate().map(|(place, tensor)| (tensor.name.as_str(), place)).collect();
    let (mut tensors, mut sources) = (Vec::new(), Vec::new());
    for (place, tensor) in stored.iter().enumerate() {
        let values = tensor.name.strip_suffix(SCALE_SUFFIX).and_then(|name| places.get(name));
        if values.is_some_and(|values| stored[*values].dtype == DType::I8) {
            continue;
        }
        if tensor.dtype != DType::I8 {
            tensors.push(tensor.clone());
            sources.push(TensorSource::Whole(place));
            continue;
        }
        let fault = |problem: String| FileError::new(file.path(), problem).at(format!("tensor {}", quote(&tensor.name)));
        let scales = places.get(format!("{}{SCALE_SUFFIX}", tensor.name).as_str());
        let scales = *scales.ok_or_else(|| fault(format!("its scales, a tensor of that name and {SCALE_SUFFIX}, are missing")))?;
        let (joined, layout) = join(tensor, &stored[scales]).map_err(fault)?;
        tensors.push(joined);
        sources.push(TensorSource::Split { layout, values: place, scales });
    }
    Ok((tensors, sources))
}

fn is_split(file: &Gguf) -> std::result::Result<bool, FileError> {
    if !file.metadata().contains(KEY_LAYOUT) {
        return Ok(false);
    }
    let layout = file.metadata().string(KEY_LAYOUT).map_err(|error| error.in_file(file.path()))?;
    if layout == LAYOUT_SPLIT_SCALE {
        return Ok(true);
    }
    let problem = format!("expected {LAYOUT_SPLIT_SCALE}, found {}", quote(layout));
    Err(FileError::new(file.path(), problem).at(format!("key {KEY_LAYOUT}")).help("use a newer version of this program"))
}

/// The tensor that values and scales make together, or why they do not fit: values have `K` bytes a row (q8_0) or `K / 2` (q4_0),
/// scales are f16 and `K / 32` a row.
fn join(values: &TensorInfo, scales: &TensorInfo) -> std::result::Result<(TensorInfo, SplitScale), String> {
    let unfit = || format!("values {:?} and scales {} {:?} do not belong together", values.shape, scales.dtype, scales.shape);
    let (bytes, blocks) = values.shape.first().zip(scales.shape.first()).ok_or_else(unfit)?;
    let layouts = SplitScale::DTYPES.into_iter().filter_map(SplitScale::of);
    let fits = |layout: &SplitScale| blocks.checked_mul(layout.value_bytes() as u64) == Some(*bytes);
    let layout = layouts.into_iter().find(fits).ok_or_else(unfit)?;
    if scales.dtype != DType::F16 || values.shape[1..] != scales.shape[1..] {
        return Err(unfit());
    }
    let mut shape = values.shape.clone();
    shape[0] = blocks.checked_mul(layout.dtype().block_len() as u64).ok_or_else(unfit)?;
    let joined = TensorInfo::new(values.name.clone(), &shape, layout.dtype()).map_err(|error| error.to_string())?;
    Ok((joined, layout))
}
