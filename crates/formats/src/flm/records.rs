//! The tensors of a file: where each one's numbers stand, and which tensors of the model they are.

use super::codes::{Codes, RANGE_BYTES, is_range};
use super::header::Texts;
use crate::checkpoint::TensorInfo;
use crate::error::{DAMAGED, Error, Result, quote};
use crate::reader::Reader;
use std::num::NonZeroU64;
use std::path::Path;
use trueup_blocks::DType;

/// Most tensors of a file.
const TENSORS_MAX: i32 = 1 << 20;
/// Most elements in one dimension.
const SIZE_MAX: i32 = i32::MAX;
/// [`RANGE_BYTES`] of one pair in memory.
const RANGE_LEN: usize = 8;
/// Dimensions that a tensor can have.
const DIMENSIONS_MAX: i32 = 4;

/// One tensor of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub name: String,
    /// Sizes, innermost first.
    pub shape: Vec<u64>,
    pub coding: Coding,
}

/// How its numbers are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Coding {
    /// As they are, from byte `at` on.
    Plain { dtype: DType, at: u64 },
    /// As codes.
    Codes(Codes),
}

/// Reads all records up to the end of the file.
pub(super) fn read(texts: &mut Texts<'_>) -> Result<Vec<Record>> {
    let count = texts.number(TENSORS_MAX, &"number of tensors")?;
    // A name's length, a number of sizes, one size, a type, one element.
    let count = texts.reader.count(count, 18, &"tensors")?;
    let mut records = Vec::with_capacity(count);
    for number in 0..count {
        records.push(read_one(texts, number)?);
    }
    match texts.reader.remaining() {
        0 => Ok(records),
        more => {
            let problem = format!("expected the end of the file, found {more} more bytes");
            Err(texts.reader.error(&"end of the tensors", problem).help("the file is damaged"))
        }
    }
}

fn read_one(texts: &mut Texts<'_>, number: usize) -> Result<Record> {
    let name = texts.text(&format_args!("name of tensor {number}"))?;
    let shown = quote(&name);
    let dimensions = texts.number(DIMENSIONS_MAX, &format_args!("number of dimensions of tensor {shown}"))?;
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(texts.number(SIZE_MAX, &format_args!("size of tensor {shown}"))?);
    }
    // Row-major, outermost first; a number alone has no dimensions.
    shape.reverse();
    if shape.is_empty() {
        shape.push(1);
    }
    let reader = &mut texts.reader;
    let elements = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size)).filter(|count| *count > 0);
    let elements = elements.and_then(NonZeroU64::new).ok_or_else(|| {
        reader.error(&format_args!("sizes of tensor {shown}"), format!("expected sizes of 1 or more, found {shape:?}"))
    })?;
    let place = format_args!("type of tensor {shown}");
    let code = reader.i32(&place)?;
    let coding = match code {
        0 => plain(reader, DType::F32, elements, &shown)?,
        1 => plain(reader, DType::Bf16, elements, &shown)?,
        7 => plain(reader, DType::F16, elements, &shown)?,
        3 | 4 | 8 | 9 => coded(texts, code, elements, &shape, &shown)?,
        other => {
            let problem = format!("expected type 0, 1, 3, 4, 7, 8 or 9, found {other}");
            return Err(reader.error(&place, problem).help(DAMAGED));
        }
    };
    Ok(Record { name, shape, coding })
}

fn plain(reader: &mut Reader<'_>, dtype: DType, elements: NonZeroU64, name: &str) -> Result<Coding> {
    let element = u64::try_from(dtype.block_bytes()).unwrap_or(u64::MAX);
    let at = skip(reader, elements.get(), element, name)?;
    Ok(Coding::Plain { dtype, at })
}

/// Goes past the numbers of a tensor; returns where they began.
fn skip(reader: &mut Reader<'_>, count: u64, bytes: u64, name: &str) -> Result<u64> {
    let what = format_args!("numbers of tensor {name}");
    reader.count(count, bytes, &what)?;
    let at = reader.position();
    reader.skip(count.saturating_mul(bytes), &what)?;
    Ok(at)
}

/// Goes past the minima and maxima of a tensor, which must be numbers; returns where they began.
fn check_ranges(reader: &mut Reader<'_>, count: u64, name: &str) -> Result<u64> {
    let what = format_args!("minima and maxima of tensor {name}");
    let (count, at) = (reader.count(count, RANGE_BYTES, &what)?, reader.position());
    let mut wrong = 0_usize;
    reader.pieces(count, RANGE_LEN, &what, &mut |piece| {
        wrong = wrong.saturating_add(piece.as_chunks().0.iter().filter(|range| !is_range(**range)).count());
    })?;
    match wrong {
        0 => Ok(at),
        _ => {
            let problem = format!(
                "expected finite minima and maxima with a finite difference, found others in {wrong} of \
                    {count} pairs"
            );
            Err(reader.error(&what, problem).help("the file is damaged"))
        }
    }
}

fn coded(texts: &mut Texts<'_>, code: i32, elements: NonZeroU64, shape: &[u64], name: &str) -> Result<Coding> {
    let what = format_args!("axis of tensor {name}");
    let axis = texts.reader.i32(&what)?;
    let rows = match axis {
        -1 => 1,
        0 => shape.last().copied().unwrap_or(1),
        other => {
            return Err(texts.reader.error(&what, format!("expected 0 or -1, found {other}")));
        }
    };
    let row = NonZeroU64::new(elements.get().checked_div(rows).unwrap_or(0)).unwrap_or(elements);
    let (mut group, mut row_ranges) = (row, 1);
    if code == 9 {
        let place = format_args!("groups of tensor {name}");
        row_ranges = texts.number(SIZE_MAX, &place)?;
        let size = texts.number(SIZE_MAX, &place)?;
        group = NonZeroU64::new(size).filter(|size| row.get().div_ceil(size.get()) == row_ranges).ok_or_else(|| {
            let problem = format!("expected groups that fill rows of {row}, found {row_ranges} of {size}");
            texts.reader.error(&place, problem)
        })?;
    }
    let ranges_at = check_ranges(&mut texts.reader, rows.saturating_mul(row_ranges), name)?;
    let are_halves = code != 3;
    let bytes = if are_halves { elements.get().div_ceil(2) } else { elements.get() };
    let at = skip(&mut texts.reader, bytes, 1, name)?;
    let from_minimum = matches!(code, 8 | 9);
    Ok(Coding::Codes(Codes { are_halves, from_minimum, ranges_at, row, group, row_ranges, at }))
}

impl Record {
    /// What reading delivers.
    fn dtype(&self) -> DType {
        match &self.coding {
            Coding::Plain { dtype, .. } => *dtype,
            Coding::Codes(_) => DType::F32,
        }
    }
}

/// The tensors of the model in the records of a file, and how they are written. Those of adapters are left out, with a
/// note.
pub(super) fn tensors(
    path: &Path,
    records: Vec<Record>,
    adapters: &[&str],
    notes: &mut Vec<String>,
) -> Result<(Vec<TensorInfo>, Vec<Coding>)> {
    let (mut tensors, mut codings, mut adapted) = (Vec::new(), Vec::new(), 0_usize);
    for record in records {
        if [".lora_A.", ".lora_B.", ".ia3_l"].iter().any(|kind| record.name.contains(kind)) {
            adapted = adapted.saturating_add(1);
            continue;
        }
        let dtype = record.dtype();
        let info = TensorInfo::new(record.name, &record.shape, dtype);
        tensors.push(info.map_err(|error| Error { path: path.into(), ..error })?);
        codings.push(record.coding);
    }
    if adapted > 0 || !adapters.is_empty() {
        let names: Vec<String> = adapters.iter().map(|name| quote(name)).collect();
        let named = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        notes.push(format!("adapters{named} and their {adapted} tensors are omitted; only the base model is read"));
    }
    Ok((tensors, codings))
}
