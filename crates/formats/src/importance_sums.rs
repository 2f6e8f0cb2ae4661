//! Sums from which importance matrices follow, as a run collects, saves and continues them.
//!
//! ```text
//! general.type = "imatrix"   imatrix.datasets [text]   imatrix.chunk_count u32   imatrix.chunk_size u32
//! trueup.imatrix.model text   .model_hash text   .text_hash text   .output_head bool
//! NAME.in_sum2 f32 [columns, matrices]   NAME.counts f32 [1, matrices]      sorted by NAME; 1 matrix: [columns], [1]
//! ```
//!
//! The layout is that of the GGUF files of llama.cpp's imatrix program. [`crate::Importance`] reads the weights that
//! follow from the sums.

use crate::checkpoint::{Checkpoint, TensorInfo};
use crate::error::{Error, Result, quote};
use crate::gguf::{Gguf, GgufPlan, GgufWriter, Metadata};
use std::collections::BTreeMap;
use std::path::Path;
use trueup_blocks::DType;

/// Keys that only trueup reads: the model's file name, and what a run that continues this one must agree with.
const MODEL: &str = "trueup.imatrix.model";
const MODEL_HASH: &str = "trueup.imatrix.model_hash";
const TEXT_HASH: &str = "trueup.imatrix.text_hash";
const OUTPUT_HEAD: &str = "trueup.imatrix.output_head";

const HELP: &str = "pass a file that `trueup imatrix` wrote, or choose another path for the output";

/// What was collected so far.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct ImportanceSums {
    /// File name of the model; empty if another program wrote the file.
    pub model: String,
    /// SHA-256 of the model's files; empty if the file does not say.
    pub model_hash: String,
    /// Name of the text.
    pub data_set: String,
    /// Hash of the ids of the chunks that were computed; empty if the file does not say.
    pub text_hash: String,
    /// Whether the inputs of the output head are summed.
    pub output_head: bool,
    /// Tokens of a chunk.
    pub chunk_size: u32,
    /// Chunks that were computed.
    pub chunks: u32,
    /// Sums by the name of the weight.
    pub entries: BTreeMap<String, WeightSums>,
}

/// Sums for one weight.
#[derive(Clone, PartialEq, Debug)]
pub struct WeightSums {
    /// Columns of a matrix.
    pub columns: usize,
    /// For each matrix, the sum of the squares of each column's inputs.
    pub sums: Vec<f32>,
    /// Inputs that each matrix saw.
    pub counts: Vec<u64>,
}

impl WeightSums {
    /// Empty sums of this many matrices.
    pub fn new(columns: usize, matrices: usize) -> WeightSums {
        WeightSums { columns, sums: vec![0.0; columns.saturating_mul(matrices)], counts: vec![0; matrices] }
    }

    /// Adds an input of a matrix. Inputs of other sizes and unknown matrices are ignored.
    pub fn add(&mut self, matrix: usize, input: &[f32]) {
        let start = matrix.saturating_mul(self.columns);
        let sums =
            self.sums.get_mut(start..start.saturating_add(self.columns)).filter(|sums| sums.len() == input.len());
        let (Some(sums), Some(count)) = (sums, self.counts.get_mut(matrix)) else { return };
        for (sum, x) in sums.iter_mut().zip(input) {
            *sum += x * x;
        }
        *count = count.saturating_add(1);
    }

    /// The numbers of the matrices that saw no input.
    pub fn unseen(&self) -> Vec<usize> {
        (0..).zip(&self.counts).filter(|(_, count)| **count == 0).map(|(matrix, _)| matrix).collect()
    }
}

impl ImportanceSums {
    /// Writes the file; it appears under its name when it is complete.
    ///
    /// # Errors
    /// Failures to write.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut metadata = Metadata::default();
        metadata.insert("general.type", "imatrix");
        metadata.insert(MODEL, self.model.as_str());
        metadata.insert(MODEL_HASH, self.model_hash.as_str());
        metadata.insert(TEXT_HASH, self.text_hash.as_str());
        metadata.insert(OUTPUT_HEAD, self.output_head);
        metadata.insert("imatrix.datasets", vec![self.data_set.clone()]);
        metadata.insert("imatrix.chunk_count", self.chunks);
        metadata.insert("imatrix.chunk_size", self.chunk_size);
        let (mut infos, mut data) = (Vec::new(), Vec::new());
        for (name, entry) in &self.entries {
            let shape = |rows: usize| -> Vec<u64> {
                let sizes = [rows, entry.counts.len()].map(|size| u64::try_from(size).unwrap_or(u64::MAX));
                sizes.into_iter().take(if entry.counts.len() == 1 { 1 } else { 2 }).collect()
            };
            infos.push(TensorInfo::new(format!("{name}.in_sum2"), &shape(entry.columns), DType::F32)?);
            data.push(bytes_of(entry.sums.iter().copied()));
            infos.push(TensorInfo::new(format!("{name}.counts"), &shape(1), DType::F32)?);
            data.push(bytes_of(entry.counts.iter().map(|count| to_f32(*count))));
        }
        let writer = GgufWriter::create(GgufPlan::new(path, &metadata, &infos, None)?, &[])?;
        for (number, bytes) in data.iter().enumerate() {
            writer.write(number, 0, bytes)?;
        }
        writer.finish().map(drop)
    }

    /// Reads a file that [`ImportanceSums::write`] wrote.
    ///
    /// # Errors
    /// Another kind of file, and damaged files.
    pub fn read(path: &Path) -> Result<ImportanceSums> {
        let file = Gguf::open(path)?;
        let metadata = file.metadata();
        let wrong = |error: crate::gguf::MetadataError| error.in_file(path).help(HELP);
        let count = |key: &str| {
            let value = metadata.u64(key).map_err(wrong)?;
            let large =
                || Error::new(path, format!("key {key}: expected a number below 2^32, found {value}")).help(HELP);
            u32::try_from(value).map_err(|_| large())
        };
        let data_set = metadata.strings("imatrix.datasets").map_err(wrong)?.first().cloned().unwrap_or_default();
        // Files of other programs lack these keys.
        let text = |key: &str| -> Result<String> {
            let found = metadata.contains(key).then(|| metadata.string(key)).transpose().map_err(wrong)?;
            Ok(found.unwrap_or_default().to_owned())
        };
        let (model, model_hash, text_hash) = (text(MODEL)?, text(MODEL_HASH)?, text(TEXT_HASH)?);
        let output_head = metadata.contains(OUTPUT_HEAD).then(|| metadata.bool(OUTPUT_HEAD)).transpose();
        let output_head = output_head.map_err(wrong)?.unwrap_or_default();
        let (chunks, chunk_size) = (count("imatrix.chunk_count")?, count("imatrix.chunk_size")?);
        let mut entries = BTreeMap::new();
        for (number, tensor) in file.tensors().iter().enumerate() {
            let Some(name) = tensor.name.strip_suffix(".in_sum2") else { continue };
            let damaged =
                |problem: &str| Error::new(path, problem).at(format!("tensor {}", quote(&tensor.name))).help(HELP);
            let counts =
                file.find(&format!("{name}.counts")).ok_or_else(|| damaged("expected counts for these sums"))?;
            let (sums, counts) = (floats(&file, number)?, floats(&file, counts)?);
            let columns = sums.len().checked_div(counts.len()).filter(|columns| *columns > 0);
            let columns = columns.filter(|columns| columns.checked_mul(counts.len()) == Some(sums.len()));
            let columns = columns.ok_or_else(|| damaged("expected a row of sums for each count"))?;
            if !sums.iter().chain(&counts).all(|number| number.is_finite() && *number >= 0.0) {
                return Err(damaged("expected finite sums and counts of at least 0"));
            }
            let counts = counts.into_iter().map(to_count).collect();
            entries.insert(name.to_owned(), WeightSums { columns, sums, counts });
        }
        Ok(ImportanceSums { model, model_hash, data_set, text_hash, output_head, chunk_size, chunks, entries })
    }
}

fn bytes_of(numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    numbers.flat_map(f32::to_le_bytes).collect()
}

/// The elements of an f32 tensor.
fn floats(file: &Gguf, number: usize) -> Result<Vec<f32>> {
    let Some(tensor) = file.tensors().get(number) else {
        return Err(Error::new(file.path(), format!("expected a tensor with number {number}, found none")).help(HELP));
    };
    if tensor.dtype != DType::F32 {
        let problem = format!("expected f32, found {}", tensor.dtype);
        return Err(Error::new(file.path(), problem).at(format!("tensor {}", quote(&tensor.name))).help(HELP));
    }
    let mut bytes = vec![0; usize::try_from(tensor.bytes).unwrap_or(0)];
    file.read(number, 0, &mut bytes)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

#[allow(clippy::as_conversions, reason = "the format stores counts as f32")]
fn to_f32(count: u64) -> f32 {
    count as f32
}

#[allow(clippy::as_conversions, reason = "the number is finite and at least 0; the conversion saturates")]
fn to_count(count: f32) -> u64 {
    count.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Importance;

    fn sums() -> ImportanceSums {
        let (mut dense, mut experts) = (WeightSums::new(2, 1), WeightSums::new(2, 3));
        dense.add(0, &[1.0, 2.0]);
        dense.add(0, &[3.0, 0.5]);
        experts.add(2, &[1.0, 1.0]);
        experts.add(3, &[9.0, 9.0]);
        experts.add(0, &[9.0]);
        let entries = [("blk.0.attn_q.weight".to_owned(), dense), ("blk.0.ffn_up_exps.weight".to_owned(), experts)];
        ImportanceSums {
            model: "m.gguf".to_owned(),
            model_hash: "12ab".to_owned(),
            data_set: "text.txt".to_owned(),
            text_hash: "34cd".to_owned(),
            output_head: true,
            chunk_size: 64,
            chunks: 3,
            entries: entries.into(),
        }
    }

    #[test]
    fn a_written_file_is_read_back_and_gives_mean_squares() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sums.gguf");
        sums().write(&path).unwrap();
        assert_eq!(ImportanceSums::read(&path).unwrap(), sums());
        assert_eq!(sums().entries["blk.0.ffn_up_exps.weight"].unseen(), [0, 1]);
        let importance = Importance::open(&path).unwrap();
        assert_eq!(importance.entries()["blk.0.attn_q.weight"].weights(), [5.0, 2.125]);
        let experts = &importance.entries()["blk.0.ffn_up_exps.weight"];
        assert_eq!(experts.weights(), [1.0; 6]);
        assert_eq!((experts.unseen(3), importance.chunks()), (vec![0, 1], 3));
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sums.gguf");
        let mut damaged = sums();
        damaged.entries.get_mut("blk.0.attn_q.weight").unwrap().sums[0] = f32::NAN;
        damaged.write(&path).unwrap();
        let error = ImportanceSums::read(&path).unwrap_err().to_string();
        assert!(error.contains("blk.0.attn_q.weight.in_sum2: expected finite sums and counts"), "{error}");
        std::fs::write(&path, b"text").unwrap();
        assert!(ImportanceSums::read(&path).is_err());
    }

    /// A key of another type is not read as an absent one.
    #[test]
    fn keys_of_other_types_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (good, path) = (folder.path().join("good.gguf"), folder.path().join("changed.gguf"));
        let sums = ImportanceSums { entries: BTreeMap::new(), ..sums() };
        sums.write(&good).unwrap();
        let changed = |change: &dyn Fn(&mut Metadata)| {
            let mut metadata = Gguf::open(&good).unwrap().metadata().clone();
            change(&mut metadata);
            GgufWriter::create(GgufPlan::new(&path, &metadata, &[], None).unwrap(), &[]).unwrap().finish().unwrap();
            ImportanceSums::read(&path).map_err(|error| error.to_string())
        };
        for (key, value) in [(MODEL, 7u32), (MODEL_HASH, 7), (TEXT_HASH, 7), (OUTPUT_HEAD, 1)] {
            let error = changed(&|metadata| drop(metadata.insert(key, value))).unwrap_err();
            assert!(error.contains(&format!("key {key}: expected a")) && error.contains(HELP), "{error}");
            assert!(changed(&|metadata| drop(metadata.remove(key))).is_ok(), "{key}");
        }
        let error = changed(&|metadata| drop(metadata.insert("imatrix.chunk_size", u64::MAX))).unwrap_err();
        assert!(error.contains("key imatrix.chunk_size: expected a number below 2^32, found"), "{error}");
    }
}
