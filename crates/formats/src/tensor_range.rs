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

/// The bytes of a tensor in a file of `file_bytes` bytes; `align` is a power of two. `Err` says why it cannot stand
/// there.
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
        return Err(format!("expected data at a multiple of {align} bytes, found it at byte {offset}"));
    }
    match offset.checked_add(bytes) {
        Some(end) if end <= file_bytes => Ok(offset..end),
        _ => Err(format!(
            "expected {bytes} bytes of data at byte {offset} inside the file, found the end of the file at byte \
             {file_bytes}; the file is damaged or truncated"
        )),
    }
}

/// The index of an element along each dimension of its tensor, in the order of `shape`.
pub fn element_indices(element: u64, shape: &[u64]) -> Vec<u64> {
    let mut rest = element;
    let index = |size: &u64| {
        let size = size.max(&1);
        let index = rest.checked_rem(*size).unwrap_or_default();
        rest = rest.checked_div(*size).unwrap_or_default();
        index
    };
    shape.iter().map(index).collect()
}

/// Fails when two of the ranges share a byte.
pub fn check_disjoint<'a>(path: &Path, ranges: impl IntoIterator<Item = (&'a str, Range<u64>)>) -> Result<()> {
    let ranges: Vec<_> = ranges.into_iter().collect();
    let refuse = |name: &str, problem| Err(Error::new(path, problem).at(format!("tensor {}", quote(name))));
    without_overlap(&ranges, &mut { refuse }).map(drop)
}

/// Whether each of the ranges shares no byte with those that stand before it in the file and were let in. `refuse` is
/// given the name and the problem of each that does, and ends the walk where it fails.
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
                refuse(
                    next.0,
                    format!("bytes {:?} overlap bytes {:?} of tensor {}", next.1, before.1, quote(before.0)),
                )?;
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
        Some(name) => Err(Error::new(path, "the name occurs twice").at(format!("tensor {}", quote(name)))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{byte_range, check_disjoint, tensor_bytes, without_overlap};
    use std::path::Path;
    use trueup_blocks::DType;

    #[test]
    fn ranges_that_touch_share_nothing() {
        let disjoint = |ranges: &[(&'static str, std::ops::Range<u64>)]| {
            check_disjoint(Path::new("m"), ranges.iter().cloned()).map_err(|error| error.to_string())
        };
        assert_eq!(disjoint(&[("b", 8..16), ("a", 0..8), ("c", 16..17), ("empty", 3..3)]), Ok(()));
        let refused = disjoint(&[("b", 7..16), ("a", 0..8)]).unwrap_err();
        assert_eq!(refused, "m: tensor b: bytes 7..16 overlap bytes 0..8 of tensor a");
        assert!(disjoint(&[("a", 0..32), ("b", 8..9), ("c", 31..40)]).unwrap_err().contains("tensor b"));
    }

    #[test]
    fn what_was_left_out_hides_nothing() {
        let mut refused = Vec::new();
        let ranges = [("a", 0..8), ("b", 4..20), ("c", 8..12), ("d", 11..13), ("e", 12..14)];
        let is_let_in = without_overlap(&ranges, &mut |name, _| {
            refused.push(name.to_owned());
            Ok(())
        });
        assert_eq!(is_let_in.unwrap(), [true, false, true, false, true]);
        assert_eq!(refused, ["b", "d"]);
    }

    #[test]
    fn sizes_at_the_edge_of_64_bits() {
        let big = 1 << 62;
        assert_eq!(tensor_bytes(&[big - 1, 2], DType::I8), Ok((1 << 63) - 2));
        assert_eq!(tensor_bytes(&[big, 4, 1, 0], DType::F32), Ok(0));
        for shape in [&[big, 2][..], &[big, 4], &[u64::MAX, u64::MAX, u64::MAX, u64::MAX]] {
            let problem = tensor_bytes(shape, DType::I8).unwrap_err();
            assert_eq!(problem, format!("expected a size below 2^63 bytes, found shape {shape:?} of i8"));
        }
        let problem = tensor_bytes(&[48, 0], DType::Q4_0).unwrap_err();
        assert_eq!(problem, "expected rows in whole blocks of 32 for q4_0, found rows of 48");
    }

    #[test]
    fn a_range_is_aligned_and_inside() {
        assert_eq!(byte_range(32, 64, 32, 96), Ok(64..96));
        assert!(byte_range(33, 64, 32, 96).unwrap_err().contains("truncated"));
        assert!(byte_range(1, 68, 32, 96).unwrap_err().contains("multiple of 32"));
        assert!(byte_range(2, u64::MAX, 1, u64::MAX).unwrap_err().contains("inside the file"));
    }
}
