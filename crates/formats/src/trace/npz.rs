//! NumPy's `.npz`: a ZIP archive of arrays, each a header in Python's notation and plain elements.
//!
//! ```text
//!   "\x93NUMPY" 1 0 | header length | {'descr': '<f4', 'fortran_order': False, 'shape': (4, 64), } | elements
//! ```
//!
//! After NumPy's NEP 1.

use super::zip::{self, ZipEntry};
use crate::error::{Error, Result, quote};
use crate::source_file::SourceFile;
use crate::tensor_range::tensor_bytes;
use trueup_blocks::DType;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The longest header that is read, with what stands before it.
const HEADER_BYTES_MAX: u64 = 64 << 10;

/// The largest array that is read: deflated ones are unpacked in memory.
const ARRAY_BYTES_MAX: u64 = 1 << 32;

/// Types that are read, by their name in the header: little-endian only.
const DTYPES: [(&str, DType); 5] =
    [("<f4", DType::F32), ("<f8", DType::F64), ("<f2", DType::F16), ("<i4", DType::I32), ("<i8", DType::I64)];

/// An open archive.
#[derive(Debug)]
pub(super) struct NpzFile {
    source: SourceFile,
    entries: Vec<ZipEntry>,
    /// Bytes before the elements of each array.
    heads: Vec<usize>,
    arrays: Vec<(String, Vec<u64>, DType)>,
}

impl NpzFile {
    pub fn open(source: SourceFile) -> Result<NpzFile> {
        let mut file = NpzFile { entries: zip::entries(&source)?, source, heads: Vec::new(), arrays: Vec::new() };
        for entry in &file.entries {
            let fault = |problem: String| Error::new(file.source.path(), problem).at(quote(&entry.name));
            let head = zip::contents(&file.source, entry, HEADER_BYTES_MAX)?;
            let (shape, dtype, bytes) = header(&head).map_err(fault)?;
            let elements = tensor_bytes(&shape, dtype).map_err(fault)?;
            let expected = u64::try_from(bytes).ok().and_then(|bytes| bytes.checked_add(elements));
            if expected != Some(entry.bytes) || entry.bytes > ARRAY_BYTES_MAX {
                return Err(fault(format!(
                    "expected {elements} bytes for shape {shape:?} of {dtype}, found another size"
                )));
            }
            let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name).to_owned();
            file.heads.push(bytes);
            file.arrays.push((name, shape, dtype));
        }
        Ok(file)
    }

    pub fn source(&self) -> &SourceFile {
        &self.source
    }

    /// Names, shapes innermost first, and types.
    pub fn arrays(&self) -> &[(String, Vec<u64>, DType)] {
        &self.arrays
    }

    /// The elements of an array.
    pub fn read(&self, place: usize) -> Result<Vec<u8>> {
        let Some((entry, head)) = self.entries.get(place).zip(self.heads.get(place)) else {
            unreachable!("array number {place} of {}", self.entries.len())
        };
        let mut data = zip::contents(&self.source, entry, entry.bytes)?;
        Ok(data.split_off((*head).min(data.len())))
    }
}

/// Shape innermost first, type, and how many bytes stand before the elements.
fn header(bytes: &[u8]) -> std::result::Result<(Vec<u64>, DType, usize), String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("expected a NumPy array, found other bytes")?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or("the header is cut short")?;
    let (length, start) = match version {
        [1, _] => (rest.first_chunk::<2>().map(|bytes| u32::from(u16::from_le_bytes(*bytes))), 10_usize),
        [2 | 3, _] => (rest.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes)), 12),
        [other, _] => return Err(format!("expected version 1, 2 or 3 of the NumPy format, found {other}")),
    };
    let length = length.and_then(|length| usize::try_from(length).ok()).ok_or("the header is cut short")?;
    let end = start.saturating_add(length);
    let text = bytes.get(start..end).ok_or("the header is cut short or too long")?;
    let text = std::str::from_utf8(text).map_err(|_| "the header is not text")?;
    let dtype = value(text, "descr").and_then(|rest| rest.strip_prefix('\'')).and_then(|rest| rest.split('\'').next());
    let dtype = dtype.ok_or("the header has no type")?;
    let known = DTYPES.iter().find(|(name, _)| *name == dtype).map(|row| row.1);
    let known = known
        .ok_or_else(|| format!("expected an array of numbers, found type {}; use float32 or float64", quote(dtype)))?;
    if !value(text, "fortran_order").is_some_and(|rest| rest.starts_with("False")) {
        return Err("expected an array in C order, found Fortran order; use numpy.ascontiguousarray".to_owned());
    }
    Ok((shape(text)?, known, end))
}

/// What stands behind a key.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("'{key}':"))?;
    Some(rest.trim_start())
}

/// The shape, innermost first; a scalar is one element.
fn shape(text: &str) -> std::result::Result<Vec<u64>, String> {
    let inside = value(text, "shape").and_then(|rest| rest.strip_prefix('(')).and_then(|rest| rest.split_once(')'));
    let (inside, _) = inside.ok_or("the header has no shape")?;
    let sizes = inside.split(',').map(str::trim).filter(|size| !size.is_empty());
    let sizes: std::result::Result<Vec<u64>, _> = sizes.rev().map(str::parse).collect();
    let sizes = sizes.map_err(|_| format!("expected a shape, found {}", quote(inside)))?;
    Ok(if sizes.is_empty() { vec![1] } else { sizes })
}

#[cfg(test)]
mod tests {
    use super::NpzFile;
    use crate::trace::zip::tests::archive;

    #[test]
    fn an_array_has_the_bytes_of_its_shape() {
        let array = |floats: usize| {
            let dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
            let length = (dictionary.len() as u16).to_le_bytes();
            [b"\x93NUMPY\x01\x00".as_slice(), &length, dictionary.as_bytes(), &vec![0; 4 * floats]].concat()
        };
        let open = |floats| NpzFile::open(archive(&array(floats), false, |_, _| ()));
        assert!(open(3).is_ok());
        for floats in [2, 4] {
            let error = open(floats).unwrap_err().to_string();
            assert!(error.contains("expected 12 bytes for shape [3] of f32, found another size"), "{error}");
        }
    }
}
