//! Iterates over tensors in chunks of bounded size, and computes the source of reordered rows.
//!
//! ```text
//! tensor | chunk 0 | chunk 1 | chunk 2 |      whole rows; whole heads if rows are reordered
//!
//! a head larger than a chunk: rows 2 i .. 2 j of the file are the checkpoint's rows i .. j of both halves,
//!   first half |  i..j  | second half |  i..j  |       reordered as a head of 2 (j - i) rows
//! ```
//!
//! A chunk knows its source ranges. So grouped rows (`kinds_apart.rs`) and the rows of kept tokens (`slim.rs`) need no
//! second pass, and `--check` and `diff` use the same order.

use crate::kinds_apart::KindsApart;
use crate::mapping::{MappedTensor, Mapping};
use crate::permute::{restore_rope_rows, sort_rope_rows};
use crate::unit_rows::Length;
use std::ops::Range;
use std::sync::Arc;
use trueup_blocks::{DType, first_not_finite};
use trueup_formats::{Checkpoint, Error, Result, quote};
use trueup_models::{Heads, Hyper, Transform};
use trueup_quantize::{CHUNK_ELEMENTS, bytes_of, chunk_ranges, decode_exact, first_bytes};

/// Consecutive elements of one tensor of the file to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chunk {
    /// The tensor's number in the mapping.
    pub tensor: usize,
    /// Its elements, in the order of the file.
    pub elements: Range<u64>,
    /// Where they come from: elements in the order of the checkpoint, read one after the other.
    pub sources: Vec<Range<u64>>,
    /// How rows are sorted, where they are.
    pub sorting: Option<Sorting>,
}

/// How the rows of a chunk are sorted for the rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sorting {
    /// Rows of a head, or of the piece of one that the chunk is.
    pub head_rows: usize,
    /// Elements of a row.
    pub row: u64,
}

/// How rows stand in the checkpoint, where that is not how they stand in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// In heads of so many rows, the halves of rotated pairs one behind the other.
    Halves(usize),
    /// Queries, keys and values in groups.
    Grouped(KindsApart),
    /// Rows of tokens, of which these are kept.
    Kept(Arc<[u32]>),
}

impl Order {
    /// The order that a transform makes another.
    pub fn of(transform: Transform, hyper: &Hyper) -> Option<Order> {
        match transform {
            Transform::None | Transform::UnitRows => None,
            Transform::PermuteRope(Heads::Query | Heads::Key) => Some(Order::Halves(hyper.head_size())),
            Transform::KindsApart(grouped) => KindsApart::new(grouped, hyper).map(Order::Grouped),
        }
    }
}

/// All chunks of all tensors, in order.
pub(crate) fn chunks(mapping: &Mapping) -> impl Iterator<Item = Chunk> + '_ {
    let of_tensor = move |(number, tensor): (usize, &MappedTensor)| {
        let total = tensor.expected.shape.iter().product();
        let row = row_elements(&tensor.expected.shape);
        ordered_chunks(number, total, row, mapping.order(tensor))
    };
    mapping.tensors().iter().enumerate().flat_map(of_tensor)
}

/// Chunks of a tensor of `total` elements, `row` of them a row.
pub(crate) fn ordered_chunks(tensor: usize, total: u64, row: u64, order: Option<Order>) -> Vec<Chunk> {
    match order {
        None => chunk_ranges(total, row).map(|elements| Chunk::unsorted(tensor, elements)).collect(),
        Some(Order::Halves(head_rows)) => sorted_chunks(tensor, total, head_rows, row),
        Some(Order::Grouped(apart)) => gathered_chunks(tensor, total, row, |rows| apart.in_checkpoint(rows)),
        Some(Order::Kept(kept)) => gathered_chunks(tensor, total, row, |rows| runs_of_kept(&kept, rows)),
    }
}

/// Chunks whose rows are read where they stand in the checkpoint, run by run.
fn gathered_chunks(tensor: usize, total: u64, row: u64, runs: impl Fn(Range<u64>) -> Vec<Range<u64>>) -> Vec<Chunk> {
    // A row stays whole, however long it is.
    let (step, rows) = ((CHUNK_ELEMENTS / row).max(1), total / row);
    let gathered = |piece: u64| {
        let rows = piece * step..rows.min((piece + 1) * step);
        let sources = runs(rows.clone()).iter().map(|run| run.start * row..run.end * row).collect();
        Chunk { sources, ..Chunk::unsorted(tensor, rows.start * row..rows.end * row) }
    };
    (0..rows.div_ceil(step)).map(gathered).collect()
}

/// The rows of the checkpoint that stand in these rows of the file, neighbours together.
fn runs_of_kept(kept: &[u32], rows: Range<u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for id in &kept[rows.start as usize..rows.end as usize] {
        let id = u64::from(*id);
        match runs.last_mut() {
            Some(run) if run.end == id => run.end += 1,
            _ => runs.push(id..id + 1),
        }
    }
    runs
}

/// Chunks of a tensor of `total` elements whose rows are sorted: several heads, or several pairs of rows of one.
fn sorted_chunks(tensor: usize, total: u64, head_rows: usize, row: u64) -> Vec<Chunk> {
    let head = head_rows as u64 * row;
    if head <= CHUNK_ELEMENTS {
        let sorting = Some(Sorting { head_rows, row });
        return chunk_ranges(total, head)
            .map(|elements| Chunk { sorting, ..Chunk::unsorted(tensor, elements) })
            .collect();
    }
    // A pair of rows stays together, however long a row is.
    let pairs_step = (CHUNK_ELEMENTS / (2 * row)).max(1);
    let pairs = head_rows as u64 / 2;
    let piece = |start: u64, first: u64| {
        let count = pairs_step.min(pairs - first);
        let halves = [start + first * row, start + (pairs + first) * row];
        Chunk {
            tensor,
            elements: start + 2 * first * row..start + 2 * (first + count) * row,
            sources: halves.map(|half| half..half + count * row).to_vec(),
            sorting: Some(Sorting { head_rows: 2 * count as usize, row }),
        }
    };
    let pieces_of_head =
        |number: u64| (0..pairs.div_ceil(pairs_step)).map(move |step| piece(number * head, step * pairs_step));
    (0..total / head).flat_map(pieces_of_head).collect()
}

/// Elements that move together when rows are sorted: a row of a matrix, one element of a bias.
pub(crate) fn row_elements(shape: &[u64]) -> u64 {
    if shape.len() == 1 { 1 } else { shape[0] }
}

impl Chunk {
    /// Elements that stand in the same order on both sides.
    pub fn unsorted(tensor: usize, elements: Range<u64>) -> Chunk {
        Chunk { tensor, sources: vec![elements.clone()], elements, sorting: None }
    }

    /// How many elements it has.
    pub fn len(&self) -> u64 {
        self.elements.end - self.elements.start
    }

    /// The element of the checkpoint's tensor that stands at `place` of what [`Chunk::read_source`] returns.
    pub fn source_element(&self, place: u64) -> u64 {
        let mut left = place;
        for source in &self.sources {
            let count = source.end - source.start;
            if left < count {
                return source.start + left;
            }
            left -= count;
        }
        unreachable!("place {place} is past the end of a chunk of {} elements", self.len())
    }

    /// Fills `out` with the bytes in the checkpoint's order of rows; it has room for exactly them.
    pub fn read_source(&self, source: &dyn Checkpoint, mapping: &Mapping, out: &mut [u8]) -> Result<()> {
        let tensor = &mapping.tensors()[self.tensor];
        let Some(number) = tensor.source else {
            let range = self.elements.start as usize..self.elements.end as usize;
            let (values, (out, _)) = (mapping.computed(tensor), out.as_chunks_mut());
            values[range].iter().zip(out).for_each(|(value, out)| *out = value.to_le_bytes());
            return Ok(());
        };
        if tensor.expected.transform == Transform::UnitRows {
            return self.read_unit_rows(source, number, row_elements(&tensor.expected.shape), out);
        }
        self.read_runs(source, number, out)
    }

    /// Fills `out` with the bytes of the checkpoint's tensor of this number, run by run as they stand there.
    pub fn read_runs(&self, source: &dyn Checkpoint, number: usize, out: &mut [u8]) -> Result<()> {
        let dtype = source.tensors()[number].dtype;
        let mut rest = out;
        for range in &self.sources {
            let (target, after) = rest.split_at_mut(bytes_of(range.end - range.start, dtype) as usize);
            source.read(number, bytes_of(range.start, dtype), target)?;
            rest = after;
        }
        Ok(())
    }

    /// Rows of `row` elements divided by their lengths, as f32.
    fn read_unit_rows(&self, source: &dyn Checkpoint, number: usize, row: u64, out: &mut [u8]) -> Result<()> {
        let mut rest = out;
        for range in &self.sources {
            let (here, behind) = rest.split_at_mut(bytes_of(range.end - range.start, DType::F32) as usize);
            read_unit_range(source, number, row, range.clone(), here)?;
            rest = behind;
        }
        Ok(())
    }

    /// Rows of this type in the checkpoint's order, in the order of the file; where that is another, they are put into
    /// `room`.
    pub fn sort_rows<'a>(&self, dtype: DType, bytes: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
        self.moved(sort_rope_rows, dtype, bytes, room)
    }

    /// The inverse of [`Chunk::sort_rows`].
    pub fn restore_rows<'a>(&self, dtype: DType, bytes: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
        self.moved(restore_rope_rows, dtype, bytes, room)
    }

    fn moved<'a>(
        &self,
        rows: fn(&[u8], &mut [u8], usize, usize),
        dtype: DType,
        bytes: &'a [u8],
        room: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        let Some(Sorting { head_rows, row }) = self.sorting else { return bytes };
        let moved = first_bytes(room, bytes.len() as u64);
        rows(bytes, moved, head_rows, bytes_of(row, dtype) as usize);
        moved
    }
}

/// Elements of rows of `row` elements, divided by the rows' lengths, as f32.
fn read_unit_range(
    source: &dyn Checkpoint,
    number: usize,
    row: u64,
    elements: Range<u64>,
    out: &mut [u8],
) -> Result<()> {
    let Range { start, end } = elements;
    let mut values = read_values(source, number, start..end)?;
    let mut rest = values.as_mut_slice();
    let mut at = start;
    while at < end {
        let whole = at / row * row..(at / row + 1) * row;
        let (here, behind) = rest.split_at_mut((whole.end.min(end) - at) as usize);
        let mut length = Length::default();
        // Of a row that is longer than a chunk, all of it is read each time.
        match here.len() as u64 == row {
            true => length.add(here),
            false => chunk_ranges(row, 1).try_for_each(|piece| {
                let piece = whole.start + piece.start..whole.start + piece.end;
                read_values(source, number, piece).map(|values| length.add(&values))
            })?,
        }
        length.divide(here);
        (at, rest) = (whole.end, behind);
    }
    values.iter().zip(out.as_chunks_mut().0).for_each(|(value, out)| *out = value.to_le_bytes());
    Ok(())
}

/// Elements of a tensor as f32, which must be finite.
fn read_values(source: &dyn Checkpoint, number: usize, elements: Range<u64>) -> Result<Vec<f32>> {
    let info = &source.tensors()[number];
    let mut bytes = vec![0; bytes_of(elements.end - elements.start, info.dtype) as usize];
    source.read(number, bytes_of(elements.start, info.dtype), &mut bytes)?;
    let values: Vec<f32> = decode_exact(info.dtype, &bytes).iter().map(|value| *value as f32).collect();
    match first_not_finite(&values) {
        None => Ok(values),
        Some(place) => {
            let problem =
                format!("element {} is {}, expected a finite number", elements.start + place as u64, values[place]);
            Err(Error::new(source.path(), problem).at(format!("tensor {}", quote(&info.name))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunk by chunk as [`sort_rope_rows`] sorts the whole tensor, for heads below and above the size of a chunk.
    #[test]
    fn pieces_of_heads_are_sorted_as_whole_tensors_are() {
        for (heads, head_rows, row) in [(3, 8, 96), (2, 256, 2048), (2, 6, CHUNK_ELEMENTS / 4), (1, 4, CHUNK_ELEMENTS)]
        {
            let total = heads * head_rows * row;
            let source: Vec<u32> = (0..total as u32).collect();
            let mut expected = vec![0; source.len()];
            sort_rope_rows(&source, &mut expected, head_rows as usize, row as usize);
            let chunks = sorted_chunks(0, total, head_rows as usize, row);
            let mut end = 0;
            for chunk in &chunks {
                assert_eq!(chunk.elements.start, end);
                end = chunk.elements.end;
                assert!(chunk.len() <= CHUNK_ELEMENTS.max(2 * row), "{} elements at once", chunk.len());
                let read = chunk.sources.iter().flat_map(|range| &source[range.start as usize..range.end as usize]);
                let bytes: Vec<u8> = read.flat_map(|value| value.to_le_bytes()).collect();
                let (mut room, mut back) = (Vec::new(), Vec::new());
                let sorted = chunk.sort_rows(DType::F32, &bytes, &mut room);
                let values: Vec<u32> = sorted.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
                assert!(values == expected[chunk.elements.start as usize..end as usize], "{heads} {head_rows} {row}");
                assert!(chunk.restore_rows(DType::F32, sorted, &mut back) == bytes);
                let first = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                let last = u32::from_le_bytes(bytes[bytes.len() - 4..].try_into().unwrap());
                assert_eq!(chunk.source_element(0), u64::from(first));
                assert_eq!(chunk.source_element(chunk.len() - 1), u64::from(last));
            }
            assert_eq!(end, total);
        }
    }

    #[test]
    fn heads_are_read_where_they_stand() {
        let apart = KindsApart::plain(3, 4);
        for row in [1, 96, CHUNK_ELEMENTS / 5, 2 * CHUNK_ELEMENTS] {
            let chunks = ordered_chunks(7, 36 * row, row, Some(Order::Grouped(apart)));
            let mut rows = Vec::new();
            for chunk in &chunks {
                assert_eq!(chunk.elements.start, rows.len() as u64 * row);
                assert!(chunk.len() <= CHUNK_ELEMENTS.max(row) && chunk.sorting.is_none());
                let read: Vec<u64> = chunk.sources.iter().flat_map(|run| run.start / row..run.end / row).collect();
                assert_eq!(read.len() as u64 * row, chunk.len());
                rows.extend(read);
            }
            let expected: Vec<u64> = apart.in_checkpoint(0..36).into_iter().flatten().collect();
            assert_eq!(rows, expected);
        }
    }
}
