//! The header of one GGUF file, read once and validated: after this, every tensor's bytes are known to be in the file.

use super::value::{Value, read_string};
use super::{ALIGNMENT, KEY_ALIGNMENT, MAGIC, Metadata, VERSION};
use crate::checkpoint::TensorInfo;
use crate::error::{CUT_SHORT, DAMAGED, Error, FAULTY, Result, listed, quote};
use crate::fault::{Fault, FaultKind, OnFault, refuse};
use crate::foreign;
use crate::name_index::NameIndex;
use crate::reader::Reader;
use crate::source_file::SourceFile;
use crate::stand_in::explained;
use crate::tensor_range::{DIMENSIONS_MAX, byte_range, tensor_bytes, without_overlap};
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
#[derive(Default)]
pub(super) struct Header {
    pub version: u32,
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
    /// Where each of them stands in that list; to be made anew where a survey left tensors out.
    pub names: NameIndex,
    /// Where the data starts.
    pub data_start: u64,
    /// Where each tensor's bytes stand, from there on.
    pub ranges: Vec<Range<u64>>,
    /// What tensors start at multiples of.
    pub alignment: u64,
    /// What a person should know: one sentence each.
    pub notes: Vec<String>,
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
            return Ok(Header { version, metadata, alignment: ALIGNMENT, ..Header::default() });
        }
        let alignment = match alignment(&metadata, source) {
            Ok(alignment) => alignment,
            Err(error) => {
                on_fault(Fault::new(FaultKind::AlignmentInvalid, error))?;
                ALIGNMENT
            }
        };
        let mut entries = match read_entries(&mut reader, tensor_count, on_fault) {
            Ok(entries) => entries,
            Err(error) => {
                on_fault(Fault::new(FaultKind::HeaderBroken, error))?;
                Entries::default()
            }
        };
        let data_start = reader.position().checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        let names = std::mem::take(&mut entries.names);
        let (tensors, ranges) = place(source, entries, data_start, alignment, on_fault)?;
        let notes = note_of_escaped(&reader.escaped).into_iter().collect();
        Ok(Header { version, metadata, tensors, names, data_start, ranges, alignment, notes })
    }
}

fn read_version(reader: &mut Reader<'_>, source: &SourceFile) -> Result<u32> {
    let magic: [u8; 4] = reader.array(&"magic")?;
    if magic != MAGIC {
        if let Some(found) = foreign::of_source(source)? {
            return Err(found);
        }
        let problem = format!("expected a GGUF file, which starts with \"GGUF\", found \"{}\"", magic.escape_ascii());
        return Err(explained(Error::new(source.path(), problem).at("magic at byte 0")));
    }
    let version = reader.u32(&"version")?;
    let (problem, help) = match version {
        2 | VERSION => return Ok(version),
        other if other & 0xffff == 0 => (
            "expected a little-endian file, found a big-endian one".to_owned(),
            "convert the model again without --bigendian",
        ),
        other => (
            format!("expected version 2 or {VERSION} of GGUF, found {other}"),
            if other > VERSION {
                "use a newer version of trueup"
            } else {
                "convert the model again with a current program"
            },
        ),
    };
    Err(Error::new(source.path(), problem).at("version at byte 4").help(help))
}

/// How the keys of the tokenizer begin.
const TOKENIZER_KEYS: &str = "tokenizer.";

/// What is said when text is not UTF-8.
fn note_of_escaped(places: &[String]) -> Option<String> {
    let verb = if places.len() == 1 { "is" } else { "are" };
    let listed = listed(places, ", ");
    (!places.is_empty()).then(|| format!("text that is not UTF-8 {verb} read with those bytes escaped: {listed}"))
}

/// Adds all keys that can be read.
fn read_metadata(reader: &mut Reader<'_>, count: u64, metadata: &mut Metadata) -> Result<()> {
    for index in 0..reader.count(count, KEY_VALUE_BYTES_MIN, &"number of keys")? {
        reader.escapes_text = true;
        let key = read_name(reader, KEY_BYTES_MAX, &format_args!("key number {index}"))?;
        // Tokens and templates are used byte by byte; other text is shown to people.
        reader.escapes_text = !key.starts_with(TOKENIZER_KEYS);
        let value = Value::read(reader, &Named("key", &key))?;
        if metadata.contains(&key) {
            return Err(reader
                .error(&Named("key", &key), "the key occurs twice")
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
#[inline]
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

/// The tensors as the header tells them, not yet looked for in the file.
#[derive(Default)]
struct Entries {
    tensors: Vec<TensorInfo>,
    names: NameIndex,
    /// Their bytes, from the start of the data on.
    ranges: Vec<Range<u64>>,
}

fn read_entries(reader: &mut Reader<'_>, count: u64, on_fault: OnFault<'_>) -> Result<Entries> {
    let count = reader.count(count, TENSOR_BYTES_MIN, &"number of tensors")?;
    reader.escapes_text = true;
    let (tensors, ranges) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut entries = Entries { tensors, names: NameIndex::with_capacity(count), ranges };
    for index in 0..count {
        if let Err(fault) = read_entry(reader, index, &mut entries)? {
            on_fault(fault)?;
        }
    }
    Ok(entries)
}
/// Adds an entry, or gives the fault of one that is whole but describes no tensor. An error ends the list: where the
/// next entry begins is not known.
fn read_entry(reader: &mut Reader<'_>, index: usize, entries: &mut Entries) -> Result<std::result::Result<(), Fault>> {
    let name = read_name(reader, NAME_BYTES_MAX, &format_args!("name of tensor number {index}"))?;
    let place = &Named("tensor", &name);
    let dimensions = reader.u32(place)?;
    let dimension_count = usize::try_from(dimensions).ok().filter(|count| (1..=DIMENSIONS_MAX).contains(count));
    let Some(dimension_count) = dimension_count else {
        return Err(reader
            .error(place, format!("expected 1 to {DIMENSIONS_MAX} dimensions, found {dimensions}"))
            .help(DAMAGED));
    };
    let (shape, id, offset) = read_numbers(reader, dimension_count, place)?;
    let fault = |kind, error| Ok(Err(Fault::new(kind, error)));
    let Some(dtype) = DType::from_gguf_id(id) else {
        return fault(FaultKind::TypeUnknown, unknown_type(reader, id, place));
    };
    if shape.contains(&0) {
        let error = reader.error(place, format!("expected no dimension of 0, found shape {shape:?}")).help(FAULTY);
        return fault(FaultKind::ShapeInvalid, error);
    }
    let info = match tensor_bytes(&shape, dtype) {
        Ok(bytes) => TensorInfo { name, shape, dtype, bytes },
        Err(problem) => return fault(kind_of_shape(&shape, dtype), reader.error(place, problem).help(FAULTY)),
    };
    if !entries.names.add(&entries.tensors, &info.name) {
        let error = reader.error(&Named("tensor", &info.name), "the name occurs twice");
        return fault(FaultKind::NameTwice, error.help("the file is damaged; convert the model again"));
    }
    entries.ranges.push(offset..offset.saturating_add(info.bytes));
    entries.tensors.push(info);
    Ok(Ok(()))
}

/// Why there is no tensor of this shape.
pub(crate) fn kind_of_shape(shape: &[u64], dtype: DType) -> FaultKind {
    let block_len = u64::try_from(dtype.block_len()).unwrap_or(u64::MAX);
    match shape.first() {
        Some(row) if !row.is_multiple_of(block_len) => FaultKind::RowsNotBlocks,
        Some(_) | None => FaultKind::ShapeInvalid,
    }
}

/// Shape, number of the type, offset.
#[inline]
fn read_numbers(reader: &mut Reader<'_>, dimensions: usize, place: &Named) -> Result<(Vec<u64>, u32, u64)> {
    const SIZE: usize = size_of::<u64>();
    const BEHIND: usize = size_of::<u32>() + size_of::<u64>();
    let bytes = reader.take(dimensions.saturating_mul(SIZE).saturating_add(BEHIND), place)?;
    let behind = bytes.split_last_chunk();
    let Some((shape, id, offset)) = behind.and_then(|(before, offset)| {
        let (shape, id) = before.split_last_chunk()?;
        Some((shape, id, offset))
    }) else {
        unreachable!("{} bytes for {dimensions} dimensions", bytes.len())
    };
    let shape = shape.as_chunks().0.iter().map(|size| u64::from_le_bytes(*size)).collect();
    Ok((shape, u32::from_le_bytes(*id), u64::from_le_bytes(*offset)))
}

#[cold]
fn unknown_type(reader: &Reader<'_>, id: u32, place: &Named) -> Error {
    let (problem, help) = if RETIRED_TYPES.contains(&id) {
        (format!("type {id} was removed from the GGUF format"), "convert the model again with a current program")
    } else {
        (format!("type {id} is unknown"), "the file is damaged, or it needs a newer version of trueup")
    };
    reader.error(place, problem).help(help)
}

/// The tensors with their places from the start of the data on; those that have none in the file are left out.
fn place(
    source: &SourceFile,
    entries: Entries,
    data_start: u64,
    alignment: u64,
    on_fault: OnFault<'_>,
) -> Result<(Vec<TensorInfo>, Vec<Range<u64>>)> {
    let Entries { mut tensors, mut ranges, .. } = entries;
    if are_well(&ranges, alignment, source.bytes().saturating_sub(data_start)) {
        return Ok((tensors, ranges));
    }
    let mut offsets = std::mem::take(&mut ranges).into_iter().map(|range| range.start);
    let mut told = Ok(());
    tensors.retain(|tensor| {
        let offset = offsets.next().unwrap_or(u64::MAX);
        let start = data_start.checked_add(offset);
        let start = start.ok_or_else(|| format!("expected an offset inside the file, found {offset}"));
        match start.and_then(|start| byte_range(tensor.bytes, start, alignment, source.bytes())) {
            Ok(range) => {
                ranges.push(range);
                true
            }
            Err(problem) => {
                let aligned = offset.is_multiple_of(alignment);
                let kind = if aligned { FaultKind::OutsideFile } else { FaultKind::Misaligned };
                let place = Named("tensor", &tensor.name).to_string();
                let error = Error::new(source.path(), problem).at(place);
                let fault = Fault::new(kind, error.help(if aligned { CUT_SHORT } else { FAULTY }));
                told = std::mem::replace(&mut told, Ok(())).and_then(|()| on_fault(fault));
                false
            }
        }
    });
    told?;
    let (tensors, mut ranges) = leave_out_overlaps(source, tensors, ranges, on_fault)?;
    for range in &mut ranges {
        *range = range.start.saturating_sub(data_start)..range.end.saturating_sub(data_start);
    }
    Ok((tensors, ranges))
}

/// Whether all ranges are aligned, one behind the other and within `room` bytes, as nearly every file has them.
fn are_well(ranges: &[Range<u64>], alignment: u64, room: u64) -> bool {
    let mut end = 0;
    let is_well = |range: &Range<u64>| {
        let is_well = range.start & alignment.saturating_sub(1) == 0 && range.start >= end;
        end = range.end;
        is_well
    };
    ranges.iter().all(is_well) && end <= room
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
        on_fault(Fault::new(FaultKind::Overlap, Error::new(source.path(), problem).at(place).help(FAULTY)))
    })?;
    let pairs = tensors.into_iter().zip(ranges).zip(is_let_in);
    Ok(pairs.filter_map(|(pair, is_let_in)| is_let_in.then_some(pair)).unzip())
}
