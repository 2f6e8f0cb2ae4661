//! Writes named arrays as one safetensors file: logits and traces.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("logits.safetensors");
//! use trueup_formats::{SafetensorsArray, SafetensorsFile, write_safetensors};
//!
//! let logits = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
//! write_safetensors(&path, &[SafetensorsArray::f32("p0_logits", &[3, 2], &logits)], &[], &[])?;
//! assert_eq!(SafetensorsFile::open(&path)?.tensors()[0].shape, [3, 2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::atomic_file::AtomicFile;
use crate::error::{Error, Result, quote};
use crate::source_file::SourceFile;
use crate::tensor_range::{check_unique, tensor_bytes};
use safetensors::tensor::{Dtype, TensorInfo};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::path::Path;
use trueup_blocks::DType;

/// Headers are padded with spaces to a multiple of this.
const ALIGNMENT: usize = 8;

/// One array to write.
#[derive(Clone, Debug)]
pub struct SafetensorsArray<'a> {
    /// Its name in the file.
    pub name: String,
    /// Innermost size first, as everywhere in this program; the file has the outermost first.
    pub shape: Vec<u64>,
    /// A plain number type: f32, f16, bf16, f64, i8, i16, i32 or i64.
    pub dtype: DType,
    /// Little-endian elements.
    pub bytes: Cow<'a, [u8]>,
}

impl SafetensorsArray<'_> {
    /// An array of f32; `shape` innermost first.
    pub fn f32(name: impl Into<String>, shape: &[u64], elements: &[f32]) -> SafetensorsArray<'static> {
        let bytes = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        SafetensorsArray { name: name.into(), shape: shape.to_vec(), dtype: DType::F32, bytes: Cow::Owned(bytes) }
    }

    /// An array of i32; `shape` innermost first.
    pub fn i32(name: impl Into<String>, shape: &[u64], elements: &[i32]) -> SafetensorsArray<'static> {
        let bytes = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        SafetensorsArray { name: name.into(), shape: shape.to_vec(), dtype: DType::I32, bytes: Cow::Owned(bytes) }
    }
}

/// Writes arrays in the given order, with free texts in the header. `inputs` as in [`AtomicFile::create`].
pub fn write_safetensors(
    path: impl AsRef<Path>,
    arrays: &[SafetensorsArray<'_>],
    metadata: &[(String, String)],
    inputs: &[&SourceFile],
) -> Result<()> {
    let path = path.as_ref();
    check_unique(path, arrays.iter().map(|array| array.name.as_str()))?;
    let entries: Vec<Entry> = arrays.iter().map(Entry::of).collect();
    let header = header(path, &entries, metadata)?;
    let header_bytes = u64::try_from(header.len()).unwrap_or(u64::MAX);
    let bytes =
        arrays.iter().try_fold(header_bytes, |sum, array| sum.checked_add(u64::try_from(array.bytes.len()).ok()?));
    let bytes = bytes.ok_or_else(|| Error::new(path, "the file would exceed 2^64 bytes"))?;
    let mut file = AtomicFile::create(path, inputs)?;
    file.preallocate(bytes)?;
    file.write_all(&header)?;
    for array in arrays {
        file.write_all(&array.bytes)?;
    }
    file.commit()
}

/// What the header says of an array.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    /// Innermost size first.
    pub shape: Vec<u64>,
    pub dtype: DType,
    pub bytes: usize,
}

impl Entry {
    fn of(array: &SafetensorsArray<'_>) -> Entry {
        let SafetensorsArray { name, shape, dtype, bytes } = array;
        Entry { name: name.clone(), shape: shape.clone(), dtype: *dtype, bytes: bytes.len() }
    }
}

/// The size of the header and the header itself, of arrays that stand behind it in this order.
pub(crate) fn header(path: &Path, arrays: &[Entry], metadata: &[(String, String)]) -> Result<Vec<u8>> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        let texts: Map<String, Value> =
            metadata.iter().map(|(key, text)| (key.clone(), text.as_str().into())).collect();
        header.insert("__metadata__".to_owned(), texts.into());
    }
    let mut start = 0_usize;
    for array in arrays {
        let end = start.saturating_add(array.bytes);
        let entry =
            info(array, (start, end)).and_then(|info| serde_json::to_value(info).map_err(|error| error.to_string()));
        let entry = entry.map_err(|problem| Error::new(path, problem).at(format!("tensor {}", quote(&array.name))))?;
        header.insert(array.name.clone(), entry);
        start = end;
    }
    let mut json = Value::Object(header).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(ALIGNMENT), b' ');
    let size = u64::try_from(json.len()).unwrap_or(u64::MAX);
    Ok([&size.to_le_bytes(), json.as_slice()].concat())
}

fn info(array: &Entry, data_offsets: (usize, usize)) -> std::result::Result<TensorInfo, String> {
    let bytes = tensor_bytes(&array.shape, array.dtype)?;
    if u64::try_from(array.bytes) != Ok(bytes) {
        return Err(format!("expected {bytes} bytes for shape {:?}, found {}", array.shape, array.bytes));
    }
    let dtype = DTYPES.iter().find(|(dtype, _)| *dtype == array.dtype).map(|row| row.1);
    let dtype = dtype.ok_or_else(|| format!("{} is not a type of safetensors files", array.dtype))?;
    let shape = array.shape.iter().rev().map(|size| usize::try_from(*size)).collect::<std::result::Result<_, _>>();
    let shape = shape.map_err(|_| format!("shape {:?} exceeds the address space", array.shape))?;
    Ok(TensorInfo { dtype, shape, data_offsets })
}

/// Types that both have.
const DTYPES: [(DType, Dtype); 8] = [
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::Bf16, Dtype::BF16),
    (DType::F64, Dtype::F64),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
];
