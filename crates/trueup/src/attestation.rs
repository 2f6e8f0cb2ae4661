//! Attestations: documents that state from which inputs and with which options a quantized file was written. Repeating
//! the run checks them.
//!
//! ```text
//! quantize ──▶ output                 reproduce ──▶ inputs: same hashes? ──▶ quantize again ──▶ same results?
//!     └──────▶ attestation ─────────────────┘
//! ```
//!
//! The document is an in-toto Statement v1 with a SLSA provenance v1 predicate. It contains no time, no directory and
//! no machine name, so the same run writes the same bytes. docs/attestation.md describes every field.

mod compare;

use crate::manifest::{TensorHash, hash_file, hash_tensors_started};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use trueup_formats::{Checkpoint, Error, Gguf, Importance, Result, SCALE_SUFFIX, SourceFile, counted, json, quote};
use trueup_quantize::{ImportanceOptions, Layout, Options, Progress, Recipe, RecipeParameters, Report, TensorReport};

/// `_type` of the document.
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// `predicateType` of the document.
const PREDICATE_TYPE: &str = "https://slsa.dev/provenance/v1";
/// `buildType`: defines the meaning of the parameters.
const BUILD_TYPE: &str = "urn:trueup:quantize:v1";
/// `builder.id`.
const BUILDER: &str = "urn:trueup";
/// Key of the program's version in `builder.version`.
const PROGRAM: &str = "trueup";

/// The largest attestation that is read, in bytes.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// Remedy for a file that is not an attestation.
const HELP: &str = "pass a file that `trueup quantize --attest` wrote";

/// An attestation: the statement that `trueup quantize` wrote a file from given inputs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Attestation {
    #[serde(rename = "_type")]
    statement_type: String,
    /// The output.
    subject: Vec<Output>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: Predicate,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Predicate {
    build_definition: BuildDefinition,
    run_details: RunDetails,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BuildDefinition {
    build_type: String,
    external_parameters: Parameters,
    /// The files of the model, then the importance matrix.
    resolved_dependencies: Vec<Resource>,
}

/// Everything that decides the bytes of the output, in addition to the inputs and the version of the program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// The name of the first file of the model.
    source: String,
    recipe: RecipeParameters,
    layout: Layout,
    importance: Option<ImportanceParameters>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImportanceParameters {
    /// The file name of the importance matrix, which the metadata of the output contains.
    file: String,
    allow_partial: bool,
    exact: bool,
}

/// An output file and its tensors.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Output {
    #[serde(flatten)]
    file: Resource,
    annotations: Annotations,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Annotations {
    tensors: Vec<TensorRecord>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Resource {
    name: String,
    digest: Digest,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Digest {
    sha256: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct RunDetails {
    builder: Builder,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Builder {
    id: String,
    version: BTreeMap<String, String>,
}

/// Types, size, loss and hash of one tensor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct TensorRecord {
    name: String,
    shape: Vec<u64>,
    source_type: String,
    #[serde(rename = "type")]
    dtype: String,
    bytes: u64,
    rmse: Option<f64>,
    cosine: Option<f64>,
    max_error: Option<f64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    note: String,
    /// Hash of the tensor's bytes in the output.
    sha256: String,
    /// Hash of the scales, if they are a separate tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale_sha256: Option<String>,
}

/// The fields that identify the kind of a document.
#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "_type", default)]
    statement_type: Option<String>,
    #[serde(rename = "predicateType", default)]
    predicate_type: Option<String>,
    /// Present in signed DSSE envelopes only.
    #[serde(rename = "payloadType", default)]
    payload_type: Option<String>,
}

impl Attestation {
    /// Attests a run of [`trueup_quantize::quantize_with`] that has just written `output`. Reads all inputs and the
    /// output. `progress` counts hashed bytes. Tensors of the output count twice: in the hash of the file and in their
    /// own.
    ///
    /// # Errors
    /// I/O, or an input that changed after it was opened.
    pub fn new(
        source: &dyn Checkpoint,
        importance: Option<&ImportanceOptions>,
        options: &Options,
        (output, report): (&Path, &Report),
        progress: &dyn Progress,
    ) -> Result<Attestation> {
        let inputs: Vec<&SourceFile> =
            source.sources().into_iter().chain(importance.map(|importance| importance.file.source())).collect();
        let written = Gguf::open(output)?;
        progress.start(bytes(inputs.iter().copied()).saturating_add(output_bytes(&written)));
        let resource = |file: &SourceFile| resource(file, progress);
        let mut resolved_dependencies = inputs.par_iter().map(|input| resource(input)).collect::<Result<Vec<_>>>()?;
        inputs.iter().try_for_each(|input| input.unchanged())?;
        if let (Some(importance), Some(last)) = (importance, resolved_dependencies.last_mut()) {
            importance.file.name().clone_into(&mut last.name);
        }
        let tensors = records(report, &hash_tensors_started(&written, options.threads, progress)?);
        let subject = |file: &SourceFile| {
            Ok(Output { file: resource(file)?, annotations: Annotations { tensors: tensors.clone() } })
        };
        let subject = written.sources().into_iter().map(subject).collect::<Result<Vec<_>>>()?;
        let parameters = Parameters {
            source: resolved_dependencies.first().map(|first| first.name.clone()).unwrap_or_default(),
            recipe: options.recipe.parameters(),
            layout: options.layout,
            importance: importance.map(|importance| ImportanceParameters {
                file: importance.file.name().to_owned(),
                allow_partial: importance.allow_partial,
                exact: importance.exact,
            }),
        };
        let version = BTreeMap::from([(PROGRAM.to_owned(), env!("CARGO_PKG_VERSION").to_owned())]);
        Ok(Attestation {
            statement_type: STATEMENT_TYPE.to_owned(),
            subject,
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate: Predicate {
                build_definition: BuildDefinition {
                    build_type: BUILD_TYPE.to_owned(),
                    external_parameters: parameters,
                    resolved_dependencies,
                },
                run_details: RunDetails { builder: Builder { id: BUILDER.to_owned(), version } },
            },
        })
    }

    /// Reads an attestation that trueup wrote.
    ///
    /// # Errors
    /// A file that is not JSON, another kind of document, fields with wrong types, unknown parameters, file names that
    /// contain a directory, or hashes that are not SHA-256.
    pub fn read(path: impl AsRef<Path>) -> Result<Attestation> {
        let file = SourceFile::open(path.as_ref())?;
        let bytes = file.read_all(FILE_BYTES_MAX)?;
        check_kind(file.path(), json::typed(file.path(), &bytes).map_err(|error| error.help(HELP))?)?;
        let attestation: Attestation = json::typed(file.path(), &bytes).map_err(|error| error.help(HELP))?;
        attestation.check(file.path())?;
        Ok(attestation)
    }

    /// The attestation as JSON text.
    ///
    /// # Errors
    /// None in practice: every attestation can be written as JSON.
    pub fn to_document(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|error| Error::new(self.output_name(), format!("no JSON: {error}")))
    }

    /// The name of the output.
    pub fn output_name(&self) -> &str {
        self.subject.first().map_or("", |output| output.file.name.as_str())
    }

    /// The version of trueup that wrote the output.
    pub fn version(&self) -> &str {
        self.predicate.run_details.builder.version.get(PROGRAM).map_or("", String::as_str)
    }

    /// The path of the model if its files are in `folder`.
    pub fn source_in(&self, folder: &Path) -> PathBuf {
        folder.join(&self.parameters().source)
    }

    /// The path of the importance matrix if it is in `folder`; `None` if none was used.
    pub fn importance_in(&self, folder: &Path) -> Option<PathBuf> {
        Some(folder.join(&self.parameters().importance.as_ref()?.file))
    }

    /// The options of the run, for `threads` threads. `path` is the path of the attestation, for error messages.
    ///
    /// # Errors
    /// Types and rules that this version of trueup cannot read.
    pub fn options(&self, path: &Path, threads: Option<usize>) -> Result<Options> {
        let Parameters { recipe, layout, .. } = self.parameters();
        let place = "predicate.buildDefinition.externalParameters.recipe";
        let recipe = Recipe::of_parameters(recipe).map_err(|error| Error::new(path, error.0).at(place).help(HELP))?;
        Ok(Options { recipe, layout: *layout, threads, dry_run: false, resume: false })
    }

    /// Options that use an importance matrix as the run did; `None` if the run used none.
    pub fn importance(&self, file: Importance) -> Option<ImportanceOptions> {
        let parameters = self.parameters().importance.as_ref()?;
        let file = file.named(parameters.file.as_str());
        Some(ImportanceOptions { file, allow_partial: parameters.allow_partial, exact: parameters.exact })
    }

    fn parameters(&self) -> &Parameters {
        &self.predicate.build_definition.external_parameters
    }

    /// The files of the model and the importance matrix, if one was used.
    fn inputs(&self) -> (&[Resource], Option<&Resource>) {
        let all = self.predicate.build_definition.resolved_dependencies.as_slice();
        match (all.split_last(), &self.parameters().importance) {
            (Some((last, model)), Some(_)) => (model, Some(last)),
            _ => (all, None),
        }
    }

    /// Checks what the types of the fields do not guarantee.
    fn check(&self, path: &Path) -> Result<()> {
        let BuildDefinition { build_type, resolved_dependencies: inputs, .. } = &self.predicate.build_definition;
        expect(path, "predicate.buildDefinition.buildType", BUILD_TYPE, Some(build_type))?;
        let wrong = |place: &str, expected: &str, found: &str| {
            let problem = format!("expected {expected}, found {found}");
            Err(Error::new(path, problem).at(place).help(HELP))
        };
        let [output] = self.subject.as_slice() else {
            return wrong("subject", "1 output", &self.subject.len().to_string());
        };
        let (model, importance) = self.inputs();
        let Some(first) = model.first() else {
            let and_matrix = if importance.is_some() { " and an importance matrix" } else { "" };
            let expected = format!("a model{and_matrix}");
            return wrong("predicate.buildDefinition.resolvedDependencies", &expected, &counted(inputs.len(), "file"));
        };
        let inputs = inputs.iter().enumerate();
        let inputs =
            inputs.map(|(index, file)| (format!("predicate.buildDefinition.resolvedDependencies[{index}]"), file));
        let files: Vec<_> = std::iter::once(("subject[0]".to_owned(), &output.file)).chain(inputs).collect();
        if let Some((place, file)) = files.iter().find(|(_, file)| !is_plain(&file.name)) {
            return wrong(&format!("{place}.name"), "a file name without a directory", &quote(&file.name));
        }
        let Parameters { source, importance: used, .. } = self.parameters();
        let named = importance.zip(used.as_ref()).map(|(file, used)| ("importance.file", &used.file, &file.name));
        for (field, name, expected) in std::iter::once(("source", source, &first.name)).chain(named) {
            if name != expected {
                let place = format!("predicate.buildDefinition.externalParameters.{field}");
                return wrong(&place, &format!("{}, as in resolvedDependencies", quote(expected)), &quote(name));
            }
        }
        let of_files = files.iter().map(|(place, file)| (format!("{place}.digest.sha256"), &file.digest.sha256));
        let of_tensors = output.annotations.tensors.iter().enumerate().flat_map(|(index, tensor)| {
            let place = format!("subject[0].annotations.tensors[{index}]");
            let scales = tensor.scale_sha256.iter().map(|hash| ("scale_sha256", hash));
            let hashes = std::iter::once(("sha256", &tensor.sha256)).chain(scales);
            hashes.map(|(field, hash)| (format!("{place}.{field}"), hash)).collect::<Vec<_>>()
        });
        match of_files.chain(of_tensors).find(|(_, hash)| !is_sha256(hash)) {
            Some((place, hash)) => wrong(&place, "64 lower-case hexadecimal digits", &quote(hash)),
            None => Ok(()),
        }
    }
}

/// Whether a text is the name of a file, without a directory.
fn is_plain(name: &str) -> bool {
    Path::new(name).file_name() == Some(name.as_ref()) && !name.contains('\0')
}

fn is_sha256(hash: &str) -> bool {
    hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl TensorRecord {
    fn new(tensor: &TensorReport, hashes: &HashMap<&str, &str>) -> TensorRecord {
        let hash = |name: &str| hashes.get(name).map(|hash| (*hash).to_owned());
        TensorRecord {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            source_type: tensor.source_type.to_owned(),
            dtype: tensor.dtype.to_owned(),
            bytes: tensor.bytes,
            rmse: tensor.rmse,
            cosine: tensor.cosine,
            max_error: tensor.max_error,
            note: tensor.note.clone(),
            sha256: hash(&tensor.name).unwrap_or_default(),
            scale_sha256: hash(&format!("{}{SCALE_SUFFIX}", tensor.name)),
        }
    }
}

/// One record for each tensor of a run, with its hash in the output.
fn records(report: &Report, hashes: &[TensorHash]) -> Vec<TensorRecord> {
    let hashes = hashes.iter().map(|hash| (hash.name.as_str(), hash.sha256.as_str())).collect();
    report.tensors.iter().map(|tensor| TensorRecord::new(tensor, &hashes)).collect()
}

/// Total size of the files, in bytes.
fn bytes<'a>(files: impl Iterator<Item = &'a SourceFile>) -> u64 {
    files.map(SourceFile::bytes).fold(0, u64::saturating_add)
}

/// Bytes to hash for an output: the whole file, then each tensor.
fn output_bytes(written: &Gguf) -> u64 {
    let tensors = written.tensors().iter().map(|tensor| tensor.bytes);
    tensors.fold(bytes(written.sources().into_iter()), u64::saturating_add)
}

/// The name and the hash of a file.
fn resource(file: &SourceFile, progress: &dyn Progress) -> Result<Resource> {
    let name = file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Resource { name, digest: Digest { sha256: hash_file(file, &mut |bytes| progress.advance(bytes))? } })
}

/// Rejects other kinds of documents before their fields are read.
fn check_kind(path: &Path, kind: Kind) -> Result<()> {
    if let (None, Some(payload)) = (&kind.statement_type, &kind.payload_type) {
        let problem = format!("expected an in-toto statement, found a signed envelope of {}", quote(payload));
        return Err(Error::new(path, problem).help("verify its signature, and pass the decoded `payload`"));
    }
    expect(path, "_type", STATEMENT_TYPE, kind.statement_type.as_deref())?;
    expect(path, "predicateType", PREDICATE_TYPE, kind.predicate_type.as_deref())
}

fn expect(path: &Path, place: &str, expected: &str, found: Option<&str>) -> Result<()> {
    if found == Some(expected) {
        return Ok(());
    }
    let found = found.map_or_else(|| "nothing".to_owned(), quote);
    Err(Error::new(path, format!("expected {expected}, found {found}")).at(place).help(HELP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use trueup_blocks::DType;
    use trueup_formats::gguf::{GgufPlan, GgufWriter, Metadata};
    use trueup_formats::{OpenOptions, TensorInfo, open};
    use trueup_quantize::{NoProgress, quantize};

    /// Total and reported bytes.
    #[derive(Default)]
    struct Counter {
        total: AtomicU64,
        done: AtomicU64,
    }

    impl Progress for Counter {
        fn start(&self, total_bytes: u64) {
            self.total.fetch_add(total_bytes, Ordering::Relaxed);
        }

        fn advance(&self, bytes: u64) {
            self.done.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    impl Counter {
        fn counts(&self) -> (u64, u64) {
            (self.total.load(Ordering::Relaxed), self.done.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn progress_counts_every_hashed_byte() {
        let folder = tempfile::tempdir().unwrap();
        let [model, output] = ["model.gguf", "output.gguf"].map(|name| folder.path().join(name));
        let infos: Vec<TensorInfo> = ["a.weight", "b.weight"]
            .iter()
            .map(|name| TensorInfo::new(*name, &[1024, 300], DType::F32).unwrap())
            .collect();
        let writer = GgufWriter::create(GgufPlan::new(&model, &Metadata::default(), &infos, None).unwrap(), &[]);
        let writer = writer.unwrap();
        (0..2).for_each(|tensor| writer.write(tensor, 0, &[0x3E; 1024 * 300 * 4]).unwrap());
        writer.finish().unwrap();
        let source = open(&model, &OpenOptions::default()).unwrap();
        let recipe = Recipe::new(Some(DType::Q8_0)).pure(true);
        let options = Options { recipe, layout: Layout::Block, threads: Some(2), dry_run: false, resume: false };
        let report = quantize(source.as_ref(), &output, &options, &NoProgress).unwrap();

        let of_source = std::fs::metadata(&model).unwrap().len();
        // q8_0 has 34 bytes for 32 weights. Tensors are hashed in addition to the file.
        let of_output = std::fs::metadata(&output).unwrap().len() + 2 * 1024 * 300 / 32 * 34;
        let counter = Counter::default();
        let attestation = Attestation::new(source.as_ref(), None, &options, (&output, &report), &counter).unwrap();
        assert_eq!(counter.counts(), (of_source + of_output, of_source + of_output));
        let counter = Counter::default();
        assert_eq!(attestation.compare_inputs(source.as_ref(), None, &counter).unwrap(), [""; 0]);
        assert_eq!(counter.counts(), (of_source, of_source));
        let counter = Counter::default();
        assert_eq!(attestation.compare_output((&output, &report), Some(2), &counter).unwrap(), [""; 0]);
        assert_eq!(counter.counts(), (of_output, of_output));
    }
}
