//! The written file against its source: every transform undone, every tensor exact, rounded as its type rounds, or
//! wrong.
//!
//! ```text
//! file   ─ rows back in order ─┬─ the same bytes? ── no: wrong
//! source ─ encoded again ──────┘   └─ yes: how far are they from the source?
//! ```

use crate::chunk::{Chunk, chunks};
use crate::encoding::{Encoding, plain_tensors};
use crate::mapping::Mapping;
use crate::omitted::{OmittedTensor, computed_agreement};
use crate::slim;
use serde::Serialize;
use trueup_blocks::{DType, DeviationSums};
use trueup_formats::{Checkpoint, Gguf, Result};
use trueup_models::{Diagnostics, TOKEN_EMBEDDING};
use trueup_quantize::{
    Choice, ImportanceOptions, Scratch, Transcoder, bytes_of, decode_exact, first_bytes, piece_bytes, walk_with,
};

/// How one tensor of the file agrees with its source.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TensorCheck {
    /// Its name in the file; of an omitted tensor, the name of what stands for it.
    pub name: String,
    /// Its name in the checkpoint; `None` when it is computed.
    pub source: Option<String>,
    /// What it was.
    pub source_type: &'static str,
    /// What it is now.
    #[serde(rename = "type")]
    pub dtype: &'static str,
    /// Whether the file does not have it: it was compared with what stands for it. Omitted tensors come last.
    pub omitted: bool,
    /// Whether it says the same.
    pub agreement: Agreement,
}

/// Whether a tensor says the same as its source.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Agreement {
    /// Every element has the same value, signs of zero included.
    Exact,
    /// The bytes are what the type's rule makes of the source, and some elements were rounded.
    Rounded {
        /// Root mean square of the difference.
        rmse: f64,
        /// The largest difference.
        max_abs: f64,
        /// The cosine of the angle between both.
        cosine: f64,
    },
    /// The bytes are not what the type's rule makes of the source, or elements are no finite numbers: the file is
    /// wrong.
    Wrong {
        /// How many elements; all of a block that differs.
        elements: u64,
    },
}

/// Compares `written` with the checkpoint it was made from: reads it back, puts rows into the checkpoint's order,
/// encodes the checkpoint again and compares every byte. A file that other software made by another rule of rounding is
/// therefore wrong too.
///
/// # Errors
/// What [`Mapping::new`] refuses, tensors that are missing in the file, too many or of another shape, and I/O.
pub fn check(source: &dyn Checkpoint, written: &Gguf, threads: Option<usize>) -> Result<Vec<TensorCheck>> {
    check_with(source, written, None, threads)
}

/// [`check`] for a file that was encoded with an importance matrix.
///
/// # Errors
/// As [`check`], and an importance matrix that does not cover the tensors.
pub fn check_with(
    source: &dyn Checkpoint,
    written: &Gguf,
    importance: Option<&ImportanceOptions>,
    threads: Option<usize>,
) -> Result<Vec<TensorCheck>> {
    let mut mapping = Mapping::new(source)?;
    if let Some(kept) = slim::kept_in(written.metadata(), mapping.spec().vocabulary_size(), written.path())? {
        mapping = mapping.slimmed(kept.into(), written.path())?;
    }
    let places = places(&mapping, written)?;
    let choices: Vec<Choice> = places.iter().map(|place| chosen(written.tensors()[*place].dtype)).collect();
    let encoding = Encoding::new(source, &mapping, (&plain_tensors(&mapping)?, &choices), importance, threads)?;
    let copies = mapping.of_copies(source);
    let embedding = mapping.tensors().iter().position(|tensor| tensor.expected.name == TOKEN_EMBEDDING);
    let stand_ins: Vec<usize> = copies.tensors().iter().filter_map(|_| embedding).collect();
    let comparison = Comparison { source, written, places: &places, encoding: &encoding };
    let all: Vec<usize> = (0..mapping.tensors().len()).collect();
    let mut checks = comparison.of(&mapping, &all, threads)?;
    let omitted = comparison.of(&copies, &stand_ins, threads)?;
    checks.extend(omitted.into_iter().map(|check| TensorCheck { omitted: true, ..check }));
    for omitted in mapping.omitted().iter().filter(|omitted| omitted.stand_in.is_computed()) {
        checks.push(computed(source, &mapping, *omitted)?);
    }
    source.unchanged()?;
    written.unchanged()?;
    Ok(checks)
}

/// A type that was chosen.
fn chosen(dtype: DType) -> Choice {
    Choice { dtype, note: String::new(), falls_short: false }
}

/// Compares a tensor that is not in the file with what is computed in its place.
fn computed(source: &dyn Checkpoint, mapping: &Mapping, omitted: OmittedTensor) -> Result<TensorCheck> {
    let info = &source.tensors()[omitted.source];
    Ok(TensorCheck {
        name: omitted.stand_in.describe().to_owned(),
        source: Some(info.name.clone()),
        source_type: info.dtype.name(),
        dtype: info.dtype.name(),
        omitted: true,
        agreement: computed_agreement(source, mapping.spec(), omitted)?,
    })
}

/// The number in the file of each tensor of the mapping.
fn places(mapping: &Mapping, written: &Gguf) -> Result<Vec<usize>> {
    let mut left = vec![true; written.tensors().len()];
    let mut faults = Diagnostics::default();
    let mut places = Vec::new();
    for tensor in mapping.tensors() {
        let expected = &tensor.expected;
        match written.find(&expected.name) {
            None => faults.add(format!("tensor {} is missing", expected.name)),
            Some(number) => {
                left[number] = false;
                let found = &written.tensors()[number];
                if found.shape != expected.shape || found.dtype.codec().is_none() {
                    let (wanted, shape, dtype) = (&expected.shape, &found.shape, found.dtype);
                    faults.add(format!("tensor {}: expected {wanted:?}, found {dtype}{shape:?}", expected.name));
                }
                places.push(number);
            }
        }
    }
    for (tensor, _) in written.tensors().iter().zip(left).filter(|(_, left)| *left) {
        faults.add(format!("tensor {} has no source", trueup_formats::quote(&tensor.name)));
    }
    faults.check(written.path(), "tensors", "convert again")?;
    Ok(places)
}

/// What comparing some elements found.
#[derive(Clone, Default)]
struct Found {
    /// Elements whose bytes are not what the source becomes.
    wrong: u64,
    /// Elements with another value than in the source.
    different: u64,
    sums: DeviationSums,
}

impl Found {
    fn merge(&mut self, other: &Found) {
        self.wrong += other.wrong;
        self.different += other.different;
        self.sums.merge(&other.sums);
    }

    fn agreement(&self) -> Agreement {
        let deviation = self.sums.deviation();
        // What is not finite may be the same on both sides, but is never rounded.
        match (self.wrong, self.different, deviation.not_finite) {
            (0, 0, _) => Agreement::Exact,
            (0, _, 0) => {
                Agreement::Rounded { rmse: deviation.rmse, max_abs: deviation.max_abs, cosine: deviation.cosine }
            }
            (0, _, elements) | (elements, _, _) => Agreement::Wrong { elements },
        }
    }
}

struct Comparison<'a> {
    source: &'a dyn Checkpoint,
    written: &'a Gguf,
    /// For each tensor of the model, its number in the file.
    places: &'a [usize],
    encoding: &'a Encoding<'a>,
}

impl Comparison<'_> {
    /// Compares the tensors of a mapping with these tensors of the model.
    fn of(&self, mapping: &Mapping, tensors: &[usize], threads: Option<usize>) -> Result<Vec<TensorCheck>> {
        let mut sums = vec![Found::default(); mapping.tensors().len()];
        let add = |chunk: &Chunk, found: Found| sums[chunk.tensor].merge(&found);
        let one = |own: &mut Own, chunk: &Chunk| self.one(own, chunk, mapping, tensors[chunk.tensor]);
        let chunks = chunks(mapping, |number| self.encoding.importance.of(tensors[number]).is_some());
        walk_with(chunks, threads, self.source.path(), one, add)?;
        let line = |((tensor, number), sums): ((&crate::MappedTensor, &usize), &Found)| TensorCheck {
            name: tensor.expected.name.clone(),
            source: tensor.expected.sources.first().map(|source| source.name.clone()),
            source_type: tensor.source_type(self.source),
            dtype: self.written.tensors()[self.places[*number]].dtype.name(),
            omitted: false,
            agreement: sums.agreement(),
        };
        Ok(mapping.tensors().iter().zip(tensors).zip(&sums).map(line).collect())
    }

    /// Compares a chunk of a mapping with tensor number `tensor` of the model.
    fn one(&self, own: &mut Own, chunk: &Chunk, mapping: &Mapping, tensor: usize) -> Result<Found> {
        let (from, number) = (mapping.tensors()[chunk.tensor].dtype, self.places[tensor]);
        let info = &self.written.tensors()[number];
        let to = info.dtype;
        let bytes = first_bytes(&mut own.written, bytes_of(chunk.len(), to));
        self.written.read(number, bytes_of(chunk.elements.start, to), bytes)?;
        let written = chunk.restore_rows(to, bytes, &mut own.restored);
        let source = first_bytes(&mut own.source, bytes_of(chunk.len(), from));
        chunk.read_source(self.source, mapping, source)?;
        let expected = first_bytes(&mut own.expected, bytes_of(chunk.len(), to));
        if self.encoding.is_plain(tensor) {
            Transcoder::new(from, to).transcode_unchecked(source, expected, &mut own.scratch);
        } else {
            let place = (tensor, &chunk.elements);
            let mut loss = DeviationSums::default();
            let encoded = self.encoding.transcode(place, (from, info), (source, expected), &mut own.scratch, &mut loss);
            if encoded.is_err() {
                return Ok(Found { wrong: chunk.len(), ..Found::default() });
            }
        }
        let blocks = expected.chunks_exact(to.block_bytes()).zip(written.chunks_exact(to.block_bytes()));
        let wrong_blocks = blocks.filter(|(expected, written)| expected != written).count();
        let mut found = Found { wrong: (wrong_blocks * to.block_len()) as u64, ..Found::default() };
        for (source, written) in source.chunks(piece_bytes(from)).zip(written.chunks(piece_bytes(to))) {
            let (source_values, written_values) = (decode_exact(from, source), decode_exact(to, written));
            found.sums.add(&narrowed(&source_values), &narrowed(&written_values));
            let pairs = source_values.iter().zip(&written_values);
            found.different += pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count() as u64;
        }
        Ok(found)
    }
}

/// What each thread has of its own.
#[derive(Default)]
struct Own {
    written: Vec<u8>,
    restored: Vec<u8>,
    source: Vec<u8>,
    expected: Vec<u8>,
    scratch: Scratch,
}

/// As f32, in which distances are measured.
fn narrowed(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}
