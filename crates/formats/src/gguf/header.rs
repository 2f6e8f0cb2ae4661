//! The header of one GGUF file, read once and validated: after this, every tensor's bytes are known to be in the file.

use super::value::{Value, read_string};
use super::{ALIGNMENT, KEY_ALIGNMENT, MAGIC, Metadata, VERSION};
use crate::checkpoint::TensorInfo;
use crate::error::{Error, Result, quote};
use crate::fault::{Fault, FaultKind, OnFault, refuse};
use crate::reader::Reader;
use crate::source_file::SourceFile;
use crate::stand_in::explained;
use crate::tensor_range::{DIMENSIONS_MAX, byte_range, check_disjoint, tensor_bytes, without_overlap};
use std::collections::HashSet;
use std::fmt::{self, Display};
use std::ops::Range;
use trueup_blocks::DType;

/// Bytes before the tensor data; the largest vocabularies known take a tenth of it.
const HEADER_BYTES_MAX: u64 = 128 << 20;

/// The longest key the format allows, in bytes.
pub(super) const KEY_BYTES_MAX: u64 = 65_535;

/// The longest tensor name that is read, in bytes; other programs stop at 63.
const NAME_BYTES_MAX: u64 = 1024;

/// Alignments that are believed; the format asks for a multiple of 8, other programs for a power of two.
const ALIGNMENTS: std::ops::RangeInclusive<u64> = 8..=1 << 20;

/// Smallest key with its value: a length, a letter, a type, a byte.
const KEY_VALUE_BYTES_MIN: u64 = 14;

/// Smallest tensor entry: a length, a letter, a count, one dimension, a type, an offset.
const TENSOR_BYTES_MIN: u64 = 33;

/// Types that once were in the format; their numbers are not used again.
const RETIRED_TYPES: [u32; 8] = [4, 5, 31, 32, 33, 36, 37, 38];

/// What stands before the data of one file.
pub(super) struct Header {
    pub version: u32,
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
    /// Where each tensor's bytes stand in the file.
    pub ranges: Vec<Range<u64>>,
    /// What tensors start at multiples of.
    pub alignment: u64,
}

impl Header {
    /// Reads and validates; nothing of the header is checked again later.
    pub fn read(source: &SourceFile) -> Result<Header> {
        Header::read_with(source, &mut refuse)
    }

    /// Reads what can be read: what has a fault that `on_fault` lets pass is left out.
    pub fn read_with(source: &SourceFile, on_fault: OnFault<'_>) -> Result<Header> {
        let mut reader = Reader::new(source, HEADER_BYTES_MAX);
        let version = read_version(&mut reader, source)?;
        let tensor_count = reader.u64(&"number of tensors")?;
        let key_count = reader.u64(&"number of keys")?;
        let mut metadata = Metadata::default();
        if let Err(error) = read_metadata(&mut reader, key_count, &mut metadata) {
            on_fault(Fault::new(FaultKind::HeaderBroken, error))?;
            let (tensors, ranges) = (Vec::new(), Vec::new());
            return Ok(Header { version, metadata, tensors, ranges, alignment: ALIGNMENT });
        }
        let alignment = match alignment(&metadata, source) {
            Ok(alignment) => alignment,
            Err(error) => {
                on_fault(Fault::new(FaultKind::AlignmentInvalid, error))?;
                ALIGNMENT
            }
        };
        let entries = match read_entries(&mut reader, tensor_count, on_fault) {
            Ok(entries) => entries,
            Err(error) => {
                on_fault(Fault::new(FaultKind::HeaderBroken, error))?;
                Vec::new()
            }
        };
        let data_start = reader.position().checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        let (tensors, ranges) = place(source, entries, data_start, alignment, on_fault)?;
        Ok(Header { version, metadata, tensors, ranges, alignment })
    }
}

fn read_version(reader: &mut Reader<'_>, source: &SourceFile) -> Result<u32> {
    let magic: [u8; 4] = reader.array(&"magic")?;
    if magic != MAGIC {
        let problem = format!("expected a file that starts with GGUF, found bytes {magic:02x?}");
        return Err(explained(Error::new(source.path(), problem).at("magic at byte 0")));
    }
    let version = reader.u32(&"version")?;
    let problem = match version {
        2 | VERSION => return Ok(version),
        1 => "version 1 of GGUF is not read".to_owned(),
        other if other & 0xffff == 0 => "the file is big-endian, which is not read".to_owned(),
        other => format!("expected version 2 or {VERSION} of GGUF, found {other}"),
    };
    Err(Error::new(source.path(), problem)
        .at("version at byte 4")
        .help("convert the model again with a current program"))
}

/// Adds all keys that can be read.
fn read_metadata(reader: &mut Reader<'_>, count: u64, metadata: &mut Metadata) -> Result<()> {
    for index in 0..reader.count(count, KEY_VALUE_BYTES_MIN, &"number of keys")? {
        let key = read_name(reader, KEY_BYTES_MAX, &format_args!("key number {index}"))?;
        let value = Value::read(reader, &Named("key", &key))?;
        if metadata.contains(&key) {
            return Err(reader
                .error(&Named("key", &key), "the key is there twice")
                .help("the file is damaged; convert the model again"));
        }
        metadata.insert(key, value);
    }
    Ok(())
}

/// What a message says of a key or a tensor; nothing is made of it while all is well.
struct Named<'a>(&'static str, &'a str);

impl Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, quote(self.1))
    }
}

/// A text that must be there and short.
fn read_name(reader: &mut Reader<'_>, bytes_max: u64, what: &dyn Display) -> Result<String> {
    let name = read_string(reader, what)?;
    match u64::try_from(name.len()) {
        Ok(1..) if name.len() <= usize::try_from(bytes_max).unwrap_or(usize::MAX) => Ok(name),
        _ => Err(reader.error(what, format!("expected a name of 1 to {bytes_max} bytes, found {}", name.len()))),
    }
}

fn alignment(metadata: &Metadata, source: &SourceFile) -> Result<u64> {
    if !metadata.contains(KEY_ALIGNMENT) {
        return Ok(ALIGNMENT);
    }
    let alignment = metadata.u64(KEY_ALIGNMENT).map_err(|error| error.in_file(source.path()))?;
    if ALIGNMENTS.contains(&alignment) && alignment.is_power_of_two() {
        return Ok(alignment);
    }
    let (start, end) = (ALIGNMENTS.start(), ALIGNMENTS.end());
    Err(Error::new(source.path(), format!("expected a power of two from {start} to {end}, found {alignment}"))
        .at(format!("key {KEY_ALIGNMENT}")))
}

/// A tensor as the header tells it, with the offset from the start of the data.
struct Entry {
    info: TensorInfo,
    offset: u64,
}

fn read_entries(reader: &mut Reader<'_>, count: u64, on_fault: OnFault<'_>) -> Result<Vec<Entry>> {
    let count = reader.count(count, TENSOR_BYTES_MIN, &"number of tensors")?;
    let mut entries = Vec::with_capacity(count);
    for index in 0..count {
        match read_entry(reader, index)? {
            Ok(entry) => entries.push(entry),
            Err(fault) => on_fault(fault)?,
        }
    }
    let mut names = HashSet::with_capacity(entries.len());
    let is_new: Vec<bool> = entries.iter().map(|entry| names.insert(entry.info.name.as_str())).collect();
    if is_new.iter().all(|is_new| *is_new) {
        return Ok(entries);
    }
    let mut kept = Vec::with_capacity(entries.len());
    for (entry, is_new) in entries.into_iter().zip(is_new) {
        if is_new {
            kept.push(entry);
            continue;
        }
        let error = reader.error(&Named("tensor", &entry.info.name), "the name is there twice");
        on_fault(Fault::new(FaultKind::NameTwice, error.help("the file is damaged; convert the model again")))?;
    }
    Ok(kept)
}

/// An entry, or the fault of one that is whole but describes no tensor. An error ends the list: where the next entry begins is not known.
fn read_entry(reader: &mut Reader<'_>, index: usize) -> Result<std::result::Result<Entry, Fault>> {
    let name = read_name(reader, NAME_BYTES_MAX, &format_args!("name of tensor number {index}"))?;
    let place = &Named("tensor", &name);
    let dimensions = reader.u32(place)?;
    let dimension_count = usize::try_from(dimensions).ok().filter(|count| (1..=DIMENSIONS_MAX).contains(count));
    let Some(dimension_count) = dimension_count else {
        return Err(reader.error(place, format!("expected 1 to {DIMENSIONS_MAX} dimensions, found {dimensions}")));
    };
    let mut shape = Vec::with_capacity(dimension_count);
    for _ in 0..dimension_count {
        shape.push(reader.u64(place)?);
    }
    let dtype = read_dtype(reader, place)?;
    let offset = reader.u64(place)?;
    let fault = |kind, error| Ok(Err(Fault::new(kind, error)));
    let dtype = match dtype {
        Ok(dtype) => dtype,
        Err(error) => return fault(FaultKind::TypeUnknown, error),
    };
    if shape.contains(&0) {
        let error = reader.error(place, format!("expected no dimension of 0, found shape {shape:?}"));
        return fault(FaultKind::ShapeInvalid, error);
    }
    match tensor_bytes(&shape, dtype) {
        Ok(bytes) => Ok(Ok(Entry { info: TensorInfo { name, shape, dtype, bytes }, offset })),
        Err(problem) => fault(kind_of_shape(&shape, dtype), reader.error(place, problem)),
    }
}

/// Why there is no tensor of this shape.
pub(crate) fn kind_of_shape(shape: &[u64], dtype: DType) -> FaultKind {
    let block_len = u64::try_from(dtype.block_len()).unwrap_or(u64::MAX);
    match shape.first() {
        Some(row) if !row.is_multiple_of(block_len) => FaultKind::RowsNotBlocks,
        Some(_) | None => FaultKind::ShapeInvalid,
    }
}

/// The type of a number; the inner error is about a number that stands for none.
fn read_dtype(reader: &mut Reader<'_>, place: &Named) -> Result<Result<DType>> {
    let id = reader.u32(place)?;
    Ok(DType::from_gguf_id(id).ok_or_else(|| {
        let (problem, help) = if RETIRED_TYPES.contains(&id) {
            (format!("tensor type {id} is retired from GGUF"), "convert the model again with a current program")
        } else {
            (format!("tensor type {id} is unknown"), "the file is damaged or newer than this program")
        };
        reader.error(place, problem).help(help)
    }))
}

/// The tensors with their places in the file; those that have none are left out.
fn place(
    source: &SourceFile,
    entries: Vec<Entry>,
    data_start: u64,
    alignment: u64,
    on_fault: OnFault<'_>,
) -> Result<(Vec<TensorInfo>, Vec<Range<u64>>)> {
    let range = |entry: &Entry| {
        let Some(offset) = data_start.checked_add(entry.offset) else {
            return Err(format!("expected an offset inside the file, found {}", entry.offset));
        };
        byte_range(entry.info.bytes, offset, alignment, source.bytes())
    };
    let mut tensors = Vec::with_capacity(entries.len());
    let mut ranges = Vec::with_capacity(entries.len());
    for entry in entries {
        match range(&entry) {
            Ok(range) => {
                ranges.push(range);
                tensors.push(entry.info);
            }
            Err(problem) => {
                let aligned = entry.offset.is_multiple_of(alignment);
                let kind = if aligned { FaultKind::OutsideFile } else { FaultKind::Misaligned };
                let place = Named("tensor", &entry.info.name).to_string();
                on_fault(Fault::new(kind, Error::new(source.path(), problem).at(place)))?;
            }
        }
    }
    let named = tensors.iter().map(|tensor| tensor.name.as_str());
    if check_disjoint(source.path(), named.zip(ranges.iter().cloned())).is_ok() {
        return Ok((tensors, ranges));
    }
    leave_out_overlaps(source, tensors, ranges, on_fault)
}

/// No byte is read for two tensors: a small file could make for ever of that. The first that has it keeps it.
fn leave_out_overlaps(
    source: &SourceFile,
    tensors: Vec<TensorInfo>,
    ranges: Vec<Range<u64>>,
    on_fault: OnFault<'_>,
) -> Result<(Vec<TensorInfo>, Vec<Range<u64>>)> {
    let named: Vec<_> = tensors.iter().map(|tensor| tensor.name.as_str()).zip(ranges.iter().cloned()).collect();
    let is_let_in = without_overlap(&named, &mut |name, problem| {
        let place = Named("tensor", name).to_string();
        on_fault(Fault::new(FaultKind::Overlap, Error::new(source.path(), problem).at(place)))
    })?;
    let pairs = tensors.into_iter().zip(ranges).zip(is_let_in);
    Ok(pairs.filter_map(|(pair, is_let_in)| is_let_in.then_some(pair)).unzip())
}
