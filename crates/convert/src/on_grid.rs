//! Finds tensors of a checkpoint whose weights, in the order of the output file, are on the grid of a block type.

use crate::chunk::{ordered_chunks, row_elements};
use crate::mapping::Mapping;
use trueup_formats::{Checkpoint, Result, TensorInfo};
use trueup_quantize::{Choice, ExactTypes, OnGrid, bytes_of, exact_types_of};

/// The tensors on a grid, among those that change from floats to blocks.
pub(crate) fn look_for_grids(
    source: &dyn Checkpoint,
    mapping: &Mapping,
    choices: &[Choice],
    threads: Option<usize>,
) -> Result<OnGrid> {
    let mut on_grid = OnGrid::default();
    for (number, (tensor, choice)) in mapping.tensors().iter().zip(choices).enumerate() {
        let (name, shape) = (tensor.expected.name.as_str(), tensor.expected.shape.as_slice());
        if !choice.dtype.is_quantized() || !tensor.dtype.is_float() {
            on_grid.push(name, choice, None);
            continue;
        }
        let types = ExactTypes::new(&TensorInfo::new(name, shape, tensor.dtype)?, Some(choice.dtype));
        let chunks = ordered_chunks(number, shape.iter().product(), row_elements(shape), mapping.order(tensor));
        let first = chunks.first().cloned();
        let read = |chunk: &crate::chunk::Chunk| {
            let mut bytes = vec![0; bytes_of(chunk.len(), tensor.dtype) as usize];
            chunk.read_source(source, mapping, &mut bytes).map(|()| bytes)
        };
        let place = (threads, source.path());
        let types = exact_types_of(types, first.into_iter(), chunks.into_iter(), read, place)?;
        on_grid.push(name, choice, Some(&types));
    }
    Ok(on_grid)
}
