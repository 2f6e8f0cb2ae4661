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
use trueup::formats::{self, Importance, flm::is_flm};
use trueup::quantize::{ImportanceOptions, Layout, Options, Recipe, Rule, Scheme, quantize_with};

const EXAMPLES: &str = "\
Examples:
  trueup quantize -b 4 model.gguf model-q4_0.gguf
  trueup quantize --type q4_k_m --imatrix imatrix.gguf model.gguf model-q4_k_m.gguf
  trueup quantize --type q8_0 --rule 'ffn_down=f16' model.gguf out.gguf --report errors.json
  trueup quantize -b 8 model.flm model-int8.flm
  trueup quantize -b 4 --layout split model.gguf npu.gguf
  trueup quantize --layout block npu.gguf back.gguf";

/// Arguments of `trueup quantize`.
#[derive(Args)]
#[command(
    group = ArgGroup::new("what").args(["bits", "scheme", "layout"]).required(true).multiple(true),
    after_long_help = EXAMPLES
)]
pub struct Arguments {
    /// GGUF file to quantize; for .flm output, a model in any format
    input: PathBuf,
    /// GGUF file to write; a name ending in .flm selects the format of FastLLM
    output: PathBuf,
    /// Bits per weight: 4 (q4_0), 8 (q8_0) or 16 (f16)
    #[arg(short, long, value_parser = ["4", "8", "16"], conflicts_with = "scheme")]
    bits: Option<String>,
    #[arg(long = "type", value_name = "TYPE", help = type_help(), value_parser = value::scheme)]
    scheme: Option<Scheme>,
    /// Set the type of tensors whose names match the regular expression REGEX; the first matching rule applies
    ///
    /// Other tensors keep the types that they would have without the rule. A rule that matches no tensor is an error.
    #[arg(long = "rule", alias = "tensor-type", value_name = "REGEX=TYPE")]
    rules: Vec<Rule>,
    /// Use the main type of -b or --type for every matrix, including the embedding and the output head
    #[arg(long)]
    pure: bool,
    /// Type of the token embedding
    #[arg(long, value_name = "TYPE", value_parser = value::tensor_type)]
    token_embedding_type: Option<DType>,
    /// Type of the output head; of the token embedding, if the model has no separate output head
    #[arg(long, value_name = "TYPE", value_parser = value::tensor_type)]
    output_tensor_type: Option<DType>,
    /// Keep the type of the output head
    #[arg(long, conflicts_with = "output_tensor_type")]
    leave_output_tensor: bool,
    /// Fail if a tensor cannot get the requested type, for example because of its row length
    #[arg(long)]
    strict: bool,
    /// Importance matrix of `trueup imatrix` or llama-imatrix: errors are weighted by the inputs of each column
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Accept missing entries, wrong sizes, and experts without tokens in the importance matrix
    #[arg(long, requires = "imatrix")]
    allow_partial_imatrix: bool,
    /// Write the bytes of llama-quantize, even where it sets weights of columns without importance to zero
    #[arg(long, requires = "imatrix")]
    imatrix_exact: bool,
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

/// Help of `--type`, with the types that this build can write.
fn type_help() -> String {
    let names: Vec<&str> = Scheme::written().map(|scheme| scheme.name()).collect();
    format!("Type of the matrices, or mixture of types: {}", names.join(", "))
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
    let recipe = Recipe::of(bits.or(arguments.scheme))
        .pure(arguments.pure)
        .strict(arguments.strict)
        .token_embedding(arguments.token_embedding_type)
        .output(arguments.output_tensor_type)
        .leave_output(arguments.leave_output_tensor)
        .rules(arguments.rules);
    let layout = match arguments.layout {
        None | Some(LayoutName::Block) => Layout::Block,
        Some(LayoutName::Split) => Layout::Split,
    };
    let options =
        Options { recipe, layout, threads: arguments.threads, dry_run: arguments.dry_run, resume: arguments.resume };
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
    let importance = arguments.imatrix.as_deref().map(Importance::open).transpose()?;
    let importance = importance.map(|file| ImportanceOptions {
        file,
        allow_partial: arguments.allow_partial_imatrix,
        exact: arguments.imatrix_exact,
    });
    let how = How { json: arguments.json, report: arguments.report };
    let report = if is_flm(&arguments.output) {
        if importance.is_some() {
            return Err(Failure::new("--imatrix: expected GGUF output, found .flm output; remove --imatrix"));
        }
        let bits = arguments.bits.as_deref().and_then(|bits| bits.parse().ok());
        let options = FlmOptions::of_quantization(&arguments.output, bits, &options)?;
        to_flm(source.as_ref(), &arguments.output, &options, &Bar::new("quantize"))?
    } else {
        quantize_with(source.as_ref(), &arguments.output, &options, importance.as_ref(), &Bar::new("quantize"))?
    };
    losses::print(&report, &arguments.output, arguments.dry_run, &how)?;
    Ok(Code::Done)
}
