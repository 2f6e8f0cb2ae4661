//! One safetensors file.
//!
//! ```text
//! header size u64 | {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {..}} | data
//! ```
//!
//! Offsets count from the start of the data; the tensors fill it without gap or overlap.

use crate::checkpoint::{TensorInfo, range_to_read};
use crate::error::{CUT_SHORT, DAMAGED, Error, FAULTY, Result, listed, quote};
use crate::fault::{Fault, FaultKind, OnFault, refuse};
use crate::json::{self, UniqueEntries};
use crate::quantization::{QUANTIZED_HELP, quantization};
use crate::reader::Reader;
use crate::source_file::SourceFile;
use crate::tensor_range::{tensor_range, without_overlap};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use trueup_blocks::DType;

/// The largest header that is read, in bytes.
const HEADER_BYTES_MAX: u64 = 64 << 20;

/// Bytes of the header's size.
const SIZE_BYTES: u64 = 8;

/// The entry that is no tensor.
const KEY_METADATA: &str = "__metadata__";

/// Types that are read, by their name in the file. A truth value is a byte.
const DTYPES: [(&str, DType); 9] = [
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::Bf16),
    ("F64", DType::F64),
    ("I64", DType::I64),
    ("I32", DType::I32),
    ("I16", DType::I16),
    ("I8", DType::I8),
    ("BOOL", DType::I8),
];

/// What names of weights that are packed into bytes end with, what their scales add to it, and both.
const PACKED_WEIGHT: &str = ".weight";
const SCALE_SUFFIX: &str = "_scale";
const PACKED_SCALE: &str = ".weight_scale";

/// A single file of named arrays, in the order of their bytes.
#[derive(Debug)]
pub struct SafetensorsFile {
    source: SourceFile,
    metadata: Vec<(String, String)>,
    tensors: Vec<TensorInfo>,
    ranges: Vec<Range<u64>>,
}

/// What the header says of a tensor.
#[derive(serde::Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The header as it stands in the file.
#[derive(Default)]
struct RawHeader {
    metadata: Vec<(String, String)>,
    tensors: Vec<(String, RawTensor)>,
}

impl SafetensorsFile {
    /// Opens a file and validates its header: afterwards every tensor's bytes are known to be there.
    pub fn open(path: impl AsRef<Path>) -> Result<SafetensorsFile> {
        SafetensorsFile::open_part(path.as_ref(), &|_| false, &mut refuse)
    }

    /// Opens a file as far as it can be read: what has a fault that `on_fault` lets pass is left out. `is_listed` tells
    /// whether another file of the model has the tensor of a name.
    pub(super) fn open_part(
        path: &Path,
        is_listed: &dyn Fn(&str) -> bool,
        on_fault: OnFault<'_>,
    ) -> Result<SafetensorsFile> {
        let source = SourceFile::open(path)?;
        let (header, data_start) = read_header(&source)?;
        let all = header.tensors.len();
        let mut described = describe(&source, header.tensors, data_start, is_listed, on_fault)?;
        let named: Vec<_> = described.iter().map(|(info, range)| (info.name.as_str(), range.clone())).collect();
        let is_let_in = without_overlap(&named, &mut |name, problem| {
            let place = format!("tensor {}", quote(name));
            on_fault(Fault::new(FaultKind::Overlap, Error::new(source.path(), problem).at(place).help(FAULTY)))
        })?;
        let pairs = described.into_iter().zip(is_let_in);
        described = pairs.filter_map(|(pair, is_let_in)| is_let_in.then_some(pair)).collect();
        described.sort_by_key(|(_, range)| (range.start, range.end));
        // Bytes of tensors that were left out belong to nobody here.
        if described.len() == all
            && let Err(error) = check_no_gap(&source, &described, data_start)
        {
            on_fault(Fault::new(FaultKind::BytesUnowned, error))?;
        }
        let (tensors, ranges) = described.into_iter().unzip();
        Ok(SafetensorsFile { source, metadata: header.metadata, tensors, ranges })
    }

    /// The free texts of the header.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// All arrays, in the order of their bytes.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Number of the array of that name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.tensors.iter().position(|tensor| tensor.name == name)
    }

    /// Fills `out` from byte `offset` of an array on; a range that is not inside it panics.
    pub fn read(&self, tensor: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        let Some(range) = self.ranges.get(tensor) else {
            unreachable!("tensor number {tensor} of {}", self.ranges.len())
        };
        self.source.read_at(range_to_read(range, offset, out.len()), out)
    }

    /// The file itself.
    pub fn source(&self) -> &SourceFile {
        &self.source
    }
}

/// The header and where the data starts.
fn read_header(source: &SourceFile) -> Result<(RawHeader, u64)> {
    let mut reader = Reader::new(source, SIZE_BYTES.saturating_add(HEADER_BYTES_MAX));
    let bytes = reader.u64(&"size of the header")?;
    if bytes > HEADER_BYTES_MAX {
        return Err(reader
            .error(&"size of the header", format!("expected at most {HEADER_BYTES_MAX} bytes, found {bytes}"))
            .help("the file is damaged or not safetensors"));
    }
    let json = reader.bytes(bytes, &"header")?;
    let header = json::parse(source.path(), &json).map_err(|error| {
        let place = format!("header, {}", error.place);
        error.at(place)
    })?;
    Ok((header, reader.position()))
}

/// Names, shapes and places; all tensors of types that are not read at once.
fn describe(
    source: &SourceFile,
    raw: Vec<(String, RawTensor)>,
    data_start: u64,
    is_listed: &dyn Fn(&str) -> bool,
    on_fault: OnFault<'_>,
) -> Result<Vec<(TensorInfo, Range<u64>)>> {
    let mut described = Vec::with_capacity(raw.len());
    let (mut unread, mut names) = (Vec::new(), Vec::new());
    let mut without_scale = 0;
    let scales: HashSet<String> =
        raw.iter().map(|(name, _)| name).filter(|name| name.ends_with(PACKED_SCALE)).cloned().collect();
    for (name, tensor) in raw {
        // Old programs store masks as bytes, under the name of a bias.
        let is_mask = tensor.dtype == "U8" && tensor.shape.len() > 1 && name.ends_with(".bias");
        let is_byte_weight = tensor.dtype == "U8" && name.ends_with(PACKED_WEIGHT);
        let scale = format!("{name}{SCALE_SUFFIX}");
        let is_packed = is_byte_weight && (scales.contains(&scale) || is_listed(&scale));
        let known = if is_mask || is_packed { "BOOL" } else { tensor.dtype.as_str() };
        let Some((_, dtype)) = DTYPES.iter().find(|(dtype, _)| *dtype == known) else {
            let has_no_scale = is_byte_weight && !scales.is_empty();
            without_scale = usize::saturating_add(without_scale, usize::from(has_no_scale));
            unread.push(match has_no_scale {
                true => format!("{} (U8 without {})", quote(&name), quote(&scale)),
                false => format!("{} ({})", quote(&name), quote(&tensor.dtype)),
            });
            names.push(name);
            continue;
        };
        let range = match range(&tensor, *dtype, data_start, source.bytes()) {
            Ok(range) => range,
            Err(problem) => {
                let error = Error::new(source.path(), problem).at(format!("tensor {}", quote(&name))).help(CUT_SHORT);
                on_fault(Fault::new(FaultKind::OutsideFile, error))?;
                continue;
            }
        };
        let bytes = range.end.saturating_sub(range.start);
        described.push((TensorInfo { name, shape: inner_first(&tensor.shape), dtype: *dtype, bytes }, range));
    }
    if !unread.is_empty() {
        let all = described.iter().map(|(info, _)| info.name.as_str()).chain(names.iter().map(String::as_str));
        let scheme = quantization(all).filter(|_| without_scale < unread.len());
        let help = match scheme {
            Some(_) => QUANTIZED_HELP,
            None if without_scale == unread.len() => "get the model again; if it has several files, get all of them",
            None => "convert the checkpoint to float32, float16 or bfloat16",
        };
        let types = listed(&unread, ", ");
        let problem = match scheme {
            None if without_scale == unread.len() => {
                format!("expected a scale for each packed weight, found {types}")
            }
            Some(scheme) => format!("expected unquantized weights, found weights {scheme}; unsupported types: {types}"),
            None => format!("expected tensor types that trueup can read, found {types}"),
        };
        let error = Error::new(source.path(), problem).help(help);
        on_fault(Fault::new(FaultKind::TypeUnknown, error).of_tensors(names))?;
    }
    Ok(described)
}

/// Innermost size first; a scalar is one element.
fn inner_first(shape: &[u64]) -> Vec<u64> {
    if shape.is_empty() { vec![1] } else { shape.iter().rev().copied().collect() }
}

fn range(
    tensor: &RawTensor,
    dtype: DType,
    data_start: u64,
    file_bytes: u64,
) -> std::result::Result<Range<u64>, String> {
    let (start, end) = tensor.data_offsets;
    let place =
        data_start.checked_add(start).ok_or_else(|| format!("expected a start inside the file, found byte {start}"))?;
    let range = tensor_range(&inner_first(&tensor.shape), dtype, place, 1, file_bytes)?;
    let bytes = range.end.saturating_sub(range.start);
    if end.checked_sub(start) != Some(bytes) {
        return Err(format!(
            "expected {bytes} bytes for shape {:?} of {dtype}, found bytes {start} to {end}",
            tensor.shape
        ));
    }
    Ok(range)
}

/// The sorted tensors must fill the data.
fn check_no_gap(source: &SourceFile, described: &[(TensorInfo, Range<u64>)], data_start: u64) -> Result<()> {
    let mut next = data_start;
    for (info, range) in described {
        if range.start != next {
            return Err(Error::new(source.path(), format!("bytes {next} to {} belong to no tensor", range.start))
                .at(format!("before tensor {}", quote(&info.name)))
                .help(FAULTY));
        }
        next = range.end;
    }
    if next != source.bytes() {
        return Err(Error::new(
            source.path(),
            format!("expected the file to end at byte {next}, found {} bytes", source.bytes()),
        )
        .at("after the last tensor")
        .help(DAMAGED));
    }
    Ok(())
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<RawHeader, A::Error> {
        let mut header = RawHeader::default();
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("the tensor \"{name}\" occurs twice")));
            }
            if name == KEY_METADATA {
                header.metadata = map.next_value::<UniqueEntries<String>>()?.0;
            } else {
                header.tensors.push((name, map.next_value()?));
            }
        }
        Ok(header)
    }
}
