//! Differences between an attestation and files, one sentence each.

use super::{Attestation, Resource, TensorRecord, bytes, output_bytes, records};
use crate::manifest::{hash_file, hash_tensors_started};
use std::path::Path;
use trueup_formats::{Checkpoint, Gguf, Importance, Result, SourceFile, counted, quote};
use trueup_quantize::{Progress, Report};

const SOURCE_HELP: &str = "pass the source model of the attested run with --source";
const MATRIX_HELP: &str = "pass the importance matrix of the attested run with --imatrix";

impl Attestation {
    /// Inputs whose contents differ from those of the run. `importance` must be given if and only if the run used an
    /// importance matrix. `progress` counts the bytes that are hashed.
    ///
    /// # Errors
    /// I/O.
    pub fn compare_inputs(
        &self,
        source: &dyn Checkpoint,
        importance: Option<&Importance>,
        progress: &dyn Progress,
    ) -> Result<Vec<String>> {
        let (model, matrix) = self.inputs();
        let files = source.sources();
        let matrices = importance.map(Importance::source).zip(matrix);
        let matrices = matrices.map(|(file, expected)| (file, expected, MATRIX_HELP));
        let model_files = files.iter().zip(model).map(|(file, expected)| (*file, expected, SOURCE_HELP));
        let compared: Vec<(&SourceFile, &Resource, &str)> = model_files.chain(matrices).collect();
        progress.start(bytes(compared.iter().map(|(file, ..)| *file)));
        let mut differences = Vec::new();
        if files.len() != model.len() {
            let (expected, found) = (counted(model.len(), "file"), counted(files.len(), "file"));
            differences.push(format!("the model: expected {expected}, found {found}"));
        }
        for (file, expected, help) in compared {
            let difference = compare_file(file, expected, &input_name(file, expected), progress)?;
            differences.extend(difference.map(|difference| format!("{difference}; {help}")));
        }
        Ok(differences)
    }

    /// Differences between a repeated run and the attested results. `output` is the file that the repeated run wrote,
    /// and `report` is its report. Tensors are compared even if the file is identical; the first difference is named.
    /// `progress` counts hashed bytes. Tensors count twice: in the hash of the file and in their own.
    ///
    /// # Errors
    /// I/O, and an output that is not a GGUF file.
    pub fn compare_output(
        &self,
        (output, report): (&Path, &Report),
        threads: Option<usize>,
        progress: &dyn Progress,
    ) -> Result<Vec<String>> {
        let Some(expected) = self.subject.first() else { return Ok(Vec::new()) };
        let written = Gguf::open(output)?;
        progress.start(output_bytes(&written));
        let file = compare_file(&SourceFile::open(output)?, &expected.file, &quote(&expected.file.name), progress)?;
        let found = records(report, &hash_tensors_started(&written, threads, progress)?);
        let are_notes_compared = self.version() == env!("CARGO_PKG_VERSION");
        let tensors = compare_tensors(&expected.annotations.tensors, &found, are_notes_compared);
        let rest = || "all tensors are equal; the metadata or the order of the tensors differs".to_owned();
        let tensors = tensors.or_else(|| file.is_some().then(rest));
        Ok(file.into_iter().chain(tensors).collect())
    }
}

/// A sentence about the tensors that differ, if any. Notes are prose, which can change between versions, so they are
/// compared only on request.
fn compare_tensors(attested: &[TensorRecord], found: &[TensorRecord], are_notes_compared: bool) -> Option<String> {
    if attested.len() != found.len() {
        return Some(format!("expected {}, as attested, found {}", counted(attested.len(), "tensor"), found.len()));
    }
    let difference = |(attested, found): (&TensorRecord, &TensorRecord)| {
        let what = attested.difference(found, are_notes_compared)?;
        Some(format!("{}: {what}", quote(&attested.name)))
    };
    let differences: Vec<String> = attested.iter().zip(found).filter_map(difference).collect();
    let first = differences.first()?;
    let (all, verb) = (counted(attested.len(), "tensor"), if differences.len() == 1 { "differs" } else { "differ" });
    Some(format!("{} of {all} {verb} from the attestation; the first is {first}", differences.len()))
}

impl TensorRecord {
    /// The first field in which another record differs.
    fn difference(&self, found: &TensorRecord, are_notes_compared: bool) -> Option<String> {
        let hash = |hash: &Option<String>| hash.clone().unwrap_or_else(|| "none".to_owned());
        let texts = [
            ("name", self.name.clone(), found.name.clone()),
            ("shape", format!("{:?}", self.shape), format!("{:?}", found.shape)),
            ("source_type", self.source_type.clone(), found.source_type.clone()),
            ("type", self.dtype.clone(), found.dtype.clone()),
            ("bytes", self.bytes.to_string(), found.bytes.to_string()),
            ("sha256", self.sha256.clone(), found.sha256.clone()),
            ("scale_sha256", hash(&self.scale_sha256), hash(&found.scale_sha256)),
        ];
        let notes = are_notes_compared.then(|| ("note", self.note.clone(), found.note.clone()));
        let mut texts = texts.into_iter().chain(notes);
        if let Some((field, attested, found)) = texts.find(|(_, attested, found)| attested != found) {
            return Some(format!("{field}: expected {}, found {}", quote(&attested), quote(&found)));
        }
        let losses = [
            ("rmse", self.rmse, found.rmse),
            ("cosine", self.cosine, found.cosine),
            ("max_error", self.max_error, found.max_error),
        ];
        let (field, attested, found) = losses.into_iter().find(|(_, attested, found)| !is_near(*attested, *found))?;
        let shown = |loss: Option<f64>| loss.map_or_else(|| "none".to_owned(), |loss| loss.to_string());
        Some(format!("{field}: expected {}, found {}", shown(attested), shown(found)))
    }
}

/// Whether two losses are equal, apart from the rounding of numbers in JSON.
fn is_near(attested: Option<f64>, found: Option<f64>) -> bool {
    match (attested, found) {
        (Some(attested), Some(found)) => attested == found || (attested - found).abs() <= 1e-12 * found.abs(),
        (attested, found) => attested == found,
    }
}

/// The attested name of an input, with the path of the file that is compared if its name differs.
fn input_name(file: &SourceFile, expected: &Resource) -> String {
    let attested = quote(&expected.name);
    if file.path().file_name() == Some(expected.name.as_ref()) {
        return attested;
    }
    format!("{} (attested as {attested})", quote(&file.path().to_string_lossy()))
}

/// A sentence that `name` has another hash than attested; `None` if the hashes are equal.
fn compare_file(file: &SourceFile, expected: &Resource, name: &str, progress: &dyn Progress) -> Result<Option<String>> {
    let found = hash_file(file, &mut |bytes| progress.advance(bytes))?;
    let expected_hash = &expected.digest.sha256;
    Ok((found != *expected_hash).then(|| format!("{name}: expected SHA-256 {expected_hash}, found {found}")))
}
