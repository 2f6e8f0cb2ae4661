//! The importance of the columns of each tensor: read from a file, checked against the tensors and the chosen types.
//!
//! The importance of a column can be 0. If all columns of a group have importance 0, some formats would decode the
//! whole group to zero. Such a group is encoded as if unweighted, unless the bytes of the reference are required.

use crate::exact::OnGrid;
use crate::recipe::{Choice, is_end};
use std::borrow::Cow;
use std::ops::Range;
use trueup_blocks::DType;
use trueup_formats::gguf::Metadata;
use trueup_formats::{Error, Importance, ImportanceEntry, Result, TensorInfo, counted, listed, quote};

/// An importance matrix, and how it is used.
#[derive(Debug)]
pub struct ImportanceOptions {
    /// The file.
    pub file: Importance,
    /// Whether entries may be missing or have a wrong size, and experts may have no tokens.
    pub allow_partial: bool,
    /// Whether groups of columns with importance 0 are set to zero, as the reference does.
    pub exact: bool,
}

/// The importance of the columns of every tensor that is encoded with importance.
#[derive(Default, Debug)]
pub struct TensorImportance<'a> {
    /// In the order of the tensors; `None` for a tensor that is encoded without importance.
    weights: Vec<Option<Cow<'a, [f32]>>>,
    /// Whether any tensor is converted to a type that uses importance, with or without a usable entry.
    is_wanted: bool,
    /// Notes about the entries, one sentence each.
    notes: Vec<String>,
}

impl TensorImportance<'_> {
    /// One number for each column of each matrix of a tensor.
    pub fn of(&self, tensor: usize) -> Option<&[f32]> {
        self.weights.get(tensor)?.as_deref()
    }

    /// Whether any tensor is encoded with importance. Tensors on a grid are encoded without loss instead.
    pub fn is_used(&self, on_grid: &OnGrid) -> bool {
        self.weights.iter().enumerate().any(|(tensor, weights)| weights.is_some() && !on_grid.is_exact(tensor))
    }

    /// Notes for the user, one sentence each.
    pub fn notes(&self, on_grid: &OnGrid) -> Vec<String> {
        let mut notes = self.notes.clone();
        // Without tensors, or without a matrix, there is nothing to note.
        if !self.weights.is_empty() && !self.is_used(on_grid) {
            let reason = match (self.is_wanted, self.weights.iter().any(Option::is_some)) {
                (false, _) => "no tensor is converted to a type that uses importance",
                (true, false) => {
                    "it has no usable entry for the tensors that are converted to a type that uses importance"
                }
                (true, true) => "every tensor with an entry can be encoded without loss",
            };
            notes.push(format!("the importance matrix was not used: {reason}"));
        }
        notes
    }
}

/// Problems of the entries: the names of the affected tensors.
#[derive(Default)]
struct Findings {
    missing: Vec<String>,
    /// The embedding and the output head have no entry in most files.
    without: Vec<String>,
    wrong_size: Vec<String>,
    unseen: Vec<String>,
    /// Tensors with groups of columns without importance, and the number of groups.
    zero: Vec<String>,
    zero_groups: usize,
}

impl ImportanceOptions {
    /// The importance of each tensor that changes to a type that uses it.
    ///
    /// # Errors
    /// Entries that are missing or have another size than the tensor, and experts without tokens, unless allowed. All
    /// are listed.
    pub fn prepare(&self, tensors: &[TensorInfo], choices: &[Choice]) -> Result<TensorImportance<'_>> {
        let mut findings = Findings::default();
        let weights =
            tensors.iter().zip(choices).map(|(tensor, choice)| self.prepare_one(tensor, choice, &mut findings));
        let weights: Vec<Option<Cow<[f32]>>> = weights.collect();
        let without = [&findings.without, &findings.missing, &findings.wrong_size];
        let is_wanted = weights.iter().any(Option::is_some) || without.iter().any(|names| !names.is_empty());
        let faults = findings.faults();
        if !self.allow_partial && !faults.is_empty() {
            return Err(Error::new(self.file.source().path(), faults.join("; ")).help(findings.help()));
        }
        Ok(TensorImportance { weights, is_wanted, notes: findings.notes() })
    }

    /// The importance by which a tensor is encoded as `dtype`; `None` if it is encoded without.
    pub(crate) fn of_encoded(&self, tensor: &TensorInfo, dtype: DType) -> Option<Cow<'_, [f32]>> {
        let choice = Choice { dtype, note: String::new(), falls_short: false };
        self.prepare_one(tensor, &choice, &mut Findings::default())
    }

    /// Adds the keys that name the file.
    pub fn describe(&self, metadata: &mut Metadata) {
        metadata.insert("quantize.imatrix.file", text(self.file.name()));
        if let Some(data_set) = self.file.data_sets().first() {
            metadata.insert("quantize.imatrix.dataset", text(data_set));
        }
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        metadata.insert("quantize.imatrix.entries_count", number(self.file.entries().len() as u64));
        if self.file.chunks() > 0 {
            metadata.insert("quantize.imatrix.chunks_count", number(self.file.chunks()));
        }
    }

    fn prepare_one(&self, tensor: &TensorInfo, choice: &Choice, findings: &mut Findings) -> Option<Cow<'_, [f32]>> {
        let is_used = choice.dtype.codec().is_some_and(|codec| codec.uses_importance) && choice.dtype != tensor.dtype;
        if !is_used {
            return None;
        }
        let name = quote(&tensor.name);
        let Some(entry) = self.file.entries().get(&tensor.name) else {
            if is_end(&tensor.name) {
                findings.without.push(name)
            } else {
                findings.missing.push(name)
            }
            return None;
        };
        let (columns, matrices) = columns_and_matrices(tensor);
        if !fits(entry, tensor) {
            let expected = if matrices > 1 { format!("{matrices} x {columns}") } else { columns.to_string() };
            findings.wrong_size.push(format!("{name} (expected {expected}, found {})", entry.size()));
            return None;
        }
        findings.add_unseen(&name, entry, matrices as usize);
        if self.exact {
            return Some(entry.weights().into());
        }
        let (weights, groups) = without_zero_groups(entry.weights(), group_length(choice.dtype));
        if groups > 0 {
            findings.zero.push(name);
            findings.zero_groups += groups;
        }
        Some(weights)
    }
}

impl Findings {
    fn add_unseen(&mut self, name: &str, entry: &ImportanceEntry, matrices: usize) {
        let unseen = entry.unseen(matrices);
        if unseen.is_empty() {
            return;
        }
        let numbers: Vec<String> = unseen.iter().map(usize::to_string).collect();
        let noun = if numbers.len() == 1 { "expert" } else { "experts" };
        let experts = if matrices > 1 { format!(" ({noun} {})", listed(&numbers, ", ")) } else { String::new() };
        self.unseen.push(format!("{name}{experts}"));
    }

    /// One clause for each kind of fault.
    fn faults(&self) -> Vec<String> {
        let all =
            |problem: &str, names: &[String]| (!names.is_empty()).then(|| format!("{problem} {}", listed(names, ", ")));
        let missing = all("expected an entry for every quantized tensor, found none for", &self.missing);
        let unseen = all("expected tokens for every expert, found none for", &self.unseen);
        missing.into_iter().chain(self.wrong_size()).chain(unseen).collect()
    }

    /// Entries of a wrong size.
    fn wrong_size(&self) -> Option<String> {
        let entries = listed(&self.wrong_size, ", ");
        match self.wrong_size.len() {
            0 => None,
            1 => Some(format!("one entry has a different number of columns or matrices than its tensor: {entries}")),
            count => Some(format!(
                "{count} entries have a different number of columns or matrices than their tensors: {entries}"
            )),
        }
    }

    /// The remedy.
    fn help(&self) -> &'static str {
        match (self.wrong_size.is_empty(), self.missing.is_empty()) {
            (false, _) => "use an importance matrix of this model; compute it with `trueup imatrix`",
            (true, false) => "compute the importance matrix with this model, or pass --allow-partial-imatrix",
            (true, true) => "compute the importance matrix on more text, or pass --allow-partial-imatrix",
        }
    }

    /// Notes about the entries, one sentence for each kind.
    fn notes(&self) -> Vec<String> {
        let note =
            |names: &[String], text: &str| (!names.is_empty()).then(|| format!("{text}: {}", listed(names, ", ")));
        let without = [&self.without[..], &self.missing].concat();
        let without = note(&without, "no entry in the importance matrix, so quantized without importance");
        let wrong_size = self.wrong_size().map(|problem| format!("quantized without importance: {problem}"));
        let unseen = note(&self.unseen, "no tokens were routed to these experts, so all columns have equal importance");
        let groups = counted(self.zero_groups, "group");
        let zero = format!("{groups} of columns with importance 0 are quantized as if unweighted");
        let zero = note(&self.zero, &zero);
        [without, wrong_size, unseen, zero].into_iter().flatten().collect()
    }
}

/// The importance by which a tensor may have been encoded as `dtype`, with and without [`ImportanceOptions::exact`];
/// one if both are equal, none if the tensor is encoded without importance.
pub fn possible_importance<'a>(file: &'a Importance, tensor: &TensorInfo, dtype: DType) -> Vec<Cow<'a, [f32]>> {
    let is_used = dtype.codec().is_some_and(|codec| codec.uses_importance) && dtype != tensor.dtype;
    let Some(entry) = file.entries().get(&tensor.name).filter(|entry| is_used && fits(entry, tensor)) else {
        return Vec::new();
    };
    let (filled, groups) = without_zero_groups(entry.weights(), group_length(dtype));
    let exact = (groups > 0).then(|| entry.weights().into());
    [Some(filled), exact].into_iter().flatten().collect()
}

/// Whether an entry has the columns and matrices of a tensor.
fn fits(entry: &ImportanceEntry, tensor: &TensorInfo) -> bool {
    let (columns, matrices) = columns_and_matrices(tensor);
    entry.fits(columns, matrices)
}

fn columns_and_matrices(tensor: &TensorInfo) -> (u64, u64) {
    (tensor.shape.first().copied().unwrap_or(1), tensor.shape.iter().skip(2).product())
}

/// At most 127 bytes, as other programs write such keys.
fn text(text: &str) -> &str {
    let end = (0..=text.len().min(127)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Columns that share a scale, which is lost if none of them is important; `None` if nothing is lost.
fn group_length(dtype: DType) -> Option<usize> {
    match dtype {
        DType::Q3K | DType::Q6K => Some(16),
        DType::Q4_0 | DType::Q5_0 | DType::Iq4Nl | DType::Iq4Xs => Some(32),
        // Single groups survive in a block in which others are important.
        DType::Q2K | DType::Q4K | DType::Q5K => Some(256),
        _ => None,
    }
}

/// The importance with groups of zeros replaced by the least positive importance, which hardly changes other groups;
/// and how many groups that are.
fn without_zero_groups(weights: &[f32], length: Option<usize>) -> (Cow<'_, [f32]>, usize) {
    let Some(length) = length else { return (weights.into(), 0) };
    let is_zero = |group: &[f32]| group.iter().all(|weight| *weight == 0.0);
    let groups = weights.chunks(length).filter(|group| is_zero(group)).count();
    if groups == 0 {
        return (weights.into(), 0);
    }
    let positive = weights.iter().copied().filter(|weight| *weight > 0.0);
    let least = positive.reduce(f32::min).unwrap_or(1.0);
    let mut filled = weights.to_vec();
    filled.chunks_mut(length).filter(|group| is_zero(group)).for_each(|group| group.fill(least));
    (filled.into(), groups)
}

/// Consecutive rows of a tensor with the importance of their columns.
#[derive(Clone, Copy, Debug)]
pub struct WeightedRows<'a> {
    /// Of a matrix.
    columns: usize,
    /// Those of a piece of one row, or all.
    range: (usize, usize),
    /// Number of the first row in the tensor.
    first: usize,
    rows_per_matrix: usize,
    importance: &'a [f32],
}

impl<'a> WeightedRows<'a> {
    /// The rows in a range of elements of a tensor, or a piece of one row; `importance` holds one number for each
    /// column of each matrix.
    pub fn new(tensor: &TensorInfo, elements: &Range<u64>, importance: &'a [f32]) -> WeightedRows<'a> {
        let size = |axis: usize| tensor.shape.get(axis).map_or(1, |size| *size as usize);
        let (columns, first) = (size(0), elements.start as usize);
        let start = first % columns;
        let range = (start, columns.min(start + (elements.end - elements.start) as usize));
        WeightedRows { columns, range, first: first / columns, rows_per_matrix: size(1), importance }
    }

    /// Elements of a row, or of the piece of one.
    pub fn columns(&self) -> usize {
        self.range.1 - self.range.0
    }

    /// The importance of the columns of row number `row` of the range.
    pub fn importance_of(&self, row: usize) -> &'a [f32] {
        let matrix = (self.first + row) / self.rows_per_matrix;
        &self.importance[matrix * self.columns..][self.range.0..self.range.1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_without_importance_get_the_least_positive_one() {
        let mut weights = vec![0.5; 64];
        weights[16..32].fill(0.0);
        weights[33] = 0.25;
        weights[40] = 0.0;
        let (filled, groups) = without_zero_groups(&weights, group_length(DType::Q6K));
        assert_eq!((groups, filled[16], filled[31], filled[40], filled[0]), (1, 0.25, 0.25, 0.0, 0.5));
        assert_eq!(without_zero_groups(&weights, group_length(DType::Q4_0)).1, 0);
        assert_eq!(without_zero_groups(&[0.0; 32], group_length(DType::Q5_0)), (vec![1.0; 32].into(), 1));
        assert_eq!(without_zero_groups(&[0.0; 32], group_length(DType::Q5_1)), ([0.0; 32].as_slice().into(), 0));
    }

    #[test]
    fn rows_of_each_matrix_have_its_importance() {
        let tensor = TensorInfo::new("a.weight", &[32, 3, 2], DType::F32).unwrap();
        let importance: Vec<f32> = [[1.0; 32], [2.0; 32]].concat();
        let rows = WeightedRows::new(&tensor, &(64..192), &importance);
        assert_eq!([0, 1, 2, 3].map(|row| rows.importance_of(row)[0]), [1.0, 2.0, 2.0, 2.0]);
        assert_eq!(rows.columns(), 32);
        let piece = WeightedRows::new(&tensor, &(104..112), &importance);
        assert_eq!((piece.columns(), piece.importance_of(0)), (8, &[2.0; 8][..]));
    }
}
