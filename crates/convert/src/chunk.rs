//! Iterates over tensors in chunks of bounded size, and computes the source of reordered rows.
//!
//! ```text
//! tensor | chunk 0 | chunk 1 | chunk 2 |      whole rows; whole heads if rows are reordered
//!
//! a head larger than a chunk: rows 2 i .. 2 j of the file are the checkpoint's rows i .. j of both halves,
//!   first half |  i..j  | second half |  i..j  |       reordered as a head of 2 (j - i) rows
//! ```
//!
//! A chunk knows its source ranges. So gathered rows and the rows of kept tokens (`slim.rs`) need no second pass, and
//! `--check` and `diff` use the same order.

use crate::mapping::{MappedTensor, Mapping};
use crate::permute::{restore_rope_rows, sort_rope_rows};
use crate::ternary;
use crate::unit_rows::Length;
use std::ops::Range;
use std::sync::Arc;
use trueup_blocks::{DType, first_not_finite};
use trueup_formats::{Checkpoint, Error, Result, element_indices, quote, significant};
use trueup_models::{Transform, Transposed, ValueChange};
use trueup_quantize::{CHUNK_ELEMENTS, bytes_of, chunk_ranges, decode_exact, first_bytes};

/// Consecutive elements of one tensor of the file to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chunk {
    /// The tensor's number in the mapping.
    pub tensor: usize,
    /// Its elements, in the order of the file.
    pub elements: Range<u64>,
    /// Where they come from: the number of a source of the tensor and its elements, read one after the other.
    pub sources: Vec<(usize, Range<u64>)>,
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

/// The order of rows in the checkpoint, if it is not that of the file.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Order {
    /// Rows are gathered and interleaved by this transform.
    Rows(Arc<Transform>),
    /// Rows of tokens, of which these are kept.
    Kept(Arc<[u32]>),
}

impl Order {
    /// The order of the rows that a transform reads; `None` if it is that of the file.
    pub fn of(transform: &Transform) -> Option<Order> {
        let has_rows = !transform.gathers() && transform.interleaved_heads.is_none();
        let is_same = has_rows && transform.transposed.is_none() && transform.columns.is_empty();
        (!is_same).then(|| Order::Rows(Arc::new(transform.clone())))
    }
}

/// All chunks of all tensors, in order. Tensors with `has_whole_rows` are not cut within a row: an encoding by
/// importance depends on all of it.
pub(crate) fn chunks(mapping: &Mapping, has_whole_rows: impl Fn(usize) -> bool) -> impl Iterator<Item = Chunk> {
    let of_tensor = move |(number, tensor): (usize, &MappedTensor)| {
        let total = tensor.expected.shape.iter().product();
        let row = row_elements(&tensor.expected.shape);
        match mapping.order(tensor) {
            None if has_whole_rows(number) => whole_rows(number, total, row),
            order => ordered_chunks(number, total, row, order),
        }
    };
    mapping.tensors().iter().enumerate().flat_map(of_tensor)
}

/// Chunks of a tensor of `total` elements, `row` of them a row.
pub(crate) fn ordered_chunks(tensor: usize, total: u64, row: u64, order: Option<Order>) -> Vec<Chunk> {
    match order {
        None => chunk_ranges(total, row).map(|elements| Chunk::unsorted(tensor, elements)).collect(),
        Some(Order::Rows(transform)) => {
            let chunks = match transform.interleaved_heads {
                Some(head_rows) => sorted_chunks(tensor, total, head_rows, row),
                None => whole_rows(tensor, total, row),
            };
            if !transform.gathers() {
                return chunks;
            }
            chunks.into_iter().map(|chunk| chunk.gathered(row, |rows| transform.source_rows(rows))).collect()
        }
        Some(Order::Kept(kept)) => {
            let runs = |rows| runs_of_kept(&kept, rows).into_iter().map(|run| (0, run)).collect();
            whole_rows(tensor, total, row).into_iter().map(|chunk| chunk.gathered(row, runs)).collect()
        }
    }
}

/// Chunks of whole rows, however long a row is.
pub(crate) fn whole_rows(tensor: usize, total: u64, row: u64) -> Vec<Chunk> {
    let (step, rows) = ((CHUNK_ELEMENTS / row).max(1), total / row);
    let chunk = |piece: u64| Chunk::unsorted(tensor, piece * step * row..rows.min((piece + 1) * step) * row);
    (0..rows.div_ceil(step)).map(chunk).collect()
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
            sources: halves.map(|half| (0, half..half + count * row)).to_vec(),
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
        Chunk { tensor, sources: vec![(0, elements.clone())], elements, sorting: None }
    }

    /// The same chunk read from other rows: `runs` gives the rows of the sources that some of its rows are.
    fn gathered(mut self, row: u64, runs: impl Fn(Range<u64>) -> Vec<(usize, Range<u64>)>) -> Chunk {
        let rows = |elements: &Range<u64>| runs(elements.start / row..elements.end / row);
        let all = self.sources.iter().flat_map(|(_, elements)| rows(elements));
        self.sources = all.map(|(source, run)| (source, run.start * row..run.end * row)).collect();
        self
    }

    /// How many elements it has.
    pub fn len(&self) -> u64 {
        self.elements.end - self.elements.start
    }

    /// The number of the source, and its element, that [`Chunk::read_source`] returns at `place`.
    pub fn source_element(&self, place: u64) -> (usize, u64) {
        let mut left = place;
        for (source, elements) in &self.sources {
            let count = elements.end - elements.start;
            if left < count {
                return (*source, elements.start + left);
            }
            left -= count;
        }
        unreachable!("place {place} is past the end of a chunk of {} elements", self.len())
    }

    /// Fills `out` with the bytes in the checkpoint's order of rows; it has room for exactly them.
    pub fn read_source(&self, source: &dyn Checkpoint, mapping: &Mapping, out: &mut [u8]) -> Result<()> {
        let tensor = &mapping.tensors()[self.tensor];
        if tensor.sources.is_empty() {
            let range = self.elements.start as usize..self.elements.end as usize;
            let (values, (out, _)) = (mapping.computed(tensor), out.as_chunks_mut());
            values[range].iter().zip(out).for_each(|(value, out)| *out = value.to_le_bytes());
            return Ok(());
        }
        if tensor.expected.transform.values != ValueChange::None || !tensor.has_one_type(source) {
            return self.read_changed(source, tensor, out);
        }
        if let Some(transposed) = tensor.expected.transform.transposed {
            return self.read_transposed(source, tensor, transposed, out);
        }
        self.read_runs(source, &tensor.sources, out)?;
        let columns = tensor.expected.transform.source_columns();
        if !columns.is_empty() {
            let row = row_elements(&tensor.expected.shape);
            gather_columns(&columns, bytes_of(row, tensor.dtype) as usize, bytes_of(1, tensor.dtype) as usize, out);
        }
        Ok(())
    }

    /// Rows that are columns in the checkpoint: a part of each of its rows is read.
    fn read_transposed(
        &self,
        source: &dyn Checkpoint,
        tensor: &MappedTensor,
        transposed: Transposed,
        out: &mut [u8],
    ) -> Result<()> {
        let columns = row_elements(&tensor.expected.shape);
        let mut rest = out;
        for (number, range) in &self.sources {
            let number = tensor.sources[*number];
            let info = &source.tensors()[number];
            let (size, width) = (bytes_of(1, info.dtype) as usize, row_elements(&info.shape));
            let (mut first, end) = (range.start / columns, range.end / columns);
            while first < end {
                // Rows of one matrix.
                let count = (transposed.rows - first % transposed.rows).min(end - first);
                let (here, after) = rest.split_at_mut((count * columns) as usize * size);
                let mut line = vec![0; count as usize * size];
                for column in 0..columns {
                    let (row, place) = transposed.place(first, column);
                    source.read(number, (row * width + place) * size as u64, &mut line)?;
                    for (row, value) in line.chunks_exact(size).enumerate() {
                        let at = (row * columns as usize + column as usize) * size;
                        here[at..at + size].copy_from_slice(value);
                    }
                }
                (rest, first) = (after, first + count);
            }
        }
        Ok(())
    }

    /// Fills `out` with the bytes of the checkpoint's tensors of these numbers, which have one type, run by run.
    pub fn read_runs(&self, source: &dyn Checkpoint, numbers: &[usize], out: &mut [u8]) -> Result<()> {
        let mut rest = out;
        for (number, range) in &self.sources {
            let dtype = source.tensors()[numbers[*number]].dtype;
            let (target, after) = rest.split_at_mut(bytes_of(range.end - range.start, dtype) as usize);
            source.read(numbers[*number], bytes_of(range.start, dtype), target)?;
            rest = after;
        }
        Ok(())
    }

    /// Values that conversion computes from those of the checkpoint, as f32.
    fn read_changed(&self, source: &dyn Checkpoint, tensor: &MappedTensor, out: &mut [u8]) -> Result<()> {
        let mut rest = out;
        for (place, range) in &self.sources {
            let (here, after) = rest.split_at_mut(bytes_of(range.end - range.start, DType::F32) as usize);
            let number = tensor.sources[*place];
            match tensor.expected.transform.values {
                ValueChange::NormalizeRows => {
                    read_unit_range(source, number, row_elements(&tensor.expected.shape), range.clone(), here)?;
                }
                ValueChange::Ternary => ternary::read_ternary(source, tensor, *place, range.clone(), here)?,
                ValueChange::PackedTernary { is_divided } => {
                    ternary::read_packed(source, tensor, is_divided, range.clone(), here)?;
                }
                ValueChange::None => write_values(&read_values(source, number, range.clone())?, here),
                ValueChange::NegatedExponential => {
                    let mut values = read_values(source, number, range.clone())?;
                    values.iter_mut().for_each(|value| *value = -f64::from(*value).exp() as f32);
                    write_values(&values, here);
                }
                ValueChange::Affine { scale, offset } => {
                    let mut values = read_values(source, number, range.clone())?;
                    values.iter_mut().for_each(|value| *value = scale * *value + offset);
                    write_values(&values, here);
                }
            }
            rest = after;
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

/// Puts the columns of each row into the order of these runs; a row has `row_bytes` bytes, an element `size`.
fn gather_columns(runs: &[Range<u64>], row_bytes: usize, size: usize, rows: &mut [u8]) {
    let mut gathered = Vec::with_capacity(row_bytes);
    for row in rows.chunks_exact_mut(row_bytes) {
        gathered.clear();
        for run in runs {
            gathered.extend_from_slice(&row[run.start as usize * size..run.end as usize * size]);
        }
        row.copy_from_slice(&gathered);
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
    write_values(&values, out);
    Ok(())
}

pub(crate) fn write_values(values: &[f32], out: &mut [u8]) {
    values.iter().zip(out.as_chunks_mut().0).for_each(|(value, out)| *out = value.to_le_bytes());
}

/// Elements of a tensor as f32, which must be finite.
pub(crate) fn read_values(source: &dyn Checkpoint, number: usize, elements: Range<u64>) -> Result<Vec<f32>> {
    let info = &source.tensors()[number];
    let mut bytes = vec![0; bytes_of(elements.end - elements.start, info.dtype) as usize];
    source.read(number, bytes_of(elements.start, info.dtype), &mut bytes)?;
    let values: Vec<f32> = decode_exact(info.dtype, &bytes).iter().map(|value| *value as f32).collect();
    match first_not_finite(&values) {
        None => Ok(values),
        Some(place) => {
            let element = element_indices(elements.start + place as u64, &info.shape);
            let value = significant(f64::from(values[place]), 7);
            let problem = format!("element {element:?} is {value}, expected a finite number");
            Err(Error::new(source.path(), problem).at(format!("tensor {}", quote(&info.name))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_models::Piece;

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
                let read =
                    chunk.sources.iter().flat_map(|(_, range)| &source[range.start as usize..range.end as usize]);
                let bytes: Vec<u8> = read.flat_map(|value| value.to_le_bytes()).collect();
                let (mut room, mut back) = (Vec::new(), Vec::new());
                let sorted = chunk.sort_rows(DType::F32, &bytes, &mut room);
                let values: Vec<u32> = sorted.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
                assert!(values == expected[chunk.elements.start as usize..end as usize], "{heads} {head_rows} {row}");
                assert!(chunk.restore_rows(DType::F32, sorted, &mut back) == bytes);
                let first = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                let last = u32::from_le_bytes(bytes[bytes.len() - 4..].try_into().unwrap());
                assert_eq!(chunk.source_element(0), (0, u64::from(first)));
                assert_eq!(chunk.source_element(chunk.len() - 1), (0, u64::from(last)));
            }
            assert_eq!(end, total);
        }
    }

    fn by_head(heads: u64, head_rows: u64, interleaved_heads: Option<usize>) -> Transform {
        let piece = |kind: u64| Piece {
            source: 0,
            groups: heads,
            stride: 3 * head_rows,
            offset: kind * head_rows,
            rows: head_rows,
        };
        Transform { pieces: (0..3).map(piece).collect(), interleaved_heads, ..Transform::same(0, 0) }
    }

    #[test]
    fn gathered_rows_are_read_run_by_run() {
        let transform = Arc::new(by_head(3, 4, None));
        for row in [1, 96, CHUNK_ELEMENTS / 5, 2 * CHUNK_ELEMENTS] {
            let chunks = ordered_chunks(7, 36 * row, row, Some(Order::Rows(Arc::clone(&transform))));
            let mut rows = Vec::new();
            for chunk in &chunks {
                assert_eq!(chunk.elements.start, rows.len() as u64 * row);
                assert!(chunk.len() <= CHUNK_ELEMENTS.max(row) && chunk.sorting.is_none());
                let read: Vec<u64> = chunk.sources.iter().flat_map(|(_, run)| run.start / row..run.end / row).collect();
                assert_eq!(read.len() as u64 * row, chunk.len());
                rows.extend(read);
            }
            let expected: Vec<u64> = transform.source_rows(0..36).into_iter().flat_map(|(_, run)| run).collect();
            assert_eq!(rows, expected);
        }
    }

    /// First all rows are gathered, then those of each head are interleaved: in chunks as at once.
    #[test]
    fn gathered_rows_can_be_interleaved_too() {
        let transform = Arc::new(by_head(3, 4, Some(4)));
        for row in [1, 96, CHUNK_ELEMENTS / 2, 2 * CHUNK_ELEMENTS] {
            let chunks = ordered_chunks(0, 36 * row, row, Some(Order::Rows(Arc::clone(&transform))));
            let rows = |chunk: &Chunk| -> Vec<u64> {
                let read: Vec<u64> = chunk.sources.iter().flat_map(|(_, run)| run.start / row..run.end / row).collect();
                let mut sorted = read.clone();
                sort_rope_rows(&read, &mut sorted, chunk.sorting.unwrap().head_rows, 1);
                sorted
            };
            let found: Vec<u64> = chunks.iter().flat_map(rows).collect();
            let gathered: Vec<u64> = transform.source_rows(0..36).into_iter().flat_map(|(_, run)| run).collect();
            let mut expected = gathered.clone();
            sort_rope_rows(&gathered, &mut expected, 4, 1);
            assert_eq!(found, expected, "rows of {row}");
        }
    }
}
