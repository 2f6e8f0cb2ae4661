//! Where a tensor's bytes stand in a file: one function for every format, and the check that no byte belongs to two
//! tensors.

use crate::error::{Error, Result, quote};
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use trueup_blocks::DType;

/// Dimensions that a tensor can have.
pub const DIMENSIONS_MAX: usize = 4;

/// Bytes of a tensor; `shape` innermost first, a size may be 0. `Err` says why there is no such tensor, as the end of a
/// sentence about it.
///
/// `bytes = shape[0] / block length * block bytes * shape[1] * ...`
pub fn tensor_bytes(shape: &[u64], dtype: DType) -> std::result::Result<u64, String> {
    if shape.is_empty() || shape.len() > DIMENSIONS_MAX {
        return Err(format!("expected 1 to {DIMENSIONS_MAX} dimensions, found {}", shape.len()));
    }
    let (&row_len, outer) = shape.split_first().ok_or("expected a dimension, found none")?;
    let bytes =
        dtype.row_bytes(row_len).and_then(|row| outer.iter().try_fold(row, |bytes, size| bytes.checked_mul(*size)));
    bytes.filter(|bytes| *bytes < BYTES_END).map_or_else(|| unusual_bytes(shape, dtype), Ok)
}

/// Files end before 2^63: no system call takes a larger offset.
const BYTES_END: u64 = 1 << 63;

/// The same where rows are no whole blocks, or where a product passes 2^64 on its way: a size of 0 can stand behind it.
#[cold]
fn unusual_bytes(shape: &[u64], dtype: DType) -> std::result::Result<u64, String> {
    let (row_len, block_len) = (shape.first().copied().unwrap_or(0), dtype.block_len());
    if !row_len.is_multiple_of(u64::try_from(block_len).unwrap_or(u64::MAX)) {
        return Err(format!("expected rows in whole blocks of {block_len} for {dtype}, found rows of {row_len}"));
    }
    match shape.contains(&0) {
        true => Ok(0),
        false => Err(format!("expected a size below 2^63 bytes, found shape {shape:?} of {dtype}")),
    }
}

/// The bytes of a tensor in a file of `file_bytes` bytes; `align` is a power of two. `Err` says why it cannot stand there.
pub fn tensor_range(
    shape: &[u64],
    dtype: DType,
    offset: u64,
    align: u64,
    file_bytes: u64,
) -> std::result::Result<Range<u64>, String> {
    byte_range(tensor_bytes(shape, dtype)?, offset, align, file_bytes)
}

/// The same of a tensor whose size is known.
pub(crate) fn byte_range(
    bytes: u64,
    offset: u64,
    align: u64,
    file_bytes: u64,
) -> std::result::Result<Range<u64>, String> {
    if offset & align.saturating_sub(1) != 0 {
        return Err(format!("expected a start that is a multiple of {align}, found byte {offset}"));
    }
    match offset.checked_add(bytes) {
        Some(end) if end <= file_bytes => Ok(offset..end),
        _ => Err(format!(
            "expected its {bytes} bytes from byte {offset} on inside the file, found a file of {file_bytes} bytes; \
             it is damaged or cut short"
        )),
    }
}

/// Fails when two of the ranges share a byte.
pub fn check_disjoint<'a>(path: &Path, ranges: impl IntoIterator<Item = (&'a str, Range<u64>)>) -> Result<()> {
    let mut sorted: Vec<_> = ranges.into_iter().filter(|(_, range)| !range.is_empty()).collect();
    sorted.sort_by_key(|(_, range)| range.start);
    for (before, after) in sorted.iter().zip(sorted.iter().skip(1)) {
        if before.1.end > after.1.start {
            let problem = format!("its bytes {:?} overlap {:?} of tensor {}", after.1, before.1, quote(before.0));
            return Err(Error::new(path, problem).at(format!("tensor {}", quote(after.0))));
        }
    }
    Ok(())
}

/// Whether each of the ranges shares no byte with those that stand before it in the file and were let in. `refuse` is given the name and the
/// problem of each that does, and ends the walk where it fails.
pub(crate) fn without_overlap(
    ranges: &[(&str, Range<u64>)],
    refuse: &mut dyn FnMut(&str, String) -> Result<()>,
) -> Result<Vec<bool>> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|place| ranges.get(*place).map(|(_, range)| range.start));
    let mut is_let_in = vec![true; ranges.len()];
    let mut last: Option<&(&str, Range<u64>)> = None;
    for place in order {
        let Some(next) = ranges.get(place).filter(|(_, range)| !range.is_empty()) else { continue };
        match last.filter(|before| before.1.end > next.1.start) {
            None => last = Some(next),
            Some(before) => {
                refuse(next.0, format!("its bytes {:?} overlap {:?} of tensor {}", next.1, before.1, quote(before.0)))?;
                is_let_in.get_mut(place).into_iter().for_each(|is_let_in| *is_let_in = false);
            }
        }
    }
    Ok(is_let_in)
}

/// Fails when a name is there twice.
pub fn check_unique<'a>(path: &Path, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(Error::new(path, "the name is there twice").at(format!("tensor {}", quote(name)))),
        None => Ok(()),
    }
}
