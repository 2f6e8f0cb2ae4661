//! `trueup quantize`: writes a model with smaller types, and reports the error of each tensor.

use crate::failure::{Code, Failure, Result};
use crate::losses::{self, How};
use crate::output;
use crate::progress::Bar;
use crate::target;
use crate::value;
use clap::{ArgGroup, Args, ValueEnum};
use std::path::PathBuf;
use trueup::blocks::DType;
use trueup::convert::{FlmOptions, to_flm};
use trueup::formats::{self, flm::is_flm};
use trueup::quantize::{Layout, Options, Recipe, Rule, quantize};

const EXAMPLES: &str = "\
Examples:
  trueup quantize -b 4 model.gguf model-q4_0.gguf
  trueup quantize --type q8_0 --rule 'ffn_down=f16' model.gguf out.gguf --report errors.json
  trueup quantize -b 8 model.flm model-int8.flm
  trueup quantize -b 4 --layout split model.gguf npu.gguf
  trueup quantize --layout block npu.gguf back.gguf";

/// Arguments of `trueup quantize`.
#[derive(Args)]
#[command(
    group = ArgGroup::new("what").args(["bits", "dtype", "layout"]).required(true).multiple(true),
    after_long_help = EXAMPLES
)]
pub struct Arguments {
    /// GGUF file to quantize; for .flm output, a model in any format
    input: PathBuf,
    /// GGUF file to write; a name ending in .flm selects the format of FastLLM
    output: PathBuf,
    /// Bits per weight: 4 (q4_0), 8 (q8_0) or 16 (f16)
    #[arg(short, long, value_parser = ["4", "8", "16"], conflicts_with = "dtype")]
    bits: Option<String>,
    /// Type of the matrices: f32, f16, bf16, q8_0, q4_0, q5_0, q4_1, q5_1 or q8_1
    #[arg(long = "type", value_name = "TYPE", value_parser = value::tensor_type)]
    dtype: Option<DType>,
    /// Set the type of tensors whose names match the regular expression REGEX; the first matching rule applies
    #[arg(long = "rule", value_name = "REGEX=TYPE")]
    rules: Vec<Rule>,
    /// Also use the type for the embedding and the output head, instead of q8_0
    #[arg(long)]
    pure: bool,
    /// Fail if the row length of a matrix is not a multiple of the block size, instead of writing f16
    #[arg(long)]
    strict: bool,
    /// Storage layout of quantized blocks; without -b or --type, only the layout changes
    #[arg(long, value_enum)]
    layout: Option<LayoutName>,
    /// Also write the results as JSON to FILE; with -, print them instead of the text
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Show what would be written, without writing it
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
        "4" => DType::Q4_0,
        "8" => DType::Q8_0,
        _ => DType::F16,
    });
    let recipe = Recipe::new(bits.or(arguments.dtype)).pure(arguments.pure).strict(arguments.strict);
    let layout = match arguments.layout {
        None | Some(LayoutName::Block) => Layout::Block,
        Some(LayoutName::Split) => Layout::Split,
    };
    let options = Options {
        recipe: recipe.rules(arguments.rules),
        layout,
        threads: arguments.threads,
        dry_run: arguments.dry_run,
        resume: arguments.resume,
    };
    let source = formats::join_split_scale(formats::open(&arguments.input, &formats::OpenOptions::default())?)?;
    if !is_flm(&arguments.output) {
        source.notes().iter().for_each(|note| output::note(note));
    }
    if let Some(file) = &arguments.report {
        output::check_target(file, &source.sources())?;
        if target::is_same(file, &arguments.output) {
            return Err(Failure::new(
                "--report: this path is also the output model; choose another path for the report",
            ));
        }
    }
    let how = How { json: arguments.json, report: arguments.report };
    let report = if is_flm(&arguments.output) {
        let bits = arguments.bits.as_deref().and_then(|bits| bits.parse().ok());
        let options = FlmOptions::of_quantization(&arguments.output, bits, &options)?;
        to_flm(source.as_ref(), &arguments.output, &options, &Bar::new("quantize"))?
    } else {
        quantize(source.as_ref(), &arguments.output, &options, &Bar::new("quantize"))?
    };
    losses::print(&report, &arguments.output, arguments.dry_run, &how)?;
    Ok(Code::Done)
}
