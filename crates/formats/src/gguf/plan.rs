//! What a model looks like on disk before a byte of it is written: files, sizes, the place of every tensor.
//!
//! ```text
//! header | pad | tensor 0 | pad | tensor 1 | pad ...     alignment 32, order of the header, no gaps but padding
//! ```
//!
//! Split files: the first has all keys, each has `split.no`, `split.count` and `split.tensors.count`.

use super::header::KEY_BYTES_MAX;
use super::layer_name::layer_of;
use super::split_name::SplitName;
use super::value::write_string;
use super::{
    ALIGNMENT, FILE_KEYS, KEY_SPLIT_COUNT, KEY_SPLIT_NUMBER, KEY_SPLIT_TENSORS, MAGIC, Metadata, VERSION, Value,
};
use crate::checkpoint::TensorInfo;
use crate::error::{Error, Result, quote};
use crate::tensor_range::{check_unique, tensor_bytes};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The longest tensor name that other programs read, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Where a model is cut into files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Split {
    /// Nowhere.
    #[default]
    Whole,
    /// Where a file would be larger than so many bytes.
    Bytes(u64),
    /// Before each layer and behind the last: what lies before the layers, each of them and what lies behind them are
    /// files of their own.
    Layers,
}

/// A largest size, if there is one.
impl From<Option<u64>> for Split {
    fn from(bytes_max: Option<u64>) -> Split {
        bytes_max.map_or(Split::Whole, Split::Bytes)
    }
}

impl Split {
    /// Whether a tensor begins a file behind another one; `fits` says whether there is room for it in the same.
    fn cuts(self, before: &TensorInfo, tensor: &TensorInfo, fits: impl FnOnce(u64) -> bool) -> bool {
        match self {
            Split::Whole => false,
            Split::Bytes(bytes_max) => !fits(bytes_max),
            Split::Layers => layer_of(&before.name) != layer_of(&tensor.name),
        }
    }
}

/// The layout of a model in one or more files.
#[derive(Clone, Debug)]
pub struct GgufPlan {
    /// The name that was asked for; each file's is made from it when there are several.
    pub(super) path: PathBuf,
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) files: Vec<PlannedFile>,
}

/// One file of a plan.
#[derive(Clone, Debug)]
pub struct PlannedFile {
    /// Where it will be.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Numbers of its tensors.
    pub tensors: Range<usize>,
    /// Everything before the data, padded.
    pub(super) header: Vec<u8>,
    /// Where each of its tensors starts in the file.
    pub(super) starts: Vec<u64>,
}

impl GgufPlan {
    /// Lays out tensors in the given order, cut into files as `split` says: of a largest size, as far as single tensors
    /// allow, or by layers. A model that needs several is named `NAME-00001-of-0000N.gguf`. Keys that describe a file
    /// (`general.alignment`, `split.*`) are not taken over from `metadata`.
    pub fn new(
        path: impl AsRef<Path>,
        metadata: &Metadata,
        tensors: &[TensorInfo],
        split: impl Into<Split>,
    ) -> Result<GgufPlan> {
        let path = path.as_ref();
        let mut keys = metadata.clone();
        FILE_KEYS.iter().for_each(|key| drop(keys.remove(key)));
        check(path, &keys, tensors)?;
        let parts = parts(tensors, header_bytes(&keys, &[]), split.into())
            .ok_or_else(|| Error::new(path, "all tensors together exceed 2^64 bytes"))?;
        let count = u16::try_from(parts.len()).map_err(|_| {
            Error::new(path, format!("the model would need {} files", parts.len())).help("allow larger files")
        })?;
        let tensor_count = i32::try_from(tensors.len()).map_err(|_| Error::new(path, "too many tensors to split"))?;
        let mut files = Vec::with_capacity(parts.len());
        for (number, part) in (0..count).zip(parts) {
            let mut keys = if number == 0 { std::mem::take(&mut keys) } else { Metadata::default() };
            let mut file_path = path.to_owned();
            if count > 1 {
                keys.insert(KEY_SPLIT_NUMBER, number);
                keys.insert(KEY_SPLIT_COUNT, count);
                keys.insert(KEY_SPLIT_TENSORS, tensor_count);
                file_path = SplitName::new(path, number.into(), count.into()).path(number.into());
            }
            files.push(PlannedFile::new(file_path, &keys, tensors, part)?);
        }
        Ok(GgufPlan { path: path.to_owned(), tensors: tensors.to_vec(), files })
    }

    /// The files, in order.
    pub fn files(&self) -> &[PlannedFile] {
        &self.files
    }

    /// The tensors, in order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Size of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }
}

impl PlannedFile {
    fn new(path: PathBuf, keys: &Metadata, all: &[TensorInfo], part: Range<usize>) -> Result<PlannedFile> {
        let tensors = all.get(part.clone()).unwrap_or_default();
        let too_large = || Error::new(&path, "the file would exceed 2^64 bytes");
        let offsets = offsets(tensors).ok_or_else(too_large)?;
        let header = header(keys, tensors, &offsets);
        let data_start = size(header.len());
        let placed = offsets.iter().map(|offset| data_start.checked_add(*offset));
        let mut starts = placed.collect::<Option<Vec<u64>>>().ok_or_else(too_large)?;
        // One more offset than tensors: the end of the data.
        let bytes = starts.pop().unwrap_or(data_start);
        Ok(PlannedFile { path, bytes, tensors: part, header, starts })
    }
}

fn size(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Everything that would make a file which others refuse.
fn check(path: &Path, keys: &Metadata, tensors: &[TensorInfo]) -> Result<()> {
    if let Some((key, _)) = keys.iter().find(|(key, _)| key.is_empty() || size(key.len()) > KEY_BYTES_MAX) {
        let problem = format!("expected a key of 1 to {KEY_BYTES_MAX} bytes, found {}", key.len());
        return Err(Error::new(path, problem).at(format!("key {}", quote(key))));
    }
    check_unique(path, tensors.iter().map(|tensor| tensor.name.as_str()))?;
    for tensor in tensors {
        let fault = |problem| Err(Error::new(path, problem).at(format!("tensor {}", quote(&tensor.name))));
        if !(1..=NAME_BYTES_MAX).contains(&tensor.name.len()) {
            return fault(format!("expected a name of 1 to {NAME_BYTES_MAX} bytes, found {}", tensor.name.len()));
        }
        match tensor_bytes(&tensor.shape, tensor.dtype) {
            Ok(0) => return fault(format!("expected no dimension of 0, found shape {:?}", tensor.shape)),
            Ok(bytes) if bytes == tensor.bytes => (),
            Ok(bytes) => return fault(format!("expected {bytes} bytes for its shape, found {}", tensor.bytes)),
            Err(problem) => return fault(problem),
        }
    }
    Ok(())
}

/// Which tensors go into which file. `None` when sizes overflow.
fn parts(tensors: &[TensorInfo], first_header_bytes: u64, split: Split) -> Option<Vec<Range<usize>>> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut bytes = first_header_bytes;
    for (index, tensor) in tensors.iter().enumerate() {
        let entry = size(entry_bytes(tensor));
        let more = tensor.bytes.checked_next_multiple_of(ALIGNMENT)?.checked_add(entry)?;
        let fits = |bytes_max| bytes.checked_add(more).is_some_and(|bytes| bytes <= bytes_max);
        let before = index.checked_sub(1).filter(|_| index > start).and_then(|before| tensors.get(before));
        if before.is_some_and(|before| split.cuts(before, tensor, fits)) {
            parts.push(start..index);
            start = index;
            bytes = header_bytes(&Metadata::default(), &[]);
        }
        bytes = bytes.checked_add(more)?;
    }
    parts.push(start..tensors.len());
    Some(parts)
}

/// Starts of the tensors from the start of the data, and the end of the last one with its padding.
fn offsets(tensors: &[TensorInfo]) -> Option<Vec<u64>> {
    let mut offsets = Vec::with_capacity(tensors.len().saturating_add(1));
    let mut offset = 0_u64;
    for tensor in tensors {
        offsets.push(offset);
        offset = offset.checked_add(tensor.bytes.checked_next_multiple_of(ALIGNMENT)?)?;
    }
    offsets.push(offset);
    Some(offsets)
}

/// Size of one tensor's entry: name, number of dimensions, dimensions, type, offset.
fn entry_bytes(tensor: &TensorInfo) -> usize {
    let dimensions = tensor.shape.len().saturating_mul(8);
    tensor.name.len().saturating_add(dimensions).saturating_add(24)
}

/// Size of a header with room for the three split keys.
fn header_bytes(keys: &Metadata, tensors: &[TensorInfo]) -> u64 {
    let split_keys = 3 * 40;
    size(header(keys, tensors, &[]).len()).saturating_add(split_keys)
}

/// Everything before the data, padded with zeros to the alignment.
fn header(keys: &Metadata, tensors: &[TensorInfo], offsets: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend(size(tensors.len()).to_le_bytes());
    out.extend(size(keys.len()).to_le_bytes());
    for (key, value) in keys.iter() {
        write_string(key, &mut out);
        Value::write(value, &mut out);
    }
    for (tensor, offset) in tensors.iter().zip(offsets) {
        write_string(&tensor.name, &mut out);
        out.extend(u32::try_from(tensor.shape.len()).unwrap_or(u32::MAX).to_le_bytes());
        tensor.shape.iter().for_each(|size| out.extend(size.to_le_bytes()));
        out.extend(tensor.dtype.gguf_id().to_le_bytes());
        out.extend(offset.to_le_bytes());
    }
    let padded = size(out.len()).next_multiple_of(ALIGNMENT);
    out.resize(usize::try_from(padded).unwrap_or(out.len()), 0);
    out
}
