//! Split-scale layout: a quantized tensor stored as two, values and scales, and presented as one.
//!
//! ```text
//! trueup.layout = "split-scale"
//! NAME        I8   [bytes of values per row, rows]       q8_0: columns, q4_0: columns / 2
//! NAME.scale  F16  [columns / 32, rows]
//! ```
//!
//! Both parts keep the order of blocks, so a range of blocks is one range in each. Only this file and the writer in
//! `quantize` know the layout; all other code sees blocks.

use crate::checkpoint::{Checkpoint, Description, TensorInfo, TokenizerFiles};
use crate::error::{Error, Result, quote};
use crate::source_file::SourceFile;
use std::path::Path;
use trueup_blocks::{DType, SplitScale};

/// The key that names a file's layout; absent in files that hold blocks.
pub const LAYOUT_KEY: &str = "trueup.layout";

/// The layout of values and scales apart.
pub const LAYOUT_SPLIT_SCALE: &str = "split-scale";

/// What is behind the name of a tensor of scales.
pub const SCALE_SUFFIX: &str = ".scale";

/// The two tensors that stand for one of this shape: values, then scales.
pub fn split_scale_tensors(name: &str, shape: &[u64], split: SplitScale) -> Vec<TensorInfo> {
    let block_len = widen(split.dtype().block_len());
    let blocks = shape.first().map_or(0, |columns| columns.checked_div(block_len).unwrap_or(0));
    let plane = |name: String, per_block: u64, dtype: DType, element_bytes: u64| {
        let mut shape = shape.to_vec();
        if let Some(columns) = shape.first_mut() {
            *columns = blocks.saturating_mul(per_block);
        }
        let bytes = shape.iter().copied().fold(element_bytes, u64::saturating_mul);
        TensorInfo { name, shape, dtype, bytes }
    };
    let values = plane(name.to_owned(), widen(split.value_bytes()), DType::I8, 1);
    vec![values, plane(format!("{name}{SCALE_SUFFIX}"), 1, DType::F16, 2)]
}

/// The checkpoint itself, or, where its file says that it is split, a view that joins values and scales to blocks.
pub fn join_split_scale(inner: Box<dyn Checkpoint>) -> Result<Box<dyn Checkpoint>> {
    if !is_split(inner.as_ref())? {
        return Ok(inner);
    }
    let parts = split_scale_parts(inner.as_ref())?;
    let tensors = parts.iter().map(|part| part.info.clone()).collect();
    Ok(Box::new(Joined { inner, tensors, parts }))
}

/// Whether a file says that it is split; a layout that is not known is refused.
fn is_split(file: &dyn Checkpoint) -> Result<bool> {
    let Description::Gguf(metadata) = file.description() else { return Ok(false) };
    if !metadata.contains(LAYOUT_KEY) {
        return Ok(false);
    }
    let layout = metadata.string(LAYOUT_KEY).map_err(|fault| fault.in_file(file.path()))?;
    if layout != LAYOUT_SPLIT_SCALE {
        let problem = format!("expected {LAYOUT_SPLIT_SCALE:?}, found {:?}", quote(layout));
        return Err(Error::new(file.path(), problem)
            .at(format!("key {LAYOUT_KEY}"))
            .help("the file is damaged, or it needs a newer version of trueup"));
    }
    Ok(true)
}

/// One tensor as its user sees it, and where its bytes are.
#[derive(Clone, Debug)]
pub struct SplitScalePart {
    /// The tensor: blocks where it is split.
    pub info: TensorInfo,
    /// The number of the tensor in the file that holds it, or its values.
    pub values: usize,
    /// When it is split: the number of the tensor that holds its scales, and the layout.
    pub scales: Option<(usize, SplitScale)>,
}

/// All tensors of a file, joined where the file says that it is split. Errors when the layout is unknown or values and
/// scales do not fit.
pub fn split_scale_parts(file: &dyn Checkpoint) -> Result<Vec<SplitScalePart>> {
    if !is_split(file)? {
        let plain = |(place, tensor): (usize, &TensorInfo)| SplitScalePart {
            info: tensor.clone(),
            values: place,
            scales: None,
        };
        return Ok(file.tensors().iter().enumerate().map(plain).collect());
    }
    let tensors = file.tensors();
    let is_scale = |name: &str| name.strip_suffix(SCALE_SUFFIX).is_some_and(|values| file.find(values).is_some());
    let mut parts = Vec::new();
    for (place, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| !is_scale(&tensor.name)) {
        let scales = file.find(&format!("{}{SCALE_SUFFIX}", tensor.name));
        parts.push(match scales.and_then(|scales| Some((scales, tensors.get(scales)?))) {
            None => SplitScalePart { info: tensor.clone(), values: place, scales: None },
            Some((scales, scale)) => joined_part(file, (place, tensor), (scales, scale))?,
        });
    }
    Ok(parts)
}

/// The tensor that values and scales stand for: the layout whose two tensors they are.
fn joined_part(
    file: &dyn Checkpoint,
    (place, values): (usize, &TensorInfo),
    (scale_place, scales): (usize, &TensorInfo),
) -> Result<SplitScalePart> {
    for split in SplitScale::DTYPES.into_iter().filter_map(SplitScale::of) {
        let mut shape = values.shape.clone();
        let blocks = scales.shape.first().copied().unwrap_or(0);
        if let Some(columns) = shape.first_mut() {
            *columns = blocks.saturating_mul(widen(split.dtype().block_len()));
        }
        let expected = split_scale_tensors(&values.name, &shape, split);
        if expected.first() == Some(values) && expected.get(1) == Some(scales) {
            let info = TensorInfo::new(values.name.clone(), &shape, split.dtype())?;
            return Ok(SplitScalePart { info, values: place, scales: Some((scale_place, split)) });
        }
    }
    let problem = format!(
        "values {} {:?} and scales {} {:?} are not the two planes of one tensor",
        values.dtype, values.shape, scales.dtype, scales.shape
    );
    Err(Error::new(file.path(), problem).at(format!("tensor {}", quote(&values.name))).help("quantize the model again"))
}

/// A file in the split-scale layout, seen as blocks.
struct Joined {
    inner: Box<dyn Checkpoint>,
    tensors: Vec<TensorInfo>,
    parts: Vec<SplitScalePart>,
}

impl Checkpoint for Joined {
    fn format(&self) -> &str {
        self.inner.format()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn description(&self) -> Description<'_> {
        self.inner.description()
    }

    fn tokenizer(&self) -> &TokenizerFiles {
        self.inner.tokenizer()
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn read(&self, tensor: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        let Some(part) = self.parts.get(tensor) else {
            return Err(Error::new(self.path(), format!("has no tensor number {tensor}")));
        };
        let Some((scales_place, split)) = part.scales else {
            return self.inner.read(part.values, offset, out);
        };
        let block_bytes = split.dtype().block_bytes();
        let first = offset.checked_div(widen(block_bytes)).unwrap_or(0);
        let count = out.len().checked_div(block_bytes).unwrap_or(0);
        let mut values = vec![0; count.saturating_mul(split.value_bytes())];
        let mut scales = vec![0; count.saturating_mul(SplitScale::SCALE_BYTES)];
        self.inner.read(part.values, first.saturating_mul(widen(split.value_bytes())), &mut values)?;
        self.inner.read(scales_place, first.saturating_mul(widen(SplitScale::SCALE_BYTES)), &mut scales)?;
        split.join(&values, &scales, out);
        Ok(())
    }

    fn unchanged(&self) -> Result<()> {
        self.inner.unchanged()
    }

    fn sources(&self) -> Vec<&SourceFile> {
        self.inner.sources()
    }

    fn notes(&self) -> &[String] {
        self.inner.notes()
    }
}

/// A small constant as u64; none is larger than a block.
fn widen(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
