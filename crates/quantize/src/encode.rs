//! Single tensors in another type, in memory: the bytes that a quantized file would have, and their error.

use crate::exact::exact_types_of_change;
use crate::importance::{ImportanceOptions, WeightedRows};
use crate::stream::expect_gguf;
use crate::transcode::{Scratch, Transcoder};
use crate::walk::{CHUNK_ELEMENTS, bytes_of, chunk_ranges, walk_with};
use std::borrow::Cow;
use std::ops::Range;
use trueup_blocks::{DType, DeviationSums};
use trueup_formats::{Checkpoint, Error, Result, TensorInfo, quote};

/// Encodes single tensors of a GGUF file.
pub struct Encoder<'a> {
    source: &'a dyn Checkpoint,
    importance: Option<&'a ImportanceOptions>,
    threads: Option<usize>,
}

/// A tensor in another type.
pub struct Encoded {
    /// The bytes that [`quantize`](crate::quantize) writes.
    pub bytes: Vec<u8>,
    /// The sum of the squared errors of all weights, each times the importance of its column.
    pub error: f64,
}

/// The bytes and the error of a chunk.
type Part = (Vec<u8>, f64);

impl<'a> Encoder<'a> {
    /// For the tensors of `source`, on this number of threads; `None` is one per core.
    ///
    /// # Errors
    /// A source that is not a GGUF file.
    pub fn new(
        source: &'a dyn Checkpoint,
        importance: Option<&'a ImportanceOptions>,
        threads: Option<usize>,
    ) -> Result<Encoder<'a>> {
        expect_gguf(source)?;
        Ok(Encoder { source, importance, threads })
    }

    /// The file that is read.
    pub fn source(&self) -> &'a dyn Checkpoint {
        self.source
    }

    /// Tensor number `tensor` as `dtype`, whose blocks divide its rows.
    ///
    /// # Errors
    /// A tensor that cannot be decoded, a weight that is not finite or too large for the type, and I/O.
    pub fn encode(&self, tensor: usize, dtype: DType) -> Result<Encoded> {
        self.encoded(tensor, dtype, false)
    }

    /// The same, but `None` if a weight is too large for the type.
    ///
    /// # Errors
    /// As [`Encoder::encode`], except for a weight that is too large.
    pub fn encode_if_it_fits(&self, tensor: usize, dtype: DType) -> Result<Option<Encoded>> {
        let encoded = self.encoded(tensor, dtype, true)?;
        Ok(Some(encoded).filter(|encoded| encoded.error.is_finite()))
    }

    fn encoded(&self, tensor: usize, dtype: DType, may_not_fit: bool) -> Result<Encoded> {
        let path = self.source.path();
        let missing = || Error::new(path, format!("has no tensor number {tensor}"));
        let info = self.source.tensors().get(tensor).ok_or_else(missing)?;
        if info.dtype.codec().is_none() || dtype.codec().is_none() {
            let problem = format!("expected a type that trueup can convert to {dtype}, found {}", info.dtype);
            return Err(Error::new(path, problem).at(format!("tensor {}", quote(&info.name))));
        }
        let all = self.importance.and_then(|importance| importance.of(info));
        let used = all.as_ref().filter(|_| dtype.codec().is_some_and(|codec| codec.uses_importance));
        // Groups of zeros are filled for the encoder only.
        let used = used.and_then(|_| self.importance.and_then(|importance| importance.of_encoded(info, dtype)));
        let (total, row) = (info.elements(), info.shape.first().copied().unwrap_or(1).max(1));
        let chunks: Vec<Range<u64>> = match used.is_some() && row > CHUNK_ELEMENTS {
            true => (0..total / row).map(|number| number * row..(number + 1) * row).collect(),
            false => chunk_ranges(total, row).collect(),
        };
        let is_reference = self.importance.is_some_and(|importance| importance.exact);
        let exact_types = match is_reference {
            true => None,
            false => exact_types_of_change(self.source, tensor, dtype, self.threads)?,
        };
        let is_exact = exact_types.is_some_and(|types| types.is_other_exact());
        let (used, all) = (used.as_deref(), all.as_deref());
        let work = Work { encoder: self, info, tensor, dtype, used, all, is_exact, may_not_fit };
        let (mut bytes, mut error) = (Vec::with_capacity(bytes_of(total, dtype) as usize), 0.0);
        let done = |_: &Range<u64>, (part, part_error): Part| {
            bytes.extend_from_slice(&part);
            error += part_error;
        };
        walk_with(
            chunks.into_iter(),
            self.threads,
            path,
            |scratch: &mut Scratch, chunk| work.chunk(scratch, chunk),
            done,
        )?;
        Ok(Encoded { bytes, error })
    }
}

/// The work on one tensor.
struct Work<'w> {
    encoder: &'w Encoder<'w>,
    info: &'w TensorInfo,
    tensor: usize,
    dtype: DType,
    /// The importance that the encoder of the type takes.
    used: Option<&'w [f32]>,
    /// The importance that weighs errors.
    all: Option<&'w [f32]>,
    /// Whether the type stores all weights without loss.
    is_exact: bool,
    /// Whether a weight that is too large makes the error infinite instead of failing.
    may_not_fit: bool,
}

impl Work<'_> {
    fn chunk(&self, scratch: &mut Scratch, chunk: &Range<u64>) -> Result<Part> {
        let Work { info, dtype, .. } = self;
        let elements = chunk.end - chunk.start;
        let mut source = vec![0; bytes_of(elements, info.dtype) as usize];
        self.encoder.source.read(self.tensor, bytes_of(chunk.start, info.dtype), &mut source)?;
        let mut bytes = vec![0; bytes_of(elements, *dtype) as usize];
        let transcoder = Transcoder::new(info.dtype, *dtype);
        let done = match self.used {
            _ if self.is_exact => {
                transcoder.transcode_exact(&source, &mut bytes, scratch, &mut DeviationSums::default())
            }
            Some(importance) => {
                let rows = WeightedRows::new(info, chunk, importance);
                transcoder.transcode_weighted(&source, &mut bytes, scratch, &rows, &mut DeviationSums::default())
            }
            None => transcoder.transcode(&source, &mut bytes, scratch, None),
        };
        if let Err(unfit) = done {
            if self.may_not_fit && unfit.is_too_large() {
                return Ok((bytes, f64::INFINITY));
            }
            let element = chunk.start + unfit.place;
            return Err(unfit.in_tensor(self.encoder.source.path(), info, element));
        }
        // Weights on the grid equal those of the source after rounding to its type.
        let error = if transcoder.is_copy() || self.is_exact { 0.0 } else { self.error(chunk, &source, &bytes) };
        Ok((bytes, error))
    }

    /// The sum of the squared errors.
    fn error(&self, chunk: &Range<u64>, source: &[u8], bytes: &[u8]) -> f64 {
        let (before, after) = (decoded(self.info.dtype, source), decoded(self.dtype, bytes));
        let size = |axis: usize| self.info.shape.get(axis).map_or(1, |size| *size as usize);
        let (columns, rows) = (size(0), size(1));
        // A long row may be divided.
        let start = (chunk.start % columns as u64) as usize;
        let first_row = (chunk.start / columns as u64) as usize;
        let mut error = 0.0;
        for (place, (before, after)) in before.iter().zip(&after).enumerate() {
            let difference = f64::from(before - after);
            let (row, column) = (first_row + (start + place) / columns, (start + place) % columns);
            let weight = self.all.map_or(1.0, |all| f64::from(all[row / rows * columns + column]));
            error += weight * difference * difference;
        }
        error
    }
}

/// Elements as f32.
fn decoded(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut weights = vec![0.0; bytes.len() / dtype.block_bytes() * dtype.block_len()];
    if let Some(codec) = dtype.codec() {
        (codec.decode)(bytes, &mut weights);
    }
    weights
}

impl ImportanceOptions {
    /// The importance of the columns of a tensor; `None` without a usable entry.
    fn of(&self, tensor: &TensorInfo) -> Option<Cow<'_, [f32]>> {
        let matrices: u64 = tensor.shape.iter().skip(2).product();
        let columns = tensor.shape.first().copied().unwrap_or(1);
        let weights = self.file.entries().get(&tensor.name)?.weights();
        (columns.checked_mul(matrices) == Some(weights.len() as u64)).then(|| weights.into())
    }
}
