//! What differs between an attestation and files: a sentence each.

use super::{Attestation, Resource, TensorRecord};
use crate::manifest::{TensorHash, hash_file, hash_tensors_on};
use std::collections::HashMap;
use std::path::Path;
use trueup_formats::{Checkpoint, Gguf, Importance, Result, SCALE_SUFFIX, SourceFile, counted, quote};

impl Attestation {
    /// Inputs whose contents are not those of the run. `importance` must be given if and only if the run had one.
    ///
    /// # Errors
    /// I/O.
    pub fn compare_inputs(&self, source: &dyn Checkpoint, importance: Option<&Importance>) -> Result<Vec<String>> {
        let (model, matrix) = self.inputs();
        let files = source.sources();
        let mut differences = Vec::new();
        if files.len() != model.len() {
            let (expected, found) = (counted(model.len(), "file"), counted(files.len(), "file"));
            differences.push(format!("the model: expected {expected}, found {found}"));
        }
        for (file, expected) in files.into_iter().zip(model) {
            differences.extend(compare_file(file, expected)?);
        }
        if let (Some(file), Some(expected)) = (importance, matrix) {
            differences.extend(compare_file(file.source(), expected)?);
        }
        Ok(differences)
    }

    /// Whether a file is the output of the run. If it is not, the first tensor that differs is named.
    ///
    /// # Errors
    /// I/O, and an output that is not a GGUF file.
    pub fn compare_output(&self, output: &Path, threads: Option<usize>) -> Result<Vec<String>> {
        let Some(expected) = self.subject.first() else { return Ok(Vec::new()) };
        let Some(difference) = compare_file(&SourceFile::open(output)?, &expected.file)? else { return Ok(Vec::new()) };
        let hashes = hash_tensors_on(&Gguf::open(output)?, threads)?;
        Ok(vec![difference, compare_tensors(&expected.annotations.tensors, &hashes)])
    }
}

/// How tensors differ, if the files do.
fn compare_tensors(recorded: &[TensorRecord], hashes: &[TensorHash]) -> String {
    let found: HashMap<&str, &str> = hashes.iter().map(|hash| (hash.name.as_str(), hash.sha256.as_str())).collect();
    let is_other = |record: &&TensorRecord| {
        let scale = found.get(format!("{}{SCALE_SUFFIX}", record.name).as_str());
        found.get(record.name.as_str()) != Some(&record.sha256.as_str())
            || scale.copied() != record.scale_sha256.as_deref()
    };
    let others: Vec<&TensorRecord> = recorded.iter().filter(is_other).collect();
    let Some(first) = others.first() else {
        return "all tensors are equal; the metadata or the order of the tensors differs".to_owned();
    };
    let name = quote(&first.name);
    let what = if found.contains_key(first.name.as_str()) { "differs" } else { "is missing" };
    let all = counted(recorded.len(), "tensor");
    format!("{} of {all} differ; the first is {name}, which {what} (attested as {})", others.len(), first.dtype)
}

/// The sentence on a file that does not have the attested contents.
fn compare_file(file: &SourceFile, expected: &Resource) -> Result<Option<String>> {
    let found = hash_file(file)?;
    let expected_hash = &expected.digest.sha256;
    let name = quote(&expected.name);
    Ok((found != *expected_hash).then(|| format!("{name}: expected SHA-256 {expected_hash}, found {found}")))
}
