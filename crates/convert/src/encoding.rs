//! How the tensors of a checkpoint are encoded: by the rule of their type, weighted by the importance of their columns,
//! or without loss if they are on the grid of their type. `convert` writes by it, and `--check` compares with it.

use crate::mapping::Mapping;
use crate::on_grid::look_for_grids;
use std::ops::Range;
use trueup_blocks::{DType, DeviationSums};
use trueup_formats::{Checkpoint, Result, TensorInfo};
use trueup_quantize::{Choice, ImportanceOptions, OnGrid, Scratch, TensorImportance};
use trueup_quantize::{Transcoder, Unfit, WeightedRows, stays_f32};

/// The encoding of each tensor of a mapping.
pub(crate) struct Encoding<'a> {
    pub importance: TensorImportance<'a>,
    pub on_grid: OnGrid,
}

impl<'a> Encoding<'a> {
    /// The encoding of tensors with the default types `plain` and the new types `choices`.
    ///
    /// # Errors
    /// An importance matrix that does not cover the tensors, and I/O.
    pub fn new(
        source: &dyn Checkpoint,
        mapping: &Mapping,
        (plain, choices): (&[TensorInfo], &[Choice]),
        options: Option<&'a ImportanceOptions>,
        threads: Option<usize>,
    ) -> Result<Encoding<'a>> {
        let importance =
            options.map_or_else(|| Ok(TensorImportance::default()), |file| file.prepare(plain, choices))?;
        let on_grid = match options.is_some_and(|importance| importance.exact) {
            true => OnGrid::default(),
            false => look_for_grids(source, mapping, choices, threads)?,
        };
        Ok(Encoding { importance, on_grid })
    }

    /// Whether a tensor is encoded by the rule of its type alone.
    pub fn is_plain(&self, tensor: usize) -> bool {
        !self.on_grid.is_exact(tensor) && self.importance.of(tensor).is_none()
    }

    /// Changes the type of some elements of a tensor. Rows are in the order of the checkpoint, in which no row leaves
    /// its matrix. `loss` gets what elements in blocks lose.
    ///
    /// # Errors
    /// An element that is not finite, or that the new type cannot hold; `target` then holds anything.
    pub fn transcode(
        &self,
        (tensor, elements): (usize, &Range<u64>),
        (from, to): (DType, &TensorInfo),
        (source, target): (&[u8], &mut [u8]),
        scratch: &mut Scratch,
        loss: &mut DeviationSums,
    ) -> std::result::Result<(), Unfit> {
        let transcoder = Transcoder::new(from, to.dtype);
        match self.importance.of(tensor) {
            _ if self.on_grid.is_exact(tensor) => transcoder.transcode_exact(source, target, scratch, loss),
            Some(importance) => {
                let rows = WeightedRows::new(to, elements, importance);
                transcoder.transcode_weighted(source, target, scratch, &rows, loss)
            }
            None => transcoder.transcode(source, target, scratch, to.dtype.is_quantized().then_some(loss)),
        }
    }
}

/// The tensors as a recipe sees them, with our names and the types that they have without it.
pub(crate) fn plain_tensors(mapping: &Mapping) -> Result<Vec<TensorInfo>> {
    let plain = |tensor: &crate::MappedTensor| {
        let is_matrix = tensor.expected.shape.len() > 1 && !stays_f32(&tensor.expected.name);
        let dtype = if is_matrix && tensor.dtype != DType::F64 { tensor.dtype } else { DType::F32 };
        TensorInfo::new(tensor.expected.name.as_str(), &tensor.expected.shape, dtype)
    };
    mapping.tensors().iter().map(plain).collect()
}
