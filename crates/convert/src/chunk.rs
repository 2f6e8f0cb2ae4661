//! The walk over tensors in pieces of bounded size.
//!
//! ```text
//! tensor | chunk 0 | chunk 1 | chunk 2 |    whole rows, or whole heads where rows are sorted; where one begins depends on the tensor alone
//! ```

use crate::mapping::{MappedTensor, Mapping};
use crate::permute::{restore_rope_rows, sort_rope_rows};
use trueup_blocks::{Codec, DType};
use trueup_formats::{Checkpoint, Result};

/// Elements of a chunk, about.
const CHUNK_ELEMENTS: u64 = 1 << 20;

/// Consecutive elements of one tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chunk {
    /// The tensor's number in the mapping.
    pub tensor: usize,
    /// Its first element.
    pub first: u64,
    /// How many.
    pub elements: u64,
}

/// All chunks of all tensors, in order.
pub(crate) fn chunks(mapping: &Mapping) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for (number, tensor) in mapping.tensors().iter().enumerate() {
        let total: u64 = tensor.expected.shape.iter().product();
        let row = row_elements(tensor);
        let unit = match mapping.head_rows(tensor) {
            Some(rows) => rows as u64 * row,
            // A multiple of every block length, for rows longer than a chunk.
            None if row > CHUNK_ELEMENTS => CHUNK_ELEMENTS,
            None => row,
        };
        let step = (CHUNK_ELEMENTS / unit).max(1) * unit;
        let starts = (0..total.div_ceil(step)).map(|chunk| chunk * step);
        chunks.extend(starts.map(|first| Chunk { tensor: number, first, elements: step.min(total - first) }));
    }
    chunks
}

/// Elements that move together when rows are sorted: a row of a matrix, one element of a bias.
fn row_elements(tensor: &MappedTensor) -> u64 {
    if tensor.expected.shape.len() == 1 { 1 } else { tensor.expected.shape[0] }
}

/// Bytes of `elements` elements; whole blocks, as mapping and recipe have made sure.
pub(crate) fn bytes_of(elements: u64, dtype: DType) -> u64 {
    dtype.row_bytes(elements).unwrap_or_else(|| unreachable!("{elements} elements are not whole blocks of {dtype}"))
}

/// The bytes of a chunk as the checkpoint holds them.
pub(crate) fn read_source(source: &dyn Checkpoint, mapping: &Mapping, chunk: &Chunk) -> Result<Vec<u8>> {
    let tensor = &mapping.tensors()[chunk.tensor];
    let Some(number) = tensor.source else {
        let values = mapping.computed(tensor);
        let range = chunk.first as usize..(chunk.first + chunk.elements) as usize;
        return Ok(values[range].iter().flat_map(|value| value.to_le_bytes()).collect());
    };
    let mut bytes = vec![0; bytes_of(chunk.elements, tensor.dtype) as usize];
    source.read(number, bytes_of(chunk.first, tensor.dtype), &mut bytes)?;
    Ok(bytes)
}

/// The same bytes, rows in the order of the file to be written.
pub(crate) fn sort_rows(mapping: &Mapping, chunk: &Chunk, bytes: Vec<u8>) -> Vec<u8> {
    let tensor = &mapping.tensors()[chunk.tensor];
    let Some(head_rows) = mapping.head_rows(tensor) else { return bytes };
    let mut sorted = vec![0; bytes.len()];
    sort_rope_rows(&bytes, &mut sorted, head_rows, bytes_of(row_elements(tensor), tensor.dtype) as usize);
    sorted
}

/// Values of a written chunk, rows back in the checkpoint's order.
pub(crate) fn restore_rows(mapping: &Mapping, chunk: &Chunk, values: Vec<f32>) -> Vec<f32> {
    let tensor = &mapping.tensors()[chunk.tensor];
    let Some(head_rows) = mapping.head_rows(tensor) else { return values };
    let mut restored = vec![0.0; values.len()];
    restore_rope_rows(&values, &mut restored, head_rows, row_elements(tensor) as usize);
    restored
}

/// Elements as f32.
pub(crate) fn decode(dtype: DType, bytes: &[u8], elements: u64) -> Vec<f32> {
    let mut values = vec![0.0; elements as usize];
    (codec_of(dtype).decode)(bytes, &mut values);
    values
}

/// The codec of a type that mapping or recipe made sure to have one.
pub(crate) fn codec_of(dtype: DType) -> &'static Codec {
    dtype.codec().unwrap_or_else(|| unreachable!("{dtype} was refused before"))
}
