//! Writes `.flm` files of version 2 as FastLLM reads them.
//!
//! ```text
//! table, vocabulary, special tokens, names, sizes, types     written when the file is created
//! numbers; ranges and codes of rows                          written at their places, in any order, by several threads
//! ```
//!
//! Source: `WeightMap::SaveLowBitModel` of FastLLM.

use super::codes::{Codes, RANGE_BYTES};
use super::header::{FlmVocabulary, TEXT_BYTES_MAX};
use crate::atomic_file::AtomicFile;
use crate::error::{Error, Result, quote};
use crate::source_file::SourceFile;
use std::num::NonZeroU64;
use std::path::Path;

/// How a tensor's numbers are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlmType {
    /// As f32.
    F32,
    /// As f16.
    F16,
    /// As bf16, which FastLLM reads for embeddings.
    Bf16,
    /// Codes of 8 bits with a scale and a zero point for each row.
    Int8,
    /// Codes of 4 bits with a scale and a minimum for each row.
    Int4,
}

impl FlmType {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            FlmType::F32 => "f32",
            FlmType::F16 => "f16",
            FlmType::Bf16 => "bf16",
            FlmType::Int8 => "int8",
            FlmType::Int4 => "int4",
        }
    }

    fn number(self) -> i32 {
        match self {
            FlmType::F32 => 0,
            FlmType::Bf16 => 1,
            FlmType::Int8 => 3,
            FlmType::F16 => 7,
            FlmType::Int4 => 8,
        }
    }
}

/// One tensor to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlmTensor {
    /// Its name, as FastLLM knows it.
    pub name: String,
    /// Sizes, innermost first; codes need a matrix.
    pub shape: Vec<u64>,
    /// How its numbers are written.
    pub dtype: FlmType,
}

impl FlmTensor {
    /// Bytes of its numbers, or of its axis, ranges and codes; `None` beyond 2^64.
    pub fn bytes(&self) -> Option<u64> {
        let elements = self.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))?;
        let rows = self.shape.last().copied()?;
        match self.dtype {
            FlmType::F32 => elements.checked_mul(4),
            FlmType::F16 | FlmType::Bf16 => elements.checked_mul(2),
            FlmType::Int8 => elements.checked_add(rows.checked_mul(RANGE_BYTES)?)?.checked_add(AXIS_BYTES),
            FlmType::Int4 => elements.div_ceil(2).checked_add(rows.checked_mul(RANGE_BYTES)?)?.checked_add(AXIS_BYTES),
        }
    }
}

/// A file being written; it appears when it is complete.
#[derive(Debug)]
pub struct FlmWriter {
    file: AtomicFile,
    places: Vec<Place>,
}

/// Where a tensor's numbers go.
#[derive(Clone, Debug)]
struct Place {
    /// The first byte behind what describes it.
    at: u64,
    /// Where codes go, and how they are made.
    codes: Option<Codes>,
}

impl FlmWriter {
    /// Begins a file with everything but numbers; `inputs` are the files it is made from. Fails where a number or a
    /// text does not fit the format.
    pub fn create(
        path: &Path,
        vocabulary: &FlmVocabulary,
        tensors: &[FlmTensor],
        inputs: &[&SourceFile],
    ) -> Result<FlmWriter> {
        let mut head = Head { bytes: Vec::new(), path };
        head.start(vocabulary)?;
        head.count(tensors.len(), "tensors")?;
        let (mut pieces, mut places, mut at) = (Vec::new(), Vec::new(), 0_u64);
        for tensor in tensors {
            head.describe(tensor)?;
            let bytes = std::mem::take(&mut head.bytes);
            let start = at;
            at = at.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            pieces.push((start, bytes));
            let codes = codes(tensor, at);
            if codes.is_some() && tensor.shape.len() != 2 {
                return Err(
                    head.unfit(tensor, &format!("expected a matrix to quantize, found shape {:?}", tensor.shape))
                );
            }
            // Ranges are those of rows: of dimension 0.
            pieces.extend(codes.as_ref().map(|_| (at, 0_i32.to_le_bytes().to_vec())));
            places.push(Place { at, codes });
            let numbers = tensor.bytes().ok_or_else(|| head.unfit(tensor, "its numbers have more than 2^64 bytes"))?;
            at = at.saturating_add(numbers);
        }
        let mut file = AtomicFile::create(path, inputs)?;
        file.preallocate(at)?;
        for (start, bytes) in pieces {
            file.write_at(start, &bytes)?;
        }
        Ok(FlmWriter { file, places })
    }

    /// Writes numbers of a tensor that has no codes, from byte `offset` of them on.
    pub fn write(&self, tensor: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(self.place(tensor).at.saturating_add(offset), bytes)
    }

    /// Encodes and writes whole rows of a tensor that has codes, from row `first` on; an even number of elements stands
    /// before it. What FastLLM reads for them comes back in their place.
    pub fn write_rows(&self, tensor: usize, first: u64, values: &mut [f32]) -> Result<()> {
        let place = self.place(tensor);
        let Some(codes) = &place.codes else { unreachable!("tensor number {tensor} has no codes") };
        let (ranges, bytes) = codes.encode(values);
        self.file.write_at(codes.ranges_at.saturating_add(first.saturating_mul(RANGE_BYTES)), &ranges)?;
        let element = first.saturating_mul(codes.row.get());
        let offset = if codes.are_halves { element >> 1 } else { element };
        self.file.write_at(codes.at.saturating_add(offset), &bytes)
    }

    /// Makes the file appear under its name.
    pub fn finish(self) -> Result<()> {
        self.file.commit()
    }

    fn place(&self, tensor: usize) -> &Place {
        self.places.get(tensor).unwrap_or_else(|| unreachable!("tensor number {tensor} of {}", self.places.len()))
    }
}

/// Bytes of the number that says which dimension has ranges.
const AXIS_BYTES: u64 = 4;

/// Where codes go in a tensor whose numbers begin at `at`.
fn codes(tensor: &FlmTensor, at: u64) -> Option<Codes> {
    let are_halves = match tensor.dtype {
        FlmType::F32 | FlmType::F16 | FlmType::Bf16 => return None,
        FlmType::Int8 => false,
        FlmType::Int4 => true,
    };
    let row = NonZeroU64::new(tensor.shape.first().copied()?)?;
    let rows = tensor.shape.last().copied()?;
    let ranges_at = at.saturating_add(AXIS_BYTES);
    let at = ranges_at.saturating_add(rows.saturating_mul(RANGE_BYTES));
    Some(Codes { are_halves, from_minimum: are_halves, ranges_at, row, group: row, row_ranges: 1, at })
}

/// What stands before numbers.
struct Head<'p> {
    bytes: Vec<u8>,
    path: &'p Path,
}

impl Head<'_> {
    fn start(&mut self, vocabulary: &FlmVocabulary) -> Result<()> {
        self.number(2);
        self.count(vocabulary.table.len(), "keys")?;
        for (key, value) in &vocabulary.table {
            self.text(key)?;
            self.text(value)?;
        }
        let has_scores = vocabulary.value("tokenizer_use_score") == Some("1");
        self.count(vocabulary.tokens.len(), "tokens")?;
        for token in &vocabulary.tokens {
            self.count(token.bytes.len(), "bytes of a token")?;
            token.bytes.iter().for_each(|byte| self.number(i32::from(*byte)));
            self.number(i32::try_from(token.id).map_err(|_| self.too_many("ids"))?);
            if has_scores {
                self.bytes.extend(token.score.unwrap_or_default().to_le_bytes());
            }
        }
        if vocabulary.value("tokenizer_has_special_tokens") == Some("1") {
            self.count(vocabulary.special.len(), "special tokens")?;
            vocabulary.special.iter().try_for_each(|text| self.text(text))?;
        }
        Ok(())
    }

    fn describe(&mut self, tensor: &FlmTensor) -> Result<()> {
        self.text(&tensor.name)?;
        self.count(tensor.shape.len(), "dimensions")?;
        for size in tensor.shape.iter().rev() {
            let size = i32::try_from(*size).map_err(|_| self.unfit(tensor, "a size does not fit into 31 bits"))?;
            self.number(size);
        }
        self.number(tensor.dtype.number());
        Ok(())
    }

    fn number(&mut self, number: i32) {
        self.bytes.extend(number.to_le_bytes());
    }

    fn count(&mut self, count: usize, what: &str) -> Result<()> {
        let count = i32::try_from(count).map_err(|_| self.too_many(what))?;
        self.number(count);
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<()> {
        let size = i32::try_from(text.len()).ok().filter(|size| *size <= TEXT_BYTES_MAX);
        let size = size.ok_or_else(|| {
            let start = quote(text.get(..32).unwrap_or_default());
            let problem = format!(
                "the text \"{start}...\" has {} bytes, but at most {TEXT_BYTES_MAX} are allowed in a .flm file",
                text.len()
            );
            Error::new(self.path, problem).help("shorten it, or omit the key")
        })?;
        self.number(size);
        self.bytes.extend(text.as_bytes());
        Ok(())
    }

    fn too_many(&self, what: &str) -> Error {
        Error::new(self.path, format!("more than 2^31 - 1 {what}, which a .flm file cannot hold"))
    }

    fn unfit(&self, tensor: &FlmTensor, problem: &str) -> Error {
        Error::new(self.path, problem).at(format!("tensor {}", quote(&tensor.name)))
    }
}
