//! `trueup quantize`: writes a model with smaller types, and reports the error of each tensor.

mod goal;

use crate::command::recipe::{ImportanceArguments, RecipeArguments};
use crate::failure::{Code, Failure, Result};
use crate::losses::{self, How};
use crate::output;
use crate::progress::Bar;
use crate::target::{self, Targets};
use crate::value;
use clap::{ArgGroup, Args, ValueEnum};
use goal::{GoalArguments, Job};
use std::path::{Path, PathBuf};
use trueup::attestation::Attestation;
use trueup::blocks::DType;
use trueup::convert::{FlmOptions, to_flm};
use trueup::formats::{self, Checkpoint, Description, flm::is_flm};
use trueup::models::OtherKind;
use trueup::quantize::{ImportanceOptions, Layout, Options, Report, Scheme, quantize_with};

const EXAMPLES: &str = "\
Examples:
  trueup quantize -b 4 model.gguf model-q4_0.gguf
  trueup quantize --type q4_k_m --imatrix imatrix.gguf model.gguf model-q4_k_m.gguf
  trueup quantize --target 4.5bpw --corpus text.txt model.gguf model-4.5bpw.gguf
  trueup quantize --max-kl 0.02 --corpus text.txt model.gguf small.gguf
  trueup quantize --type q8_0 --rule 'ffn_down=f16' model.gguf out.gguf --report errors.json
  trueup quantize -b 8 model.flm model-int8.flm
  trueup quantize -b 4 --layout split model.gguf npu.gguf
  trueup quantize --layout block npu.gguf back.gguf";

/// Arguments of `trueup quantize`.
#[derive(Args)]
#[command(
    group = ArgGroup::new("what").args(["bits", "scheme", "layout", "target", "max_kl"]).required(true).multiple(true),
    after_long_help = EXAMPLES
)]
pub struct Arguments {
    /// GGUF file to quantize; for .flm output, a model in any format
    input: PathBuf,
    /// GGUF file to write; a name ending in .flm selects FastLLM's format
    output: PathBuf,
    /// Bits per weight: 4 (q4_0), 8 (q8_0) or 16 (f16)
    #[arg(short, long, value_parser = ["4", "8", "16"], conflicts_with = "scheme")]
    bits: Option<String>,
    #[arg(long = "type", value_name = "TYPE", help = type_help(), value_parser = value::scheme)]
    scheme: Option<Scheme>,
    #[command(flatten)]
    goal: GoalArguments,
    #[command(flatten)]
    recipe: RecipeArguments,
    #[command(flatten)]
    importance: ImportanceArguments,
    /// Storage layout of quantized blocks; without -b or --type, only the layout changes
    #[arg(long, value_enum)]
    layout: Option<LayoutName>,
    /// Also write the results as JSON to FILE; with -, print them instead of the text
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write an attestation to FILE: the hashes of all inputs and of the output, the options and the quantization
    /// errors
    ///
    /// The attestation is an in-toto statement. `trueup reproduce FILE` repeats the run and compares the results.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    attest: Option<PathBuf>,
    /// Show what would be written, but do not write it; --target and --max-kl still write the measurements
    #[arg(long)]
    dry_run: bool,
    /// Save progress when interrupted, and continue from an earlier interrupted run
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
    /// Number of threads [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Help of `--type`, with the types that this build can write.
fn type_help() -> String {
    let names: Vec<&str> = Scheme::written().map(|scheme| scheme.name()).collect();
    format!("Type of the matrices, or recipe that chooses a type for each: {}", names.join(", "))
}

/// Storage layouts.
#[derive(Clone, Copy, ValueEnum)]
enum LayoutName {
    /// Each block holds its scale and its values: the standard layout of GGUF
    Block,
    /// Values and scales are separate tensors, for NPUs
    Split,
}

/// Runs `trueup quantize`.
pub fn run(arguments: Arguments) -> Result {
    let bits = arguments.bits.as_deref().map(|bits| match bits {
        "4" => Scheme::from(DType::Q4_0),
        "8" => Scheme::from(DType::Q8_0),
        _ => Scheme::from(DType::F16),
    });
    let recipe = arguments.recipe.recipe(bits.or(arguments.scheme));
    let layout = match arguments.layout {
        None | Some(LayoutName::Block) => Layout::Block,
        Some(LayoutName::Split) => Layout::Split,
    };
    let options =
        Options { recipe, layout, threads: arguments.threads, dry_run: arguments.dry_run, resume: arguments.resume };
    let source = formats::join_split_scale(formats::open(&arguments.input, &formats::OpenOptions::default())?)?;
    refuse_other_kinds(source.as_ref())?;
    if !is_flm(&arguments.output) {
        source.notes().iter().for_each(|note| output::note(note));
    }
    check_targets(&arguments, source.as_ref())?;
    let importance = arguments.importance.open()?;
    let how = How { json: arguments.json, report: arguments.report.clone(), target: None };
    if arguments.goal.is_given() {
        return arguments.goal.run(Job {
            input: &arguments.input,
            output: &arguments.output,
            source,
            recipe: options.recipe,
            importance,
            imatrix: arguments.importance.imatrix.as_deref(),
            attest: arguments.attest.as_deref(),
            threads: arguments.threads,
            dry_run: arguments.dry_run,
            how,
        });
    }
    let report = if is_flm(&arguments.output) {
        let flags = [("--imatrix", importance.is_some()), ("--attest", arguments.attest.is_some())];
        if let Some((flag, _)) = flags.into_iter().find(|(_, is_given)| *is_given) {
            return Err(Failure::new(format!("{flag}: expected GGUF output, found .flm output; remove {flag}")));
        }
        let bits = arguments.bits.as_deref().and_then(|bits| bits.parse().ok());
        let options = FlmOptions::of_quantization(&arguments.output, bits, &options)?;
        to_flm(source.as_ref(), &arguments.output, &options, &Bar::new("quantize"))?
    } else {
        options.recipe.expect_effect(&arguments.input, importance.is_some())?;
        quantize_with(source.as_ref(), &arguments.output, &options, importance.as_ref(), &Bar::new("quantize"))?
    };
    if let Some(file) = &arguments.attest {
        let written = (arguments.output.as_path(), &report);
        attest(file, (source.as_ref(), importance.as_ref()), &options, written)?;
    }
    losses::print(&report, &arguments.output, arguments.dry_run, &how)?;
    Ok(Code::Done)
}

/// Refuses adapters, importance matrices and control vectors, which are not models.
fn refuse_other_kinds(source: &dyn Checkpoint) -> Result<()> {
    let Description::Gguf(metadata) = source.description() else { return Ok(()) };
    match OtherKind::of_metadata(metadata).filter(|kind| !kind.can_be_quantized()) {
        Some(kind) => Err(kind.error(source.path()).into()),
        None => Ok(()),
    }
}

/// Writes the attestation of a run that has just written the output.
fn attest(
    file: &Path,
    (source, importance): (&dyn Checkpoint, Option<&ImportanceOptions>),
    options: &Options,
    written: (&Path, &Report),
) -> Result<()> {
    let attestation = Attestation::new(source, importance, options, written, &Bar::new("hash"))?;
    output::document(file, attestation.to_document()?.trim_end())
}

/// Refuses a report or an attestation that would replace an input or the output.
fn check_targets(arguments: &Arguments, source: &dyn Checkpoint) -> Result<()> {
    if arguments.attest.as_deref() == Some(Path::new("-")) {
        let problem = "expected a file name, found -; standard output is used for the results";
        return Err(Failure::new(format!("--attest: {problem}; pass a file name")));
    }
    let documents = [("--report", &arguments.report), ("--attest", &arguments.attest)];
    for (flag, file) in documents.into_iter().filter_map(|(flag, file)| Some((flag, file.as_ref()?))) {
        output::check_target(file, &source.sources())?;
        if target::is_same(file, &arguments.output) {
            return Err(Failure::new(format!(
                "{flag}: this path is also the output model; choose another path for the document"
            )));
        }
    }
    let documents = documents.into_iter().filter_map(|(_, file)| file.as_deref());
    let read: Vec<&Path> = arguments.importance.imatrix.as_deref().into_iter().collect();
    Targets::files(documents).check(&source.sources(), &read)
}
