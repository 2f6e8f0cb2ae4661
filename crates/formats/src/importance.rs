//! Importance matrices: for each column of a weight matrix, the mean square of the inputs it is multiplied with.
//!
//! ```text
//! GGUF    NAME.in_sum2 [columns, matrices] f32     NAME.counts [1, matrices] f32
//!         importance of a column = sum / count; 1 if the count is 0
//! .dat    i32 entries │ i32 length, name │ i32 calls │ i32 values │ f32 values │ ... │ i32 chunks │ i32 length, text
//!         importance of a column = value / calls
//! ```
//!
//! A weight with experts has one matrix for each. The older `.dat` format does not say how many, nor which experts saw
//! no tokens: their values are equal to the calls.
//!
//! Source: the files that llama-imatrix writes, in both of its formats.

use crate::counted;
use crate::error::{Error, Result, listed, quote};
use crate::gguf::Gguf;
use crate::reader::Reader;
use crate::{Checkpoint, SourceFile};
use std::collections::BTreeMap;
use std::path::Path;
use trueup_blocks::DType;

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 8 << 30;

/// Ends of the names of the two tensors of an entry.
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// An importance matrix file, read and checked.
#[derive(Debug)]
pub struct Importance {
    name: String,
    source: SourceFile,
    data_sets: Vec<String>,
    chunks: u64,
    entries: BTreeMap<String, ImportanceEntry>,
}

/// The importance of the columns of one weight.
#[derive(Clone, PartialEq, Debug)]
pub struct ImportanceEntry {
    /// One finite number, 0 or more, for each column of each matrix. 1 in matrices without tokens.
    weights: Vec<f32>,
    /// Tokens that each matrix saw; empty if the file does not say.
    counts: Vec<f32>,
}

impl Importance {
    /// Reads a file in either format.
    ///
    /// # Errors
    /// A file in another format, damaged, without entries, or with numbers that are not finite or negative.
    pub fn open(path: impl AsRef<Path>) -> Result<Importance> {
        let source = SourceFile::open(path.as_ref())?;
        if source.bytes() > FILE_BYTES_MAX {
            let problem = format!("expected at most {FILE_BYTES_MAX} bytes, found {}", source.bytes());
            return Err(Error::new(source.path(), problem).help(HELP));
        }
        let mut magic = [0; 4];
        let is_gguf = source.bytes() >= 4 && source.read_at(0, &mut magic).map(|()| &magic == b"GGUF")?;
        let importance = if is_gguf { read_gguf(source)? } else { read_legacy(source)? };
        if importance.entries.is_empty() {
            let problem = "expected an importance matrix, found a file without entries";
            return Err(Error::new(importance.source.path(), problem).help(HELP));
        }
        Ok(importance)
    }

    /// The same under another file name: the name that output files mention.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Importance {
        Importance { name: name.into(), ..self }
    }

    /// The name of the file, without its directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file.
    pub fn source(&self) -> &SourceFile {
        &self.source
    }

    /// The texts that the importance was computed on, as the file names them.
    pub fn data_sets(&self) -> &[String] {
        &self.data_sets
    }

    /// Chunks of text that the importance was computed on; 0 if the file does not say.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// All entries by the names of their weights.
    pub fn entries(&self) -> &BTreeMap<String, ImportanceEntry> {
        &self.entries
    }
}

/// The name of a file without its directory.
fn name_of(source: &SourceFile) -> String {
    source.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl ImportanceEntry {
    /// One finite number, 0 or more, for each column of each matrix.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Whether the entry fits a weight of this size. Several counts mean one for each matrix; one count covers all
    /// matrices; `.dat` files have no counts.
    pub fn fits(&self, columns: u64, matrices: u64) -> bool {
        let has_counts = |count: usize| count < 2 || u64::try_from(count) == Ok(matrices);
        columns.checked_mul(matrices) == u64::try_from(self.weights.len()).ok() && has_counts(self.counts.len())
    }

    /// The number of values for messages: `3 x 256` for three matrices of 256 columns.
    pub fn size(&self) -> String {
        match (self.counts.len(), self.weights.len()) {
            (0 | 1, values) => values.to_string(),
            (matrices, values) => format!("{matrices} x {}", values.checked_div(matrices).unwrap_or(0)),
        }
    }

    /// The numbers of the matrices to which no tokens were routed, if the weight has this many matrices.
    pub fn unseen(&self, matrices: usize) -> Vec<usize> {
        match self.counts.as_slice() {
            [] if matrices > 1 => {
                let columns = self.weights.len().checked_div(matrices).unwrap_or(0).max(1);
                let is_unseen = |weights: &[f32]| weights.iter().all(|weight| *weight == 1.0);
                (0..).zip(self.weights.chunks(columns)).filter(|(_, weights)| is_unseen(weights)).map(first).collect()
            }
            [] => Vec::new(),
            [count] => (0..matrices).filter(|_| *count == 0.0).collect(),
            counts => (0..).zip(counts).filter(|(_, count)| **count == 0.0).map(first).collect(),
        }
    }
}

fn first<T>((first, _): (usize, T)) -> usize {
    first
}

const HELP: &str = "pass a file that `trueup imatrix` or llama-imatrix wrote";

/// A pair of tensors for each entry.
fn read_gguf(source: SourceFile) -> Result<Importance> {
    let file = Gguf::open(source.path())?;
    let metadata = file.metadata();
    let kind = metadata.string("general.type").unwrap_or("model");
    if let ("model", Ok(architecture)) = (kind, metadata.string("general.architecture")) {
        let problem = format!("expected an importance matrix, found a model ({})", quote(architecture));
        return Err(Error::new(source.path(), problem).help(HELP));
    }
    let in_file = |error: crate::gguf::MetadataError| error.in_file(source.path()).help(HELP);
    let data_sets = metadata.strings("imatrix.datasets").map_err(in_file)?.to_vec();
    let chunks = metadata.u64("imatrix.chunk_count").map_err(in_file)?;
    metadata.u64("imatrix.chunk_size").map_err(in_file)?;
    let mut entries = BTreeMap::new();
    let mut alone = Vec::new();
    for (number, tensor) in file.tensors().iter().enumerate() {
        if let Some(name) = tensor.name.strip_suffix(SUMS) {
            match file.find(&format!("{name}{COUNTS}")) {
                Some(counts) => drop(entries.insert(name.to_owned(), read_pair(&file, name, number, counts)?)),
                None => alone.push(quote(&tensor.name)),
            }
        } else if let Some(name) = tensor.name.strip_suffix(COUNTS)
            && file.find(&format!("{name}{SUMS}")).is_none()
        {
            alone.push(quote(&tensor.name));
        }
    }
    if !alone.is_empty() {
        let problem = format!("expected pairs of {SUMS} and {COUNTS}, found only one of {}", listed(&alone, ", "));
        return Err(Error::new(source.path(), problem).help("the file is damaged; compute it again"));
    }
    let name = name_of(&source);
    Ok(Importance { name, source, data_sets, chunks, entries })
}

/// One entry of a GGUF file: tensors number `sums` and `counts`.
fn read_pair(file: &Gguf, name: &str, sums: usize, counts: usize) -> Result<ImportanceEntry> {
    let (sums, counts) = (read_f32(file, sums)?, read_f32(file, counts)?);
    let fail = |problem: String| {
        Error::new(file.path(), problem)
            .at(format!("entry {}", quote(name)))
            .help("the file is damaged; compute it again")
    };
    let columns =
        sums.len().checked_div(counts.len()).filter(|columns| columns.checked_mul(counts.len()) == Some(sums.len()));
    let columns = columns.filter(|columns| *columns > 0).ok_or_else(|| {
        fail(format!("expected a multiple of {} sums, one row for each count, found {}", counts.len(), sums.len()))
    })?;
    if let Some(count) = counts.iter().find(|count| !count.is_finite() || **count < 0.0) {
        return Err(fail(format!("expected counts of 0 or more, found {count}")));
    }
    let counts: Vec<f32> = counts.into_iter().map(f32::round).collect();
    let of_matrix = |(sums, count): (&[f32], &f32)| -> Vec<f32> {
        let weight = |sum: &f32| if *count > 0.0 { sum / count } else { 1.0 };
        sums.iter().map(weight).collect()
    };
    let weights: Vec<f32> = sums.chunks(columns).zip(&counts).flat_map(of_matrix).collect();
    check(&weights).map_err(fail)?;
    Ok(ImportanceEntry { weights, counts })
}

/// A tensor of f32.
fn read_f32(file: &Gguf, number: usize) -> Result<Vec<f32>> {
    let Some(tensor) = file.tensors().get(number) else { return Ok(Vec::new()) };
    if tensor.dtype != DType::F32 {
        let problem = format!("expected f32, found {}", tensor.dtype);
        return Err(Error::new(file.path(), problem).at(format!("tensor {}", quote(&tensor.name))).help(HELP));
    }
    let mut bytes = vec![0; usize::try_from(tensor.bytes).unwrap_or(0)];
    file.read(number, 0, &mut bytes)?;
    Ok(f32s(&bytes))
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[allow(clippy::as_conversions, reason = "rounding to the nearest f32 is what is meant")]
fn as_f32(calls: i32) -> f32 {
    calls as f32
}

/// The problem with weights that are not finite, or negative.
fn check(weights: &[f32]) -> std::result::Result<(), String> {
    match weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
        Some(weight) => Err(format!("expected finite importance of 0 or more, found {weight}")),
        None => Ok(()),
    }
}

/// Bytes of the smallest entry: the length of a name, one byte of it, calls, the number of values, and one value.
const LEGACY_ENTRY_BYTES_MIN: u64 = 17;
/// Models have fewer tensors. The first four letters of a text are a greater number.
const LEGACY_ENTRIES_PLAUSIBLE: u64 = 1 << 20;

/// The format before GGUF, without a magic number.
fn read_legacy(source: SourceFile) -> Result<Importance> {
    let mut reader = Reader::new(&source, u64::MAX);
    let positive = |reader: &mut Reader, what: &str| {
        let number = reader.i32(&what)?;
        u64::try_from(number)
            .ok()
            .filter(|number| *number > 0)
            .ok_or_else(|| reader.error(&what, format!("expected a positive number, found {number}")).help(HELP))
    };
    let count = positive(&mut reader, "number of entries")?;
    // The format has no magic number: a file of another kind is one that is too small for what its first bytes say.
    if count.saturating_mul(LEGACY_ENTRY_BYTES_MIN) > reader.remaining() {
        let problem = match count {
            0..LEGACY_ENTRIES_PLAUSIBLE => {
                format!("expected an importance matrix, found a file too small for its {count} entries")
            }
            _ => "expected an importance matrix (GGUF or .dat), found a file in another format".to_owned(),
        };
        return Err(Error::new(source.path(), problem).help(HELP));
    }
    let mut entries = BTreeMap::new();
    for _ in 0..count {
        let length = positive(&mut reader, "length of a name")?;
        let name = reader.text(length, &"name")?;
        let calls = reader.i32(&"number of calls")?;
        let values = positive(&mut reader, "number of values")?;
        let bytes = reader.bytes(values.saturating_mul(4), &"values")?;
        if calls < 0 {
            let problem = format!("expected 0 or more calls, found {calls}");
            let error = Error::new(source.path(), problem).at(format!("entry {}", quote(&name)));
            return Err(error.help("compute the importance matrix again"));
        }
        // As in llama.cpp, the sums of an entry without calls are not divided.
        let divisor = if calls > 0 { as_f32(calls) } else { 1.0 };
        let weights: Vec<f32> = f32s(&bytes).into_iter().map(|value| value / divisor).collect();
        check(&weights).map_err(|problem| {
            Error::new(source.path(), problem).at(format!("entry {}", quote(&name))).help("compute the file again")
        })?;
        let entry = ImportanceEntry { weights, counts: Vec::new() };
        if entries.insert(name.clone(), entry).is_some() {
            let problem = format!("expected each name once, found {} twice", quote(&name));
            return Err(Error::new(source.path(), problem).help("compute the file again"));
        }
    }
    let mut chunks = 0;
    let mut data_sets = Vec::new();
    if reader.remaining() >= 4 {
        chunks = u64::try_from(reader.i32(&"number of chunks")?).unwrap_or(0);
        if reader.remaining() >= 4 {
            let length = u64::try_from(reader.i32(&"length of the data set's name")?).unwrap_or(0);
            data_sets.push(reader.text(length, &"name of the data set")?);
        }
    }
    let rest = reader.remaining();
    if rest > 0 {
        let problem = format!("expected the end of the file, found {} more", counted(rest, "byte"));
        return Err(Error::new(source.path(), problem).help(HELP));
    }
    data_sets.retain(|name| !name.is_empty());
    let name = name_of(&source);
    Ok(Importance { name, source, data_sets, chunks, entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A legacy file with these entries: name, calls, values.
    fn legacy(entries: &[(&str, i32, &[f32])], tail: &[u8]) -> Vec<u8> {
        let length = |length: usize| i32::try_from(length).unwrap().to_le_bytes().to_vec();
        let mut bytes = length(entries.len());
        for (name, calls, values) in entries {
            bytes.extend([length(name.len()), name.as_bytes().to_vec(), calls.to_le_bytes().to_vec()].concat());
            bytes.extend(length(values.len()));
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        [bytes, tail.to_vec()].concat()
    }

    fn open(bytes: &[u8]) -> Result<Importance> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("importance");
        std::fs::write(&path, bytes).unwrap();
        Importance::open(path)
    }

    #[test]
    fn legacy_values_are_divided_by_their_calls() {
        let tail = [&5i32.to_le_bytes()[..], &4i32.to_le_bytes(), b"text"].concat();
        let file = open(&legacy(&[("a.weight", 4, &[1.0, 2.0, 4.0, 4.0]), ("b.weight", 0, &[0.5])], &tail)).unwrap();
        let entry = &file.entries()["a.weight"];
        assert_eq!(entry.weights(), [0.25, 0.5, 1.0, 1.0]);
        assert_eq!((entry.unseen(2), entry.unseen(1)), (vec![1], vec![]));
        assert_eq!(file.entries()["b.weight"].weights(), [0.5]);
        assert_eq!((file.chunks(), file.data_sets()), (5, ["text".to_owned()].as_slice()));
        let short = open(&legacy(&[("a.weight", 1, &[1.0])], &[])).unwrap();
        assert_eq!((short.chunks(), short.data_sets().len()), (0, 0));
    }

    #[test]
    fn damaged_files_are_refused_in_one_sentence() {
        let whole = legacy(&[("a.weight", 4, &[1.0, 2.0])], &[]);
        let twice = legacy(&[("a.weight", 1, &[1.0]), ("a.weight", 1, &[1.0])], &[]);
        let many = [&i32::MAX.to_le_bytes()[..], &whole[4..]].concat();
        let cases: [(Vec<u8>, &str); 11] = [
            (Vec::new(), "number of entries"),
            (b"GGUF".to_vec(), ""),
            (0i32.to_le_bytes().to_vec(), "expected a positive number, found 0"),
            ((-1i32).to_le_bytes().to_vec(), "expected a positive number, found -1"),
            (many, "expected an importance matrix (GGUF or .dat), found a file in another format"),
            (whole[..whole.len() - 1].to_vec(), "values"),
            (twice, "expected each name once, found a.weight twice"),
            (legacy(&[("a.weight", 1, &[1.0, f32::NAN])], &[]), "expected finite importance of 0 or more, found NaN"),
            (legacy(&[("a.weight", 1, &[-1.0])], &[]), "expected finite importance of 0 or more, found -1"),
            (legacy(&[("a.weight", -2, &[1.0])], &[]), "entry a.weight: expected 0 or more calls, found -2"),
            ([&whole[..], &[0; 3]].concat(), "expected the end of the file, found 3 bytes more"),
        ];
        for (bytes, part) in cases {
            let error = open(&bytes).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
