//! Finds tensors whose weights are on the grid of a block type, for example after quantization-aware training: that
//! type stores them without loss.
//!
//! ```text
//! tensor ─ 32 samples of 256 weights ─ types left? ─ yes ─ all weights, on all cores ─▶ the smallest exact type
//!                                          └ no: almost always after the first sample
//! ```

use crate::recipe::Choice;
use crate::walk::{bytes_of, chunk_ranges, walk};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use trueup_blocks::{DType, GRID_TYPES, encode_exact};
use trueup_formats::{Checkpoint, Result, TensorInfo, counted, listed, quote};

/// Number of weights in a sample: a multiple of every block length.
const SAMPLE: u64 = 256;

/// Number of samples of a tensor.
const SAMPLES: u64 = 32;

/// Maximum length of a regular expression that a note suggests, in bytes.
const PATTERN_LENGTH_MAX: usize = 1000;

/// The types that store all weights seen so far without loss.
#[derive(Clone, Debug)]
pub struct ExactTypes {
    source: DType,
    /// The grid types that are still exact, smallest first.
    grids: Vec<DType>,
    /// An additional type that is tested, as long as it is exact.
    other: Option<DType>,
    is_nonzero: bool,
}

impl ExactTypes {
    /// All grid types whose blocks divide the rows of the tensor. `other` is an additional type to test.
    pub fn new(tensor: &TensorInfo, other: Option<DType>) -> ExactTypes {
        let row = tensor.shape.first().copied().unwrap_or(1);
        let is_float = matches!(tensor.dtype, DType::F32 | DType::F16 | DType::Bf16);
        let fits = |dtype: &DType| is_float && dtype.codec().is_some() && dtype.row_bytes(row).is_some();
        let grids = GRID_TYPES.into_iter().filter(fits).collect();
        ExactTypes { source: tensor.dtype, grids, other: other.filter(fits), is_nonzero: false }
    }

    /// Whether the weights seen so far are on no grid.
    pub fn is_none(&self) -> bool {
        self.grids.is_empty()
    }

    /// The smallest type that stores all weights without loss; `None` if there is none, or if all samples are zero.
    pub fn smallest(&self) -> Option<DType> {
        self.grids.first().copied()
    }

    /// Whether the additional type stores all weights without loss.
    pub fn is_other_exact(&self) -> bool {
        self.smallest().is_some() && self.other.is_some()
    }

    /// Tests more weights: whole blocks, in the type of the source.
    pub fn look_at(&mut self, bytes: &[u8]) {
        let Some(codec) = self.source.codec() else { return self.grids.clear() };
        let mut weights = vec![0.0; bytes.len() / self.source.block_bytes()];
        (codec.decode)(bytes, &mut weights);
        self.is_nonzero |= weights.iter().any(|weight| *weight != 0.0);
        let mut room = Vec::new();
        let mut is_exact = |dtype: DType| {
            weights.chunks(SAMPLE as usize).all(|weights| {
                room.resize(bytes_of(weights.len() as u64, dtype) as usize, 0);
                encode_exact(self.source, dtype, weights, &mut room)
            })
        };
        let mut exact: Vec<DType> = Vec::new();
        for dtype in std::mem::take(&mut self.grids) {
            // The codes of q4_0 are a subset of those of q5_0.
            let is_known = dtype == DType::Q5_0 && exact.contains(&DType::Q4_0);
            if is_known || is_exact(dtype) {
                exact.push(dtype);
            }
        }
        self.other = self.other.filter(|dtype| match GRID_TYPES.contains(dtype) {
            true => exact.contains(dtype),
            false => is_exact(*dtype),
        });
        self.grids = exact;
    }

    /// Keeps the types that are exact for both sets of weights.
    pub fn and(&mut self, seen: &ExactTypes) {
        self.grids.retain(|dtype| seen.grids.contains(dtype));
        self.other = self.other.filter(|other| seen.other == Some(*other));
        self.is_nonzero |= seen.is_nonzero;
    }
}

/// The exact types of a tensor. All weights are tested, unless samples show that they are on no grid. `other` is an
/// additional type to test.
///
/// # Errors
/// I/O.
pub fn exact_types(
    source: &dyn Checkpoint,
    tensor: usize,
    other: Option<DType>,
    threads: Option<usize>,
) -> Result<ExactTypes> {
    let info = &source.tensors()[tensor];
    let (total, row) = (info.elements(), info.shape.first().copied().unwrap_or(1));
    let read = |elements: &Range<u64>| {
        let mut bytes = vec![0; bytes_of(elements.end - elements.start, info.dtype) as usize];
        source.read(tensor, bytes_of(elements.start, info.dtype), &mut bytes).map(|()| bytes)
    };
    let types = ExactTypes::new(info, other);
    let pieces = total.div_ceil(SAMPLE);
    let count = SAMPLES.min(pieces);
    let samples = (0..count).map(|sample| sample * pieces / count * SAMPLE);
    let samples = samples.map(|first| first..(first + SAMPLE).min(total));
    exact_types_of(types, samples, chunk_ranges(total, row), read, (threads, source.path()))
}

/// [`exact_types`] for a tensor that changes to `dtype`; `None` unless it changes from floats to blocks.
///
/// # Errors
/// I/O.
pub(crate) fn exact_types_of_change(
    source: &dyn Checkpoint,
    tensor: usize,
    dtype: DType,
    threads: Option<usize>,
) -> Result<Option<ExactTypes>> {
    let is_encoded = dtype.is_quantized() && source.tensors()[tensor].dtype.is_float();
    is_encoded.then(|| exact_types(source, tensor, Some(dtype), threads)).transpose()
}

/// The exact types of the weights that `read` returns: first for a few `samples`, then for `chunks`, which cover all
/// weights.
///
/// # Errors
/// Errors of `read`.
pub fn exact_types_of<C: Send + Sync>(
    mut types: ExactTypes,
    samples: impl Iterator<Item = C>,
    chunks: impl Iterator<Item = C>,
    read: impl Fn(&C) -> Result<Vec<u8>> + Sync,
    (threads, path): (Option<usize>, &Path),
) -> Result<ExactTypes> {
    for sample in samples {
        if types.is_none() {
            return Ok(types);
        }
        types.look_at(&read(&sample)?);
    }
    if !types.is_nonzero {
        // Zeros are on every grid, so they do not show which one the weights were made for.
        types.grids.clear();
    }
    if types.is_none() {
        return Ok(types);
    }
    let common = Mutex::new(types);
    let lock = || common.lock().unwrap_or_else(PoisonError::into_inner);
    let look = |chunk: &C| {
        let mut seen = lock().clone();
        if !seen.is_none() {
            seen.look_at(&read(chunk)?);
            lock().and(&seen);
        }
        Ok(())
    };
    walk(chunks, threads, path, look, |_, ()| ())?;
    Ok(common.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The tensors of a run whose weights are on a grid.
#[derive(Default, Debug)]
pub struct OnGrid {
    /// The names of all tensors.
    names: Vec<String>,
    /// For each tensor, whether it must be encoded without loss because its type is exact.
    exact: Vec<bool>,
    /// Tensors whose type stores them without loss.
    kept: Vec<String>,
    /// Tensors that only another type would store without loss: that type, and the numbers of the tensors.
    lost: Vec<(DType, Vec<usize>)>,
}

impl OnGrid {
    /// Adds the next tensor and its exact types; `None` if they were not determined.
    pub fn push(&mut self, name: &str, choice: &Choice, types: Option<&ExactTypes>) {
        let found = types.and_then(|types| Some((types.smallest()?, types.is_other_exact())));
        let (number, is_exact) = (self.names.len(), matches!(found, Some((_, true))));
        self.names.push(name.to_owned());
        self.exact.push(is_exact);
        match found {
            Some((_, true)) => self.kept.push(format!("{} ({})", quote(name), choice.dtype)),
            Some((smallest, false)) => match self.lost.iter_mut().find(|(dtype, _)| *dtype == smallest) {
                Some((_, numbers)) => numbers.push(number),
                None => self.lost.push((smallest, vec![number])),
            },
            None => {}
        }
    }

    /// Whether a tensor is encoded without loss.
    pub fn is_exact(&self, tensor: usize) -> bool {
        self.exact.get(tensor).copied().unwrap_or(false)
    }

    /// Notes for the user, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.kept.is_empty() {
            let count = counted(self.kept.len(), "tensor");
            notes.push(format!(
                "{count} on the grid of the new type, stored without loss: {}",
                listed(&self.kept, ", ")
            ));
        }
        for (dtype, numbers) in &self.lost {
            let shown: Vec<String> = numbers.iter().map(|number| quote(&self.names[*number])).collect();
            let (count, shown) = (counted(numbers.len(), "tensor"), listed(&shown, ", "));
            let rule = match self.pattern(numbers) {
                Some(pattern) => format!("to use it, pass --rule '{pattern}={dtype}' before other rules"),
                None => format!("to use it, pass a --rule with {dtype} for them before other rules"),
            };
            notes.push(format!(
                "{count} on the grid of {dtype}, which stores all weights without loss; {rule}: {shown}"
            ));
        }
        notes
    }

    /// A regular expression that matches the names of these tensors and no others, and that can be put between single
    /// quotes. `None` if it would be too long, or if a name has unusual characters.
    fn pattern(&self, numbers: &[usize]) -> Option<String> {
        let names: BTreeSet<&str> = numbers.iter().map(|number| self.names[*number].as_str()).collect();
        let is_usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !names.iter().all(|name| name.chars().all(is_usual)) {
            return None;
        }
        // Match all layers, unless that matches another tensor.
        let others: BTreeSet<String> =
            self.names.iter().filter(|name| !names.contains(name.as_str())).map(|name| of_all_layers(name)).collect();
        let part = |name: &&str| match of_all_layers(name) {
            general if others.contains(&general) => name.replace('.', r"\."),
            general => general,
        };
        let parts: BTreeSet<String> = names.iter().map(part).collect();
        let pattern = match parts.into_iter().collect::<Vec<String>>().as_slice() {
            [part] => format!("^{part}$"),
            parts => format!("^({})$", parts.join("|")),
        };
        (pattern.len() <= PATTERN_LENGTH_MAX).then_some(pattern)
    }
}

/// A regular expression for the name of a tensor in any layer.
fn of_all_layers(name: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let part = |part| if is_number(part) { "[0-9]+" } else { part };
    name.split('.').map(part).collect::<Vec<&str>>().join(r"\.")
}
