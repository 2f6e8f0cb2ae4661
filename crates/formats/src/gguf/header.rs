//! The header of one GGUF file, read once and validated: after this, every tensor's bytes are known to be in the file.

use super::value::{Value, read_string};
use super::{ALIGNMENT, KEY_ALIGNMENT, MAGIC, Metadata, VERSION};
use crate::checkpoint::TensorInfo;
use crate::error::{Error, Result, quote};
use crate::reader::Reader;
use crate::source_file::SourceFile;
use crate::tensor_range::{DIMENSIONS_MAX, check_disjoint, tensor_bytes, tensor_range};
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
}

impl Header {
    /// Reads and validates; nothing of the header is checked again later.
    pub fn read(source: &SourceFile) -> Result<Header> {
        let mut reader = Reader::new(source, HEADER_BYTES_MAX);
        let version = read_version(&mut reader, source)?;
        let tensor_count = reader.u64(&"number of tensors")?;
        let key_count = reader.u64(&"number of keys")?;
        let metadata = read_metadata(&mut reader, key_count)?;
        let alignment = alignment(&metadata, source)?;
        let entries = read_entries(&mut reader, tensor_count)?;
        let data_start = reader.position().checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        let ranges = ranges(source, &entries, data_start, alignment)?;
        let tensors = entries.into_iter().map(|entry| entry.info).collect();
        Ok(Header { version, metadata, tensors, ranges })
    }
}

fn read_version(reader: &mut Reader<'_>, source: &SourceFile) -> Result<u32> {
    let magic: [u8; 4] = reader.array(&"magic")?;
    if magic != MAGIC {
        return Err(Error::new(
            source.path(),
            format!("expected a file that starts with GGUF, found bytes {magic:02x?}"),
        )
        .at("magic at byte 0"));
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

fn read_metadata(reader: &mut Reader<'_>, count: u64) -> Result<Metadata> {
    let mut metadata = Metadata::default();
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
    Ok(metadata)
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

fn read_entries(reader: &mut Reader<'_>, count: u64) -> Result<Vec<Entry>> {
    let count = reader.count(count, TENSOR_BYTES_MIN, &"number of tensors")?;
    let mut entries = Vec::with_capacity(count);
    for index in 0..count {
        entries.push(read_entry(reader, index)?);
    }
    let mut names = HashSet::with_capacity(count);
    match entries.iter().find(|entry| !names.insert(entry.info.name.as_str())) {
        Some(twice) => Err(reader
            .error(&Named("tensor", &twice.info.name), "the name is there twice")
            .help("the file is damaged; convert the model again")),
        None => Ok(entries),
    }
}

fn read_entry(reader: &mut Reader<'_>, index: usize) -> Result<Entry> {
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
    if shape.contains(&0) {
        return Err(reader.error(place, format!("expected no dimension of 0, found shape {shape:?}")));
    }
    let bytes = tensor_bytes(&shape, dtype).map_err(|problem| reader.error(place, problem))?;
    Ok(Entry { info: TensorInfo { name, shape, dtype, bytes }, offset })
}

fn read_dtype(reader: &mut Reader<'_>, place: &Named) -> Result<DType> {
    let id = reader.u32(place)?;
    DType::from_gguf_id(id).ok_or_else(|| {
        let (problem, help) = if RETIRED_TYPES.contains(&id) {
            (format!("tensor type {id} is retired from GGUF"), "convert the model again with a current program")
        } else {
            (format!("tensor type {id} is unknown"), "the file is damaged or newer than this program")
        };
        reader.error(place, problem).help(help)
    })
}

fn ranges(source: &SourceFile, entries: &[Entry], data_start: u64, alignment: u64) -> Result<Vec<Range<u64>>> {
    let range = |entry: &Entry| {
        let Some(offset) = data_start.checked_add(entry.offset) else {
            return Err(format!("expected an offset inside the file, found {}", entry.offset));
        };
        tensor_range(&entry.info.shape, entry.info.dtype, offset, alignment, source.bytes())
    };
    let mut ranges = Vec::with_capacity(entries.len());
    for entry in entries {
        let place = || Named("tensor", &entry.info.name).to_string();
        ranges.push(range(entry).map_err(|problem| Error::new(source.path(), problem).at(place()))?);
    }
    let named = entries.iter().map(|entry| entry.info.name.as_str());
    check_disjoint(source.path(), named.zip(ranges.iter().cloned()))?;
    Ok(ranges)
}
