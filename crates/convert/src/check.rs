//! The written file against its source: every transform undone, every tensor exact or by its error.

use crate::chunk::{Chunk, bytes_of, chunks, decode, read_source, restore_rows};
use crate::mapping::Mapping;
use crate::stream::pool;
use rayon::prelude::*;
use serde::Serialize;
use std::collections::HashMap;
use trueup_blocks::{DType, DeviationSums};
use trueup_formats::{Checkpoint, Gguf, Result};
use trueup_models::Faults;

/// How one tensor of the file agrees with its source.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TensorCheck {
    /// Its name in the file.
    pub name: String,
    /// Its name in the checkpoint; `None` when it is computed.
    pub source: Option<String>,
    /// What it was.
    pub source_type: &'static str,
    /// What it is now.
    #[serde(rename = "type")]
    pub dtype: &'static str,
    /// Whether it says the same.
    pub agreement: Agreement,
}

/// Whether a tensor says the same as its source.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Agreement {
    /// Every element has the same value, signs of zero included.
    Exact,
    /// Elements were rounded to another type.
    Rounded {
        /// Root mean square of the difference.
        rmse: f64,
        /// The largest difference.
        max_abs: f64,
        /// The cosine of the angle between both.
        cosine: f64,
    },
    /// Elements are not finite on one side only, or differ although the type can hold them: the file is wrong.
    Wrong {
        /// How many elements.
        elements: u64,
    },
}

/// Compares `written` with the checkpoint it was made from: reads it back, puts rows into the checkpoint's order and compares
/// every element.
///
/// # Errors
/// What [`Mapping::new`] refuses, tensors that are missing in the file, too many or of another shape, and I/O.
pub fn check(source: &dyn Checkpoint, written: &Gguf, threads: Option<usize>) -> Result<Vec<TensorCheck>> {
    let mapping = Mapping::new(source)?;
    let places = places(&mapping, written)?;
    let comparison = Comparison { source, written, mapping: &mapping, places: &places };
    let chunks = chunks(&mapping);
    let found: Vec<Found> = pool(threads, source.path())?
        .install(|| chunks.par_iter().with_max_len(1).map(|chunk| comparison.one(chunk)).collect::<Result<_>>())?;
    let mut sums = vec![Found::default(); mapping.tensors().len()];
    for (chunk, found) in chunks.iter().zip(&found) {
        sums[chunk.tensor].merge(found);
    }
    source.unchanged()?;
    written.unchanged()?;
    let line = |((tensor, place), sums): ((&crate::MappedTensor, &usize), &Found)| {
        let dtype = written.tensors()[*place].dtype;
        TensorCheck {
            name: tensor.expected.name.clone(),
            source: tensor.expected.theirs.clone(),
            source_type: tensor.dtype.name(),
            dtype: dtype.name(),
            agreement: sums.agreement(holds(dtype, tensor.dtype)),
        }
    };
    Ok(mapping.tensors().iter().zip(&places).zip(&sums).map(line).collect())
}

/// The number in the file of each tensor of the mapping.
fn places(mapping: &Mapping, written: &Gguf) -> Result<Vec<usize>> {
    let mut numbers: HashMap<&str, usize> =
        written.tensors().iter().enumerate().map(|(number, tensor)| (tensor.name.as_str(), number)).collect();
    let mut faults = Faults::default();
    let mut places = Vec::new();
    for tensor in mapping.tensors() {
        let expected = &tensor.expected;
        match numbers.remove(expected.name.as_str()) {
            None => faults.add(format!("tensor {} is missing", expected.name)),
            Some(number) => {
                let found = &written.tensors()[number];
                if found.shape != expected.shape || found.dtype.codec().is_none() {
                    let (wanted, shape, dtype) = (&expected.shape, &found.shape, found.dtype);
                    faults.add(format!("tensor {}: expected {wanted:?}, found {dtype}{shape:?}", expected.name));
                }
                places.push(number);
            }
        }
    }
    numbers.into_keys().for_each(|name| faults.add(format!("tensor {} has no source", trueup_formats::quote(name))));
    faults.check(written.path(), "tensors", "convert again")?;
    Ok(places)
}

/// Whether every value of `small` has its own in `large`.
fn holds(large: DType, small: DType) -> bool {
    large == small || matches!((large, small), (DType::F32, DType::F16 | DType::Bf16))
}

/// What comparing some elements found.
#[derive(Clone, Default)]
struct Found {
    different: u64,
    sums: DeviationSums,
}

impl Found {
    fn merge(&mut self, other: &Found) {
        self.different += other.different;
        self.sums.merge(&other.sums);
    }

    fn agreement(&self, must_be_exact: bool) -> Agreement {
        let deviation = self.sums.deviation();
        match (self.different, deviation.not_finite) {
            (0, _) => Agreement::Exact,
            (elements, 0) if must_be_exact => Agreement::Wrong { elements },
            (_, 0) => Agreement::Rounded { rmse: deviation.rmse, max_abs: deviation.max_abs, cosine: deviation.cosine },
            (elements, _) => Agreement::Wrong { elements },
        }
    }
}

struct Comparison<'a> {
    source: &'a dyn Checkpoint,
    written: &'a Gguf,
    mapping: &'a Mapping,
    places: &'a [usize],
}

impl Comparison<'_> {
    fn one(&self, chunk: &Chunk) -> Result<Found> {
        let (from, number) = (self.mapping.tensors()[chunk.tensor].dtype, self.places[chunk.tensor]);
        let to = self.written.tensors()[number].dtype;
        let mut bytes = vec![0; bytes_of(chunk.elements, to) as usize];
        self.written.read(number, bytes_of(chunk.first, to), &mut bytes)?;
        let written = restore_rows(self.mapping, chunk, decode(to, &bytes, chunk.elements));
        let source = decode(from, &read_source(self.source, self.mapping, chunk)?, chunk.elements);
        let mut found = Found::default();
        found.sums.add(&source, &written);
        found.different = source.iter().zip(&written).filter(|(a, b)| a.to_bits() != b.to_bits()).count() as u64;
        Ok(found)
    }
}
