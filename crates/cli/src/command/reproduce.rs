//! `trueup reproduce`: repeats an attested run of quantize, and compares the results.

use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::progress::Bar;
use crate::target::Targets;
use crate::value;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use trueup::attestation::Attestation;
use trueup::formats::{self, Importance, OpenOptions, TemporaryFile, free_disk_bytes, quote};
use trueup::quantize::{file_bytes, quantize_with};

/// Description in `--help`.
pub const LONG_ABOUT: &str = "\
Repeat a quantization from its attestation, and compare the results

The attestation is a file that `trueup quantize --attest FILE` wrote. Inputs are compared with their attested hashes \
first. If they are equal, the model is quantized again with the attested options. Then the output, and the type, hash \
and quantization error of each tensor are compared.";

const DETAILS: &str = "\
Exit codes:
  0  The output and the results for each tensor are equal to the attested ones
  1  An input, the output or the result for a tensor differs
  2  The attestation or an input could not be read, or the output could not be written

Examples:
  trueup reproduce model-q4_k_m.intoto.json
  trueup reproduce model-q4_k_m.intoto.json --source downloads/model-f16.gguf -o again.gguf";

/// Arguments of `trueup reproduce`.
#[derive(Args)]
#[command(after_long_help = DETAILS)]
pub struct Arguments {
    /// Attestation that `trueup quantize --attest` wrote
    attestation: PathBuf,
    /// Model that was quantized [default: the attested name, in the directory of the attestation]
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,
    /// Importance matrix that was used [default: the attested name, in the directory of the attestation]
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Write the output to FILE and keep it [default: a temporary file]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Directory for the temporary file [default: the system's temporary directory]
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    temp_dir: Option<PathBuf>,
    /// Number of threads; does not change the result [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `trueup reproduce`.
pub fn run(arguments: Arguments) -> Result {
    let attestation = Attestation::read(&arguments.attestation)?;
    let options = attestation.options(&arguments.attestation, arguments.threads)?;
    let folder = arguments.attestation.parent().unwrap_or(Path::new(""));
    let path = arguments.source.clone().unwrap_or_else(|| attestation.source_in(folder));
    let source = find(&path, "--source", |path| formats::open(path, &OpenOptions::default()))?;
    let source = formats::join_split_scale(source)?;
    let matrix = match (attestation.importance_in(folder), &arguments.imatrix) {
        (None, Some(_)) => {
            return Err(Failure::new("--imatrix: the attested run used no importance matrix; remove --imatrix"));
        }
        (attested, given) => given.clone().or(attested),
    };
    let matrix = matrix.map(|path| find(&path, "--imatrix", |path| Importance::open(path))).transpose()?;
    if let Some(output) = &arguments.output {
        let read: Vec<&Path> = matrix.iter().map(|matrix| matrix.source().path()).collect();
        let read = [&[arguments.attestation.as_path()][..], &read].concat();
        Targets::files([output.as_path()]).check(&source.sources(), &read)?;
    }
    let mut differences = attestation.compare_inputs(source.as_ref(), matrix.as_ref(), &Bar::new("hash"))?;
    let is_run = differences.is_empty();
    if is_run {
        let importance = matrix.and_then(|matrix| attestation.importance(matrix));
        let written = Written::new(&arguments, || file_bytes(source.as_ref(), &options, importance.as_ref()))?;
        let bar = Bar::new("quantize");
        let report = quantize_with(source.as_ref(), written.path(), &options, importance.as_ref(), &bar)?;
        drop(bar);
        let bar = Bar::new("hash");
        differences = attestation.compare_output((written.path(), &report), arguments.threads, &bar)?;
    }
    print(&arguments, &attestation, &differences, is_run)?;
    Ok(if differences.is_empty() { Code::Done } else { Code::Mismatch })
}

/// Opens an input. The error of a missing input names the option that sets its path.
fn find<T>(path: &Path, option: &str, open: impl Fn(&Path) -> formats::Result<T>) -> Result<T> {
    if !path.exists() {
        let shown = quote(&path.to_string_lossy());
        return Err(Failure::new(format!(
            "{shown}: expected an input of the attested run, found no file; pass its path with {option}"
        )));
    }
    Ok(open(path)?)
}

/// The output: the given file, or a temporary file, which is removed afterwards.
enum Written<'a> {
    Kept(&'a Path),
    Temporary(TemporaryFile),
}

impl<'a> Written<'a> {
    fn new(arguments: &'a Arguments, bytes: impl FnOnce() -> formats::Result<u64>) -> Result<Written<'a>> {
        if let Some(path) = &arguments.output {
            return Ok(Written::Kept(path));
        }
        let folder = arguments.temp_dir.clone().unwrap_or_else(std::env::temp_dir);
        let shown = quote(&folder.to_string_lossy());
        if !folder.is_dir() {
            return Err(Failure::new(format!(
                "{shown}: expected a directory for the temporary file, found none; pass another one with --temp-dir DIR"
            )));
        }
        let bytes = bytes()?;
        if let Some(free) = free_disk_bytes(&folder).filter(|free| *free < bytes) {
            return Err(Failure::new(format!(
                "{shown}: the temporary file needs {bytes} bytes, but {free} bytes are available; free some space, or \
                 pass a directory on another disk with --temp-dir DIR"
            )));
        }
        let file = TemporaryFile::create(&folder, "trueup-reproduce.gguf")
            .map_err(|error| Failure::new(format!("{error}; pass another directory with --temp-dir DIR")))?;
        Ok(Written::Temporary(file))
    }

    fn path(&self) -> &Path {
        match self {
            Written::Kept(path) => path,
            Written::Temporary(file) => file.path(),
        }
    }
}

fn print(arguments: &Arguments, attestation: &Attestation, differences: &[String], is_run: bool) -> Result<()> {
    let (attested, own) = (attestation.version(), env!("CARGO_PKG_VERSION"));
    let name = attestation.output_name();
    if arguments.json {
        return output::json(&json!({
            "equal": differences.is_empty(),
            "output": name,
            "inputs_equal": is_run,
            "attested_version": attested,
            "version": own,
            "differences": differences,
        }));
    }
    if attested != own {
        output::note(&format!("the attested run used trueup {}; this is trueup {own}", quote(attested)));
    }
    let name = quote(name);
    for difference in differences {
        output::line(difference)?;
    }
    output::line(&match (differences.is_empty(), is_run) {
        (true, _) => format!("{name}: reproduced, identical bytes"),
        (false, true) => format!("{name}: not reproduced: the inputs are equal, but the results differ"),
        (false, false) => format!("{name}: not reproduced: an input differs"),
    })
}
