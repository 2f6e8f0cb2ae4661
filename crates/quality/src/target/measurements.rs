//! The file with the measurements of a model. Types for other targets are chosen from it without new passes.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use trueup_formats::{AtomicFile, Error, Result, SourceFile, hash_file, hexadecimal, json};
use trueup_quantize::Progress;
use trueup_quantize::RecipeParameters;

/// Version of the file format and of the method of measurement.
const VERSION: u32 = 2;

/// Value of the key `format`.
const FORMAT: &str = "trueup measurements for target sizes";

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Everything that measurements depend on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredWith {
    /// SHA-256 of the model's files.
    pub model: String,
    /// SHA-256 of the chunk size, the BOS token and the tokens of the corpus.
    pub corpus: String,
    /// SHA-256 of the importance matrix, if one was used.
    pub imatrix: Option<String>,
    /// Whether the importance matrix is used with `--imatrix-exact`.
    pub imatrix_exact: bool,
    /// Whether it is used with `--allow-partial-imatrix`.
    pub allow_partial_imatrix: bool,
    /// The rules and options that fix the types of tensors.
    pub recipe: RecipeParameters,
    /// The device that computed.
    pub device: String,
    /// Number of tokens in the corpus.
    pub tokens: usize,
}

impl MeasuredWith {
    /// Eight hexadecimal digits that identify these conditions.
    pub fn short_hash(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        let mut hash = hexadecimal(&Sha256::digest(text.as_bytes()));
        hash.truncate(8);
        hash
    }
}

/// All measurements.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurements {
    format: String,
    version: u32,
    /// The conditions of the measurements.
    pub measured_with: MeasuredWith,
    /// KL divergence of the model with all groups in their base types.
    pub(super) base_kl: Option<f32>,
    /// Measurements of each group, by the names of its tensors.
    pub(super) groups: BTreeMap<String, Measured>,
}

/// The measurements of a group.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    /// The sum of squared errors of the weights, by type.
    pub errors: BTreeMap<String, f32>,
    /// By type: the increase of the KL divergence when the group changes from its base type, and its standard error.
    pub kl: BTreeMap<String, [f32; 2]>,
}

impl Measurements {
    /// An empty set of measurements.
    pub fn new(measured_with: MeasuredWith) -> Measurements {
        let (format, version) = (FORMAT.to_owned(), VERSION);
        Measurements { format, version, measured_with, base_kl: None, groups: BTreeMap::new() }
    }

    /// Reads a file, which must contain measurements under the expected conditions.
    ///
    /// # Errors
    /// A damaged file, a file in another format, or measurements under other conditions.
    pub fn read(path: &Path, expected: &MeasuredWith) -> Result<Measurements> {
        const HELP: &str = "choose another file with --measurements, or delete this one to measure again";
        let error = |problem: String| Error::new(path, problem).help(HELP);
        let bytes = SourceFile::open(path)?.read_all(FILE_BYTES_MAX).map_err(|cause| cause.help(HELP))?;
        let value: serde_json::Value = json::typed(path, &bytes).map_err(|cause| cause.help(HELP))?;
        let text = |key: &str| value.get(key).and_then(serde_json::Value::as_str);
        if text("format") != Some(FORMAT) {
            return Err(error("expected a file of measurements, found other JSON".to_owned()));
        }
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(VERSION.into()) {
            let found = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
            return Err(error(format!("expected version {VERSION} of the format, found {found}")));
        }
        let measurements: Measurements = serde_json::from_value(value)
            .map_err(|cause| error(format!("expected measurements, found other contents: {cause}")))?;
        if let Some(problem) = measurements.damage() {
            return Err(error(problem));
        }
        match difference(&measurements.measured_with, expected) {
            None => Ok(measurements),
            Some(what) => {
                Err(error(format!("expected measurements with the same {what} as this run, found different ones")))
            }
        }
    }

    /// Writes the file. At any time, the path refers to a complete file.
    ///
    /// # Errors
    /// I/O.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::new(path, error.to_string()))?;
        let mut file = AtomicFile::create(path, &[])?;
        file.write_all(text.as_bytes())?;
        file.commit()
    }

    /// The first value that no measurement can have.
    fn damage(&self) -> Option<String> {
        let fault = |at: &str, value: f32| Some(format!("{at}: expected a finite number of at least 0, found {value}"));
        if let Some(value) = self.base_kl.filter(|kl| !kl.is_finite()) {
            return Some(format!("base_kl: expected a finite number, found {value}"));
        }
        self.groups.iter().find_map(|(name, group)| {
            let error = group.errors.values().find(|error| !error.is_finite() || **error < 0.0);
            let kl = group.kl.values().find(|[kl, spread]| !kl.is_finite() || !spread.is_finite() || *spread < 0.0);
            error.copied().or(kl.map(|[_, spread]| *spread)).and_then(|value| fault(name, value))
        })
    }
}

/// The first condition that differs.
fn difference(found: &MeasuredWith, expected: &MeasuredWith) -> Option<&'static str> {
    let pairs = [
        ("model", found.model != expected.model),
        ("corpus and --chunks", found.corpus != expected.corpus || found.tokens != expected.tokens),
        ("importance matrix", found.imatrix != expected.imatrix),
        ("--imatrix-exact", found.imatrix_exact != expected.imatrix_exact),
        ("--allow-partial-imatrix", found.allow_partial_imatrix != expected.allow_partial_imatrix),
        ("rules and options for the types of tensors", found.recipe != expected.recipe),
        ("device", found.device != expected.device),
    ];
    pairs.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what)
}

/// SHA-256 of a file, or of the concatenated hashes of several files.
///
/// # Errors
/// I/O.
pub fn hash_files(files: &[&SourceFile], progress: &dyn Progress) -> Result<String> {
    progress.start(files.iter().map(|file| file.bytes()).fold(0, u64::saturating_add));
    let hash = |file: &&SourceFile| hash_file(file, &mut |bytes| progress.advance(bytes));
    let mut hashes = files.iter().map(hash).collect::<Result<Vec<String>>>()?;
    match hashes.len() {
        1 => Ok(hashes.remove(0)),
        _ => Ok(hexadecimal(&Sha256::digest(hashes.concat().as_bytes()))),
    }
}

/// SHA-256 of numbers.
pub(super) fn hash_numbers(numbers: impl Iterator<Item = u32>) -> String {
    let mut hasher = Sha256::new();
    numbers.for_each(|number| hasher.update(number.to_le_bytes()));
    hexadecimal(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn with(model: &str) -> MeasuredWith {
        let text = str::to_owned;
        MeasuredWith {
            model: text(model),
            corpus: text("c"),
            imatrix: None,
            imatrix_exact: false,
            allow_partial_imatrix: false,
            recipe: RecipeParameters::default(),
            device: text("cpu"),
            tokens: 2048,
        }
    }

    /// Counts bytes.
    #[derive(Default)]
    struct Counter(AtomicU64, AtomicU64);

    impl Progress for Counter {
        fn start(&self, total_bytes: u64) {
            self.0.fetch_add(total_bytes, Ordering::Relaxed);
        }

        fn advance(&self, bytes: u64) {
            self.1.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The expected hashes are the output of `printf foo | sha256sum`, and of
    /// `printf "$(printf foo | sha256sum | head -c 64)$(printf barbar | sha256sum | head -c 64)" | sha256sum`.
    #[test]
    fn progress_counts_the_bytes_of_all_hashed_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).unwrap();
            SourceFile::open(folder.path().join(name)).unwrap()
        };
        let (foo, bar) = (file("foo", "foo"), file("bar", "barbar"));
        let counter = Counter::default();
        let hash = hash_files(&[&foo], &counter).unwrap();
        assert_eq!(hash, "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae");
        let hash = hash_files(&[&foo, &bar], &counter).unwrap();
        assert_eq!(hash, "0dc9601d1c9738b99f837ae343824f6c6981ea02f6d3ba7589de1f5448e655bc");
        assert_eq!((counter.0.into_inner(), counter.1.into_inner()), (3 + 9, 3 + 9));
    }

    #[test]
    fn files_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.json");
        let mut measurements = Measurements::new(with("a"));
        let errors = (1..200).map(|number| (format!("t{number}"), 1.0 / number as f32)).collect();
        measurements.groups.insert("g".to_owned(), Measured { errors, ..Measured::default() });
        measurements.base_kl = Some(-1.234_567_9e-5);
        measurements.write(&path).unwrap();
        assert_eq!(Measurements::read(&path, &with("a")).unwrap(), measurements);
        let error = Measurements::read(&path, &with("b")).unwrap_err().to_string();
        assert!(
            error.contains(
                "expected measurements with the same model as this run, found different ones; choose another"
            ),
            "{error}"
        );
        let rules = RecipeParameters { rules: vec!["ffn=q4_0".to_owned()], ..RecipeParameters::default() };
        let ruled = MeasuredWith { recipe: rules, ..with("a") };
        assert_ne!(ruled.short_hash(), with("a").short_hash());
        let error = Measurements::read(&path, &ruled).unwrap_err().to_string();
        assert!(
            error.contains("the same rules and options for the types of tensors as this run, found different ones"),
            "{error}"
        );
    }

    #[test]
    fn damaged_files_are_refused_in_one_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.json");
        let good = serde_json::to_string(&Measurements::new(with("a"))).unwrap();
        let infinite = good.replace("\"base_kl\":null", "\"base_kl\":1e39");
        let negative = good.replace("\"groups\":{}", "\"groups\":{\"g\":{\"errors\":{\"q8_0\":-1.0},\"kl\":{}}}");
        let newer = good.replace("\"version\":2", "\"version\":3");
        let twice = good.replace("\"version\":2", "\"version\":2,\"version\":2");
        let cases = [
            ("", "found the end of the file"),
            (&good[..40], "found the end of the file"),
            (&twice, "occurs twice"),
            ("[1]", "found other JSON"),
            (&newer, "expected version 2 of the format, found 3"),
            (&infinite, "base_kl: expected a finite number"),
            (&negative, "g: expected a finite number of at least 0, found -1"),
        ];
        for (text, expected) in cases {
            fs::write(&path, text).unwrap();
            let error = Measurements::read(&path, &with("a")).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("delete this one") && !error.contains('\n'), "{error}");
        }
    }
}
